// Command catch builds each mutant of the C core into the tests that must find it, runs them, and expects them to fail
// for the reason that the mutant's patch gives. Usage: catch -build DIR [-programs LIST] [NAME ...]. DIR is a meson
// build with tests, all of it built. With names only these mutants are played; with -programs only tests of these
// programs.
//
// It ends with 1 unless each mutant is caught. Not caught is also what does not apply, compile or link, ends by a
// signal or not at all, fails for another reason, or fails without the mutant as well.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/farlog/farlog/pkg/internal/mutant"
)

func main() {
	dir := flag.String("build", "build/rdma-test/release", "the meson build whose objects and programs are taken")
	programs := flag.String("programs", "", "only tests of these programs, with commas between them (default: all)")
	jobs := flag.Int("jobs", runtime.NumCPU(), "mutants at a time")
	flag.Parse()
	passed, failed, err := run(*dir, *programs, *jobs, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		failed++
	}
	fmt.Printf("mutants: %d passed, %d failed\n", passed, failed)
	if failed > 0 {
		os.Exit(1)
	}
}

func run(dir, programs string, jobs int, names []string) (passed, failed int, err error) {
	root, err := os.Getwd()
	if err != nil {
		return 0, 0, err
	}
	mutants, err := mutant.ReadAll(root)
	if err != nil {
		return 0, 0, err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return 0, 0, err
	}
	b, err := openBuild(root, dir)
	if err != nil {
		return 0, 0, err
	}
	scratch, err := os.MkdirTemp("", "farlog-mutants.")
	if err != nil {
		return 0, 0, err
	}
	defer os.RemoveAll(scratch)
	tasks := selectTasks(mutants, programs, names)
	if len(tasks) == 0 {
		return 0, 0, fmt.Errorf("no mutant is named %v with a test of %q", names, programs)
	}
	passed, failed = newCatcher(b, scratch).catchAll(tasks, jobs)
	return passed, failed, nil
}

// selectTasks is the mutants with the tests that were asked for.
func selectTasks(mutants []mutant.Mutant, programs string, names []string) []mutant.Mutant {
	var tasks []mutant.Mutant
	for _, m := range mutants {
		if len(names) > 0 && !slices.Contains(names, m.Name) {
			continue
		}
		m.Tests = slices.DeleteFunc(m.Tests, func(test mutant.Test) bool {
			return programs != "" && !slices.Contains(strings.Split(programs, ","), test.Program)
		})
		if len(m.Tests) > 0 {
			tasks = append(tasks, m)
		}
	}
	return tasks
}

// catchAll plays the mutants, jobs at a time, and says of each test what came of it.
func (c *catcher) catchAll(mutants []mutant.Mutant, jobs int) (passed, failed int) {
	var mutex sync.Mutex
	var workers sync.WaitGroup
	queue := make(chan mutant.Mutant)
	for range jobs {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for m := range queue {
				results := c.catch(m)
				mutex.Lock()
				for _, r := range results {
					fmt.Printf("mutants: %s: %s\n", m.Name, r.text)
					if r.isCaught {
						passed++
					} else {
						failed++
					}
				}
				mutex.Unlock()
			}
		}()
	}
	for _, m := range mutants {
		queue <- m
	}
	close(queue)
	workers.Wait()
	return passed, failed
}
