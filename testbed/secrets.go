package main

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const (
	privateKey = "PRIVATE KEY"
	tokenFiles = targetDir +
		"/rings/wanted.json /var/drain/drain-assignments.json /run/grant" // that daemons and writers keep tokens in
	secretsLimit = 2 * time.Minute
)

// sought are the secrets of a run, and where they were said.
type sought struct {
	tokens [][]byte
	keys   map[uint32]bool // that requests on the wire named
}

var hexadecimal = regexp.MustCompile(`\b0x[0-9a-fA-F]{1,8}\b`)

// saidBy is an error when a text has one of the secrets in it, however it got there.
func (s *sought) saidBy(name, text string) error {
	if strings.Contains(text, privateKey) {
		return fmt.Errorf("%s said a private key", name)
	}
	for _, token := range s.tokens {
		for form, said := range map[string]string{
			"in hexadecimal digits": hex.EncodeToString(token), "in base64": base64.StdEncoding.EncodeToString(token),
			"as bytes":   string(token),
			"as numbers": strings.Trim(fmt.Sprint(token), "[]"), "quoted": strings.Trim(fmt.Sprintf("%q", token), `"`),
		} {
			if strings.Contains(text, said) {
				return fmt.Errorf("%s said a token, %s", name, form)
			}
		}
	}
	for _, word := range hexadecimal.FindAllString(text, -1) {
		if key, err := strconv.ParseUint(word[2:], 16, 32); err == nil && s.keys[uint32(key)] {
			return fmt.Errorf("%s said %s, a key to memory of the device that requests on the wire go by", name, word)
		}
	}
	return nil
}

// hide keeps a token that no program may say.
func (b *bed) hide(token []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tokens = append(b.tokens, token)
}

// tokensIn are those in documents of JSON one behind another: in base64 as daemons keep them, in hexadecimal digits as
// grants have them.
func tokensIn(text string) (found [][]byte) {
	var look func(name string, value any)
	look = func(name string, value any) {
		switch value := value.(type) {
		case map[string]any:
			for name, inner := range value {
				look(name, inner)
			}
		case []any:
			for _, inner := range value {
				look(name, inner)
			}
		case string:
			if token := decodeToken(value); strings.EqualFold(name, "token") && len(token) > 0 {
				found = append(found, token)
			}
		}
	}
	decoder := json.NewDecoder(strings.NewReader(text))
	for {
		var document any
		if err := decoder.Decode(&document); err != nil {
			return found
		}
		look("", document)
	}
}

func decodeToken(text string) []byte {
	token, err := hex.DecodeString(text)
	if err != nil {
		token, _ = base64.StdEncoding.DecodeString(text)
	}
	return token
}

// keepsSecrets is an error when a program or a kernel in a guest has said a token of a grant, a key to a device's
// memory, or a private key. A scenario that went well ends with it.
func (b *bed) keepsSecrets(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, secretsLimit)
	defer cancel()
	b.mu.Lock()
	guests, notes := b.guests, b.notes
	b.mu.Unlock()
	for _, g := range guests {
		if g.HasEnded() {
			continue
		}
		text, err := g.Run(ctx, "cat "+tokenFiles+" 2>/dev/null || true")
		if err != nil {
			return fmt.Errorf("the tokens that are kept on %s: %w", g.Name, err)
		}
		for _, token := range tokensIn(text) {
			b.hide(token)
		}
	}
	keys := b.wire.Keys()
	maps.Copy(keys, b.rail.Keys())
	secrets := &sought{b.tokens, keys}
	var errs []error
	for _, n := range notes {
		errs = append(errs, secrets.saidBy(n.name, n.text()))
	}
	consoles, err := filepath.Glob(filepath.Join(b.dir, "*.console"))
	errs = append(errs, err)
	for _, path := range consoles {
		text, err := os.ReadFile(path)
		errs = append(errs, err, secrets.saidBy(filepath.Base(path), string(text)))
	}
	return errors.Join(errs...)
}
