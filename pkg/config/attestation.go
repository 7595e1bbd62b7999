package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/farlog/farlog/pkg/safefile"
)

// Attestation is what the operator of a host says of one region because no program can find it out. Texts are as in the
// file.
type Attestation struct {
	Region            string // its path
	ReadFlushes       bool
	AnyReadFlushes    bool   // not only of the bytes written last; only with ReadFlushes
	How               string // AttestedHow; "" without ReadFlushes
	CommitFlushes     string // the libfabric provider whose commit flushes; "" = none
	PersistenceDomain string // AttestedDomains; "" = the kernel's word counts
	By, Date, Reason  string
}

// AttestedHow and AttestedDomains are the words of `how` and `persistence_domain`.
var (
	AttestedHow     = []string{"ddio-off", "eadr", "bar"}
	AttestedDomains = []string{"memory_controller", "cpu_cache"}
)

// attestedKeys are those of a region; by, date and reason are required.
var attestedKeys = []string{
	"any_read_flushes", "by", "commit_flushes", "date", "how", "persistence_domain",
	"read_flushes", "reason",
}

// RegionPath is the path in a region's URI, "mem:/path?name=value": what an attestation calls it.
func RegionPath(uri string) string {
	path, _, _ := strings.Cut(strings.TrimPrefix(uri, "mem:"), "?")
	return path
}

// ReadAttestations reads a YAML file of attestations, in the order of their paths. regions are the paths that may be
// named. An error is of type *Error and names file, key, value and what was expected: an attestation that is silently
// ignored would be worse than none.
func ReadAttestations(file string, regions []string) ([]Attestation, error) {
	raw, _, err := safefile.Read(file)
	if err != nil {
		return nil, errorf("attestation file %q: %s", file, errors.Unwrap(err))
	}
	var tree map[string]any
	if err := yaml.UnmarshalStrict(raw, &tree); err != nil {
		return nil, errorf("%s: expected YAML of attestations: %s", file, notRead(raw, err))
	}
	for _, key := range slices.Sorted(maps.Keys(tree)) {
		if key != "regions" {
			return nil, errorf("%s: unknown key %q: expected regions", file, key)
		}
	}
	entries, ok := tree["regions"].(map[string]any)
	if !ok || len(entries) == 0 {
		return nil, errorf("%s: regions %q: expected the path of a region, and below it what is attested", file,
			textOf(tree["regions"]))
	}
	var list []Attestation
	for _, path := range slices.Sorted(maps.Keys(entries)) {
		if !slices.Contains(regions, path) {
			return nil, errorf("%s: regions: unknown region %q: expected one of this target's: %s", file, path,
				orNone(regions))
		}
		one := entry{prefix: file + ": regions: " + path + ": "}
		one.keys, ok = entries[path].(map[string]any)
		if !ok {
			return nil, errorf("%s%q: expected the keys %s", one.prefix, textOf(entries[path]),
				strings.Join(attestedKeys, ", "))
		}
		attestation, err := one.read(path)
		if err != nil {
			return nil, err
		}
		list = append(list, attestation)
	}
	return list, nil
}

// entry is one region in the file.
type entry struct {
	prefix string // of its errors
	keys   map[string]any
}

func (e entry) read(path string) (Attestation, error) {
	a := Attestation{Region: path}
	for _, key := range slices.Sorted(maps.Keys(e.keys)) {
		if !slices.Contains(attestedKeys, key) {
			return a, errorf("%sunknown key %q%s", e.prefix, key, didYouMean(key, attestedKeys))
		}
	}
	var err error
	a.ReadFlushes, err = e.flag("read_flushes")
	if err == nil {
		a.AnyReadFlushes, err = e.flag("any_read_flushes")
	}
	texts := []struct {
		key    string
		target *string
		check  func(string) error
	}{
		{"by", &a.By, NotEmpty},
		{"date", &a.Date, isDate},
		{"reason", &a.Reason, NotEmpty},
		{"how", &a.How, optional(AttestedHow)},
		{"commit_flushes", &a.CommitFlushes, isProvider},
		{"persistence_domain", &a.PersistenceDomain, optional(AttestedDomains)},
	}
	for _, text := range texts {
		if err == nil {
			*text.target, err = e.text(text.key, text.check)
		}
	}
	if err != nil {
		return a, err
	}
	return a, e.agree(a)
}

// agree checks what keys say of each other.
func (e entry) agree(a Attestation) error {
	switch {
	case a.ReadFlushes && a.How == "":
		return e.errorf("how", "", "expected %s, because read_flushes is true", strings.Join(AttestedHow, " or "))
	case !a.ReadFlushes && a.AnyReadFlushes:
		return e.errorf("any_read_flushes", "true", "expected read_flushes: true beside it")
	case !a.ReadFlushes && a.How != "":
		return e.errorf("how", a.How, "expected read_flushes: true beside it")
	case !a.ReadFlushes && a.CommitFlushes == "" && a.PersistenceDomain == "":
		return errorf("%snothing is attested: expected read_flushes: true, commit_flushes, or persistence_domain",
			e.prefix)
	}
	return nil
}

func (e entry) flag(key string) (bool, error) {
	value, ok := e.keys[key]
	if !ok {
		return false, nil
	}
	flag, ok := value.(bool)
	if !ok {
		return false, e.errorf(key, textOf(value), "expected true or false")
	}
	return flag, nil
}

func (e entry) text(key string, check func(string) error) (string, error) {
	value, ok := e.keys[key]
	text, isText := value.(string)
	if ok && (!isText || text == "") {
		return "", e.errorf(key, textOf(value), "expected a text")
	}
	if err := check(text); err != nil {
		return "", e.errorf(key, text, "%s", err)
	}
	return text, nil
}

func (e entry) errorf(key, value, format string, args ...any) error {
	return errorf("%s%s %q: %s", e.prefix, key, value, fmt.Sprintf(format, args...))
}

// optional takes one of these words, or no such key: text has refused an empty one.
func optional(words []string) func(string) error {
	return func(text string) error {
		if text == "" {
			return nil
		}
		return OneOf(words...)(text)
	}
}

// isProvider takes a name as URIs have it, or no such key.
func isProvider(text string) error {
	if len(text) > 15 || strings.Trim(text, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
		return errors.New("expected a provider of libfabric, such as tcp in ofi:tcp://host:port")
	}
	return nil
}

func isDate(text string) error {
	if _, err := time.Parse(time.DateOnly, text); err != nil {
		return errors.New("expected a day, such as 2026-11-21")
	}
	return nil
}

func textOf(value any) string {
	if value == nil {
		return ""
	}
	return fmt.Sprint(value)
}

func orNone(list []string) string {
	if len(list) == 0 {
		return "it has none, give it --region"
	}
	return strings.Join(list, ", ")
}

// notRead says of a file why it was not read, by line and column where it is no YAML.
func notRead(raw []byte, err error) string {
	if mistake := Syntax(raw); mistake != nil {
		return mistake.Error()
	}
	return strings.Join(strings.Fields(err.Error()), " ")
}
