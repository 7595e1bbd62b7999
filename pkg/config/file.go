package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/farlog/farlog/pkg/safefile"
)

// fileValue is a setting in a file: its text, and where that stands, from 1.
type fileValue struct {
	text         string
	line, column int
}

// readFile reads a YAML file of settings into dotted names. An unknown key is a mistake that names the nearest known
// one: a setting that is silently ignored is worse than a program that does not start. A file without any setting is
// none.
func (s *Set) readFile(path string) (map[string]fileValue, []*Mistake, error) {
	if path == "" {
		return nil, nil, nil
	}
	raw, _, err := safefile.Read(path)
	if err != nil {
		return nil, nil, errorf("configuration file %q: %s", path, errors.Unwrap(err))
	}
	root, mistake := Document(raw)
	if mistake != nil && mistake.Text != emptyText {
		mistake.Text = "expected YAML of settings: " + mistake.Text
		return nil, nil, &Error{Lines: inOrder(path, []*Mistake{mistake})}
	}
	reading := fileReading{known: s.names(), values: make(map[string]fileValue)}
	if root != nil {
		reading.mapping("", root)
	}
	return reading.values, reading.mistakes, nil
}

// fileReading is a file that is being read. It goes on behind mistakes, so that all are reported.
type fileReading struct {
	known    []string // dotted names of settings
	values   map[string]fileValue
	mistakes []*Mistake
}

func (r *fileReading) fail(at *yaml.Node, format string, args ...any) {
	r.mistakes = append(r.mistakes, &Mistake{at.Line, at.Column, fmt.Sprintf(format, args...)})
}

// mapping reads the settings whose names begin with prefix. It goes no deeper than names of settings do.
func (r *fileReading) mapping(prefix string, node *yaml.Node) {
	if node.Tag == "!!null" { // a group whose settings are all commented out
		return
	}
	if node.Kind != yaml.MappingNode {
		r.fail(node, "%s %q: expected settings, as NAME: VALUE", strings.TrimSuffix(prefix, "."), node.Value)
		return
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], Referred(node.Content[i+1])
		name := prefix + key.Value
		isGroup := slices.ContainsFunc(r.known, func(known string) bool { return strings.HasPrefix(known, name+".") })
		switch {
		case isGroup && (value.Kind == yaml.MappingNode || !slices.Contains(r.known, name)):
			r.mapping(name+".", value)
		case slices.Contains(r.known, name):
			r.setting(name, key, value)
		default:
			r.fail(key, "unknown setting %q%s", name, didYouMean(name, r.known))
		}
	}
}

// setting reads the value of one setting; a list is what commas separate on the command line.
func (r *fileReading) setting(name string, key, value *yaml.Node) {
	if first, isThere := r.values[name]; isThere {
		r.fail(key, "%s: the setting is there twice, first in line %d", name, first.line)
		return
	}
	parts := []*yaml.Node{value}
	if value.Kind == yaml.SequenceNode {
		parts = value.Content
	}
	texts := make([]string, len(parts))
	for i, part := range parts {
		part = Referred(part)
		if part.Kind != yaml.ScalarNode || part.Tag == "!!null" {
			r.fail(part, "%s %q: expected a value, a list of values, or no such key", name, part.Value)
			return
		}
		texts[i] = part.Value
	}
	r.values[name] = fileValue{strings.Join(texts, ","), value.Line, value.Column}
}

// inOrder gives mistakes of a file as lines, FILE:LINE:COLUMN: and what is wrong, in the order of the file.
func inOrder(path string, mistakes []*Mistake) []string {
	slices.SortStableFunc(mistakes, func(a, b *Mistake) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	lines := make([]string, len(mistakes))
	for i, one := range mistakes {
		lines[i] = fmt.Sprintf("%s:%d:%d: %s", path, one.Line, one.Column, withoutPassword(one.Text))
	}
	return lines
}
