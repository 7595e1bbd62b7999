// Package retention says which of the oldest segments of a store may be removed, and removes them: by rules and holds
// that lie in the store, and only behind every reader that the rules name. What is not known, or does not answer, keeps
// everything.
package retention

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/farlog/farlog/pkg/control/pattern"
	"github.com/farlog/farlog/pkg/replace"
	"github.com/farlog/farlog/pkg/store"
)

const (
	fileName      = "retention.json"
	lockName      = "retention.lock"
	policyFormat  = "farlog-retention"
	policyVersion = 1
)

// Kinds of readers that a rule names.
const (
	kindConsumer = "consumer:" // a file with the position of a named consumer
	kindStore    = "store:"    // the directory of a replica's store
)

// Policy is what retention.json of a store holds.
type Policy struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	Rules   []Rule `json:"rules"`
	Holds   []Hold `json:"holds"`
}

// Rule says how long streams are kept. Where several match a stream, what any of them keeps is kept.
type Rule struct {
	Pattern  string `json:"pattern"`
	MaxAge   string `json:"max_age,omitempty"`   // Go's duration
	MaxBytes uint64 `json:"max_bytes,omitempty"` // of records, of each stream
	IsKept   bool   `json:"never,omitempty"`     // never removed
	// WithoutArchive lets go what is not archived (Archived).
	WithoutArchive bool     `json:"without_archive,omitempty"`
	Readers        []string `json:"readers"` // who must have passed
	SetBy          string   `json:"set_by"`
	SetAt          string   `json:"set_at"`
}

// Hold keeps all of the streams that it matches, whatever the rules say.
type Hold struct {
	Pattern string `json:"pattern"`
	Who     string `json:"who"`
	Why     string `json:"why"`
	At      string `json:"at"`
}

// Load reads the policy of a store; one without has no rule. Errors: store.ErrInvalid, or of the file system.
func Load(storeDir string) (Policy, error) {
	name := filepath.Join(storeDir, fileName)
	policy := Policy{Format: policyFormat, Version: policyVersion}
	raw, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return policy, nil
	}
	if err != nil {
		return policy, fmt.Errorf("read retention policy: %w", err)
	}
	decoder := json.NewDecoder(strings.NewReader(string(raw)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&policy); err != nil {
		return policy, fmt.Errorf("%w: retention policy %s: %w", store.ErrInvalid, name, err)
	}
	return policy, policy.check(name)
}

func (p Policy) check(name string) error {
	if p.Format != policyFormat || p.Version != policyVersion {
		return fmt.Errorf("%w: retention policy %s has format %q version %d, expected %q version %d", store.ErrInvalid,
			name, p.Format, p.Version, policyFormat, policyVersion)
	}
	for _, rule := range p.Rules {
		if err := rule.Check(); err != nil {
			return fmt.Errorf("retention policy %s: %w", name, err)
		}
	}
	for _, hold := range p.Holds {
		if err := hold.Check(); err != nil {
			return fmt.Errorf("retention policy %s: %w", name, err)
		}
	}
	return nil
}

// Check reports what is wrong with a rule. Errors: store.ErrInvalid.
func (r Rule) Check() error {
	age, err := r.age()
	switch {
	case pattern.Check(r.Pattern) != nil:
		return fmt.Errorf("%w: retention rule: %w", store.ErrInvalid, pattern.Check(r.Pattern))
	case err != nil || age < 0:
		return fmt.Errorf("%w: retention rule %s: max_age %q, expected a positive duration such as 720h",
			store.ErrInvalid, r.Pattern, r.MaxAge)
	case r.IsKept != (age == 0 && r.MaxBytes == 0):
		return fmt.Errorf("%w: retention rule %s: expected an age, a size, or both, or never", store.ErrInvalid,
			r.Pattern)
	}
	for _, reader := range r.Readers {
		if name, _ := cutKind(reader); name == "" {
			return fmt.Errorf("%w: retention rule %s: reader %q, expected %sFILE (the position of a named consumer) "+
				"or %sDIR (the store of a replica)", store.ErrInvalid, r.Pattern, reader, kindConsumer, kindStore)
		}
	}
	return nil
}

func (r Rule) age() (time.Duration, error) {
	if r.MaxAge == "" {
		return 0, nil
	}
	return time.ParseDuration(r.MaxAge)
}

func cutKind(reader string) (name, kind string) {
	for _, kind := range []string{kindConsumer, kindStore} {
		if name, isKind := strings.CutPrefix(reader, kind); isKind {
			return name, kind
		}
	}
	return "", ""
}

// Check reports what is wrong with a hold. Errors: store.ErrInvalid.
func (h Hold) Check() error {
	if err := pattern.Check(h.Pattern); err != nil {
		return fmt.Errorf("%w: legal hold: %w", store.ErrInvalid, err)
	}
	if h.Who == "" || h.Why == "" {
		return fmt.Errorf("%w: legal hold of %s: expected who and why", store.ErrInvalid, h.Pattern)
	}
	return nil
}

// Change reads the policy, lets change it, and keeps the result, durably; one process at a time. Errors:
// store.ErrLocked, store.ErrInvalid, those of change, or of the file system.
func Change(storeDir string, change func(p *Policy) error) error {
	lock, err := store.OS.Lock(filepath.Join(storeDir, lockName), fmt.Sprintf("process %d", os.Getpid()))
	if err != nil {
		return fmt.Errorf("change retention policy of %s: %w", storeDir, err)
	}
	defer lock.Close()
	policy, err := Load(storeDir)
	if err == nil {
		err = change(&policy)
	}
	if err == nil {
		err = policy.check(fileName)
	}
	if err != nil {
		return err
	}
	raw, err := json.MarshalIndent(policy, "", "  ")
	if err != nil {
		return fmt.Errorf("encode retention policy: %w", err)
	}
	return replace.File(filepath.Join(storeDir, fileName), append(raw, '\n'), 0o640)
}

// matching gives the rules and the holds of a stream.
func (p Policy) matching(stream string) (rules []Rule, holds []Hold) {
	for _, rule := range p.Rules {
		if pattern.Covers([]string{rule.Pattern}, stream) {
			rules = append(rules, rule)
		}
	}
	for _, hold := range p.Holds {
		if pattern.Covers([]string{hold.Pattern}, stream) {
			holds = append(holds, hold)
		}
	}
	return rules, holds
}

// String says the rule in words, as a removal's record has it.
func (r Rule) String() string {
	text := "retention of " + r.Pattern + ":"
	if r.IsKept {
		return text + " never"
	}
	if r.MaxAge != "" {
		text += " max-age " + r.MaxAge
	}
	if r.MaxBytes > 0 {
		text += fmt.Sprintf(" max-size %d bytes", r.MaxBytes)
	}
	where := "archived"
	if r.WithoutArchive {
		where = "without-archive"
	}
	return text + fmt.Sprintf(" %s, set by %s at %s", where, r.SetBy, r.SetAt)
}
