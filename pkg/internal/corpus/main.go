// Command corpus saves what the fuzzing of Go targets has found: of the inputs in Go's cache and in testdata/fuzz of a
// package, for each target, the fewest small ones that together run all blocks of the package that all of them run.
// Ordinary tests run them, and a fuzzer begins with them. Arguments: folders of packages.
package main

import (
	"bufio"
	"errors"
	"fmt"
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
	name   string
	raw    []byte
	blocks []string
}

// saved is the folder of the tree in which the inputs are kept.
func (c corpus) saved() string { return filepath.Join(c.folder, "testdata", "fuzz", c.target) }

// save puts what the cache and the tree hold into one folder, measures each, and leaves the fewest in the tree.
func (c corpus) save(cached string) error {
	inputs := map[string]*input{}
	for _, dir := range []string{cached, c.saved()} {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		for _, entry := range entries {
			raw, err := os.ReadFile(filepath.Join(dir, entry.Name()))
			if err != nil {
				return err
			}
			inputs[entry.Name()] = &input{name: entry.Name(), raw: raw}
		}
	}
	if err := os.MkdirAll(c.saved(), 0o755); err != nil {
		return err
	}
	var list []*input
	for _, one := range inputs {
		if err := os.WriteFile(filepath.Join(c.saved(), one.name), one.raw, 0o644); err != nil {
			return err
		}
		list = append(list, one)
	}
	for _, one := range list {
		if err := c.measure(one); err != nil {
			return err
		}
	}
	kept, blocks := fewest(list)
	for _, one := range list {
		if !slices.Contains(kept, one) {
			if err := os.Remove(filepath.Join(c.saved(), one.name)); err != nil {
				return err
			}
		}
	}
	_ = os.Remove(c.saved()) // where none is kept
	fmt.Printf("%s: %s: %d of %d inputs, %d blocks\n", c.folder, c.target, len(kept), len(list), blocks)
	return nil
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

// fewest chooses, again and again, the input that runs most of what no chosen one runs, of equal ones the shortest.
func fewest(list []*input) (kept []*input, blocks int) {
	slices.SortFunc(list, func(a, b *input) int {
		if len(a.raw) != len(b.raw) {
			return len(a.raw) - len(b.raw)
		}
		return strings.Compare(a.name, b.name)
	})
	covered := map[string]bool{}
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
		kept = append(kept, best)
		for _, block := range best.blocks {
			covered[block] = true
		}
	}
}
