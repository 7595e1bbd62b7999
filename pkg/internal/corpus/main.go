// Command corpus saves what the fuzzing of Go targets has found: of the inputs in Go's cache, for each target, the
// fewest small ones that together run all blocks of the package that no input in its testdata/fuzz runs. What is there
// stays: it may have failed once. Ordinary tests run them, and a fuzzer begins with them. Arguments: folders of
// packages.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

var fuzzTarget = regexp.MustCompile(`(?m)^func (Fuzz[A-Za-z0-9_]+)\(`)

func main() {
	for _, folder := range os.Args[1:] {
		if err := savePackage(folder); err != nil {
			fmt.Fprintf(os.Stderr, "corpus: %s: %s\n", folder, err)
			os.Exit(1)
		}
	}
}

func savePackage(folder string) error {
	scratch, err := os.MkdirTemp("", "farlog-corpus-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	binary := filepath.Join(scratch, "package.test")
	if out, err := exec.Command("go", "test", "-c", "-cover", "-o", binary, "./"+folder).CombinedOutput(); err != nil {
		return fmt.Errorf("build its tests: %w: %s", err, out)
	}
	found, err := exec.Command("go", "list", "-f", "{{.ImportPath}}", "./"+folder).Output()
	if err != nil {
		return fmt.Errorf("find its import path: %w", err)
	}
	cache, err := exec.Command("go", "env", "GOCACHE").Output()
	if err != nil {
		return fmt.Errorf("find Go's cache: %w", err)
	}
	cached := filepath.Join(strings.TrimSpace(string(cache)), "fuzz", strings.TrimSpace(string(found)))
	targets, err := targetsOf(folder)
	if err != nil {
		return err
	}
	for _, target := range targets {
		one := corpus{folder: folder, binary: binary, target: target, scratch: scratch}
		if err := one.save(filepath.Join(cached, target)); err != nil {
			return fmt.Errorf("%s: %w", target, err)
		}
	}
	return nil
}

func targetsOf(folder string) (targets []string, err error) {
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		return nil, err
	}
	for _, path := range files {
		raw, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		for _, match := range fuzzTarget.FindAllSubmatch(raw, -1) {
			targets = append(targets, string(match[1]))
		}
	}
	return targets, nil
}

// corpus is that of one target.
type corpus struct {
	folder, binary, target, scratch string
}

// input is a file of a corpus, with the blocks of the package that it runs.
type input struct {
	name    string
	raw     []byte
	isSaved bool // in the tree, before
	blocks  []string
}

// saved is the folder of the tree in which the inputs are kept.
func (c corpus) saved() string { return filepath.Join(c.folder, "testdata", "fuzz", c.target) }

// save puts what the cache has beside what the tree has, measures each, and leaves the fewest of it there; on an error
// none of it.
func (c corpus) save(cached string) (err error) {
	list, err := c.read(cached)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(c.saved(), 0o755); err != nil {
		return err
	}
	var kept []*input
	defer func() { err = errors.Join(err, c.discard(list, kept)) }()
	for _, one := range list {
		if !one.isSaved {
			if err := os.WriteFile(filepath.Join(c.saved(), one.name), one.raw, 0o644); err != nil {
				return err
			}
		}
	}
	for _, one := range list {
		if err := c.measure(one); err != nil {
			return err
		}
	}
	kept, blocks := fewest(list)
	fmt.Printf("%s: %s: %d of %d inputs, %d blocks\n", c.folder, c.target, len(kept), len(list), blocks)
	return nil
}

// read gives the inputs of cache and tree.
func (c corpus) read(cached string) (list []*input, err error) {
	inputs := map[string]*input{}
	for _, dir := range []string{cached, c.saved()} {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		for _, entry := range entries {
			raw, err := os.ReadFile(filepath.Join(dir, entry.Name()))
			if err != nil {
				return nil, err
			}
			inputs[entry.Name()] = &input{name: entry.Name(), raw: raw, isSaved: dir == c.saved()}
		}
	}
	return slices.Collect(maps.Values(inputs)), nil
}

// discard removes what was neither in the tree before nor is kept.
func (c corpus) discard(list, kept []*input) (err error) {
	for _, one := range list {
		if one.isSaved || slices.Contains(kept, one) {
			continue
		}
		if removeErr := os.Remove(filepath.Join(c.saved(), one.name)); !errors.Is(removeErr, os.ErrNotExist) {
			err = errors.Join(err, removeErr)
		}
	}
	_ = os.Remove(c.saved()) // where there is none
	return err
}

// measure runs the target with one input.
func (c corpus) measure(one *input) error {
	profile := filepath.Join(c.scratch, "profile")
	cmd := exec.Command(c.binary, "-test.run=^"+c.target+"$/^"+regexp.QuoteMeta(one.name)+"$",
		"-test.coverprofile="+profile)
	cmd.Dir = c.folder
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("input %s: %w: %s", one.name, err, out)
	}
	file, err := os.Open(profile)
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if block, count, isBlock := strings.Cut(lines.Text(), " "); isBlock && !strings.HasSuffix(count, " 0") {
			one.blocks = append(one.blocks, block)
		}
	}
	return lines.Err()
}

// fewest chooses all that are saved and then, again and again, the input that runs most of what no chosen one runs, of
// equal ones the shortest.
func fewest(list []*input) (kept []*input, blocks int) {
	slices.SortFunc(list, func(a, b *input) int {
		if len(a.raw) != len(b.raw) {
			return len(a.raw) - len(b.raw)
		}
		return strings.Compare(a.name, b.name)
	})
	covered := map[string]bool{}
	keep := func(one *input) {
		kept = append(kept, one)
		for _, block := range one.blocks {
			covered[block] = true
		}
	}
	for _, one := range list {
		if one.isSaved {
			keep(one)
		}
	}
	for {
		var best *input
		most := 0
		for _, one := range list {
			gain := 0
			for _, block := range one.blocks {
				if !covered[block] {
					gain++
				}
			}
			if gain > most {
				best, most = one, gain
			}
		}
		if best == nil {
			return kept, len(covered)
		}
		keep(best)
	}
}
