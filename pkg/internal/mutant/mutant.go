// Package mutant reads and applies the mutants of the C core: named faults of our own, each a patch in
// rdma/test/mutants, each of which a named test must find. A test that passes proves something only if it fails when
// the protocol is broken.
//
// A mutant is a file NAME.patch: the fault in a sentence or two, an empty line, for each test that must find it
//
//	test: [NAME=VALUE ...] PROGRAM [ARGUMENT ...]
//	fails: what the test says, or the assertion at which it ends
//
// and a unified diff whose paths begin at the root of the repository, so that git apply takes it. The lines of a hunk
// find their place by themselves, not by its line numbers: they must occur exactly once.
package mutant

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Dir is where the mutants are, from the root of the repository.
const Dir = "rdma/test/mutants"

// Test is a program that must fail when it is built with the mutant.
type Test struct {
	Line    string   // as it stands in the patch
	Env     []string // NAME=VALUE
	Program string   // below test/ of a build directory
	Args    []string
	Fails   string // what tells this failure from another one
}

// Hunk replaces Old, whole lines that occur once in their file, by New.
type Hunk struct {
	Old, New string
	Line     int // of the patch
}

// File is what a mutant changes in one file.
type File struct {
	Path  string // from the root of the repository
	Hunks []Hunk
}

// Mutant is one named fault.
type Mutant struct {
	Name  string
	Path  string
	Fault string
	Tests []Test
	Files []File
}

// ReadAll reads the mutants of the repository at root, in order of their names.
func ReadAll(root string) ([]Mutant, error) {
	paths, err := filepath.Glob(filepath.Join(root, Dir, "*.patch"))
	if err != nil {
		return nil, fmt.Errorf("list mutants: %w", err)
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("list mutants: no *.patch in %s", filepath.Join(root, Dir))
	}
	var mutants []Mutant
	var errs []error
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err == nil {
			var m Mutant
			m, err = Parse(path, string(text))
			mutants = append(mutants, m)
		}
		errs = append(errs, err)
	}
	return mutants, errors.Join(errs...)
}

// Parse reads one mutant; path is for its name and for errors.
func Parse(path, text string) (Mutant, error) {
	p := parser{m: Mutant{Name: strings.TrimSuffix(filepath.Base(path), ".patch"), Path: path}}
	if !strings.HasSuffix(text, "\n") {
		return p.m, fmt.Errorf("%s: the last line has no end; expected a newline", path)
	}
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		if err := p.parseLine(line, i+1); err != nil {
			return p.m, fmt.Errorf("%s:%d: %w", path, i+1, err)
		}
	}
	if err := p.end(); err != nil {
		return p.m, fmt.Errorf("%s: %w", path, err)
	}
	return p.m, nil
}

// parser takes a patch line by line: the head up to the first "---", then the diff.
type parser struct {
	m      Mutant
	isDiff bool
}

func (p *parser) parseLine(line string, number int) error {
	if path, isFile := strings.CutPrefix(line, "--- a/"); isFile {
		p.isDiff = true
		p.m.Files = append(p.m.Files, File{Path: path})
		return nil
	}
	if p.isDiff {
		return p.parseDiff(line, number)
	}
	return p.parseHead(line)
}

func (p *parser) parseHead(line string) error {
	if command, isTest := strings.CutPrefix(line, "test: "); isTest {
		test, err := parseTest(command)
		p.m.Tests = append(p.m.Tests, test)
		return err
	}
	if said, isFails := strings.CutPrefix(line, "fails: "); isFails {
		if len(p.m.Tests) == 0 || p.m.Tests[len(p.m.Tests)-1].Fails != "" {
			return errors.New(`"fails:" belongs to no test; expected it behind a line "test:"`)
		}
		p.m.Tests[len(p.m.Tests)-1].Fails = said
		return nil
	}
	if line != "" && len(p.m.Tests) > 0 {
		return fmt.Errorf(`%q in the head; expected "test:", "fails:" or the diff`, line)
	}
	p.m.Fault = strings.TrimSpace(p.m.Fault + " " + line)
	return nil
}

func parseTest(command string) (Test, error) {
	test := Test{Line: command}
	for _, word := range strings.Fields(command) {
		switch {
		case test.Program != "":
			test.Args = append(test.Args, word)
		case strings.Contains(word, "="):
			test.Env = append(test.Env, word)
		default:
			test.Program = word
		}
	}
	if test.Program == "" {
		return test, fmt.Errorf("%q names no program", command)
	}
	return test, nil
}

func (p *parser) parseDiff(line string, number int) error {
	file := &p.m.Files[len(p.m.Files)-1]
	if strings.HasPrefix(line, "@@") {
		file.Hunks = append(file.Hunks, Hunk{Line: number})
		return nil
	}
	if len(file.Hunks) == 0 {
		if line != "+++ b/"+file.Path {
			return fmt.Errorf("%q; expected %q", line, "+++ b/"+file.Path)
		}
		return nil
	}
	hunk := &file.Hunks[len(file.Hunks)-1]
	if line == "" {
		line = " " // an empty line around the fault, whose blank editors and git take away
	}
	text := line[1:] + "\n"
	if line[0] == ' ' || line[0] == '-' {
		hunk.Old += text
	}
	if line[0] == ' ' || line[0] == '+' {
		hunk.New += text
	}
	if !strings.Contains(" -+", line[:1]) {
		return fmt.Errorf("%q in a hunk; expected a line that begins with a blank, - or +", line)
	}
	return nil
}

func (p *parser) end() error {
	switch {
	case p.m.Fault == "":
		return errors.New("says nothing of its fault; expected a sentence at its beginning")
	case len(p.m.Tests) == 0:
		return errors.New(`names no test that must find it; expected a line "test: PROGRAM ARGUMENT..."`)
	case len(p.m.Files) == 0:
		return errors.New("changes no file; expected a diff behind its head")
	}
	for _, test := range p.m.Tests {
		if test.Fails == "" {
			return fmt.Errorf(`test %q: expected a line "fails:" behind it, with what the test says`, test.Line)
		}
	}
	return nil
}

// Apply returns what the file's text becomes. An error names the hunk that the text has moved away from.
func (f *File) Apply(text string) (string, error) {
	for _, hunk := range f.Hunks {
		at := strings.Index("\n"+text, "\n"+hunk.Old)
		if at < 0 {
			return "", fmt.Errorf("line %d: the lines of this hunk are not in %s any more; write them again",
				hunk.Line, f.Path)
		}
		if strings.Contains(("\n" + text)[at+1:], "\n"+hunk.Old) {
			return "", fmt.Errorf("line %d: the lines of this hunk are in %s more than once; add a line around them",
				hunk.Line, f.Path)
		}
		text = text[:at] + hunk.New + text[at+len(hunk.Old):]
	}
	return text, nil
}

// Apply returns the mutant's files as they become, by path, of the repository at root.
func (m *Mutant) Apply(root string) (map[string]string, error) {
	mutated := map[string]string{}
	for i := range m.Files {
		file := &m.Files[i]
		text, err := os.ReadFile(filepath.Join(root, file.Path))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.Path, err)
		}
		if mutated[file.Path], err = file.Apply(string(text)); err != nil {
			return nil, fmt.Errorf("%s: %w", m.Path, err)
		}
	}
	return mutated, nil
}
