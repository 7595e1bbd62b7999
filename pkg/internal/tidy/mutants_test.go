package tidy

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/farlog/farlog/pkg/internal/mutant"
)

// A mutant is a patch of the core as it is now: a change that moves its lines moves the patch along.
func TestMutants_Apply(t *testing.T) {
	top := root(t)
	mutants, err := mutant.ReadAll(top)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutants {
		if _, err := m.Apply(top); err != nil {
			t.Error(err)
		}
	}
}

var directedTest = regexp.MustCompile(`cmocka_unit_test\((\w+)\)|^\t\{"(\w+)", test_\w+\},$`)

// The tests that mutants name are there: one that was renamed would be looked for in vain only when it is played.
func TestMutants_NameTestsThatExist(t *testing.T) {
	top := root(t)
	mutants, err := mutant.ReadAll(top)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, f := range tracked(t, ".c") {
		for _, line := range f.lines() {
			if found := directedTest.FindStringSubmatch(line); found != nil {
				known[found[1]+found[2]] = true
			}
		}
	}
	build, err := os.ReadFile(filepath.Join(top, "rdma/test/meson.build"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutants {
		for _, test := range m.Tests {
			if !strings.Contains(string(build), "executable('"+test.Program+"'") {
				t.Errorf("%s: %q is no program of rdma/test/meson.build", m.Path, test.Program)
			}
			last := test.Program
			if len(test.Args) > 0 {
				last = test.Args[len(test.Args)-1]
			}
			if (test.Program == "unit" || test.Program == "far-test") && !known[last] {
				t.Errorf("%s: test %q: there is no test %s", m.Path, test.Line, last)
			}
		}
	}
}

// testHooks holds how often a file of the core still asks whether it is compiled for tests. It only shrinks: what a
// test needs comes in by a table of operations, a parameter, or --wrap of a function of the core
// (rdma/test/meson.build).
var testHooks = map[string]int{
	"far/ofi.c":           2,
	"far/ofi.h":           1,
	"far/verbs.c":         1,
	"far/verbs.h":         1,
	"members/join.c":      2,
	"members/members.h":   1,
	"target/ofi.c":        1,
	"target/ofi.h":        1,
	"target/ofi_conn.c":   1,
	"target/verbs.h":      1,
	"target/verbs_conn.c": 2,
	"target/verbs_key.c":  1,
	"wire/verbs_queue.h":  2,
}

var testHook = regexp.MustCompile(`\bMUTANT(_\w+)?\b|\bFARLOG_FAULT\b`)

// The core is what is shipped: no mutants and no hooks of tests in it.
func TestMutants_CoreHasNoTestHooks(t *testing.T) {
	seen := 0
	for _, f := range tracked(t, ".c", ".h") {
		if _, isCore := roomOfCore(f.path); !isCore {
			continue
		}
		seen++
		path := strings.TrimPrefix(f.path, coreFolder)
		switch count := len(testHook.FindAll(f.content, -1)); {
		case count > testHooks[path]:
			t.Errorf("%s has %d hooks of tests, and may have %d: let the test stand before a function of the core "+
				"(--wrap in rdma/test/meson.build), or make it a patch in rdma/test/mutants",
				f.path, count, testHooks[path])
		case count < testHooks[path]:
			t.Errorf("%s has %d hooks of tests: lower its %d in testHooks", f.path, count, testHooks[path])
		}
	}
	if seen == 0 {
		t.Fatal("no file of the core is looked at: the rule has lost its subject")
	}
}
