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

// testHook is what a test would ask or say in the core: whether it is compiled for tests, a mutant, a library of tests.
// Conditions on FARLOG_ macros are for what the build has found out about the system, and for include guards.
var (
	testHook = regexp.MustCompile(
		`(?m)\bMUTANT(_\w+)?\b|(\b|-D)FARLOG_(FAULT|TEST\w*)\b|\bcmocka\b|\b__(wrap|real)_\w+|` +
			`^[ \t]*#[ \t]*(el)?if.*\bFARLOG_\w+.*$`,
	)
	isGuardOrFound = regexp.MustCompile(`^[ \t]*#[ \t]*(ifndef FARLOG_\w+_H|ifdef FARLOG_HAVE_\w+)\b`)
)

// hooksIn lists the lines by which a file of the core would serve tests.
func hooksIn(content []byte) []string {
	var found []string
	for _, hit := range testHook.FindAll(content, -1) {
		if !isGuardOrFound.Match(hit) {
			found = append(found, string(hit))
		}
	}
	return found
}

// The core is what is shipped: no mutants and no hooks of tests in it.
func TestMutants_CoreHasNoTestHooks(t *testing.T) {
	seen := 0
	for _, f := range tracked(t, ".c", ".h", ".go") {
		if _, isCore := roomOfCore(f.path); !isCore {
			continue
		}
		seen++
		for _, hook := range hooksIn(f.content) {
			t.Errorf("%s says %q: what a test needs comes in by a table of operations, a parameter, or --wrap of a "+
				"function of the core (rdma/test/meson.build); a fault to be found is a patch in rdma/test/mutants",
				f.path, hook)
		}
	}
	if seen == 0 {
		t.Fatal("no file of the core is looked at: the rule has lost its subject")
	}
}

func TestMutants_HooksAreSeen(t *testing.T) {
	for line, want := range map[string]int{
		"#ifdef FARLOG_FAULT":                            1,
		"#if defined(FARLOG_FAST) && X":                  1,
		"  # ifndef FARLOG_TWICE":                        1,
		"#elif FARLOG_LEVEL > 2":                         1,
		"#cgo farlog_fault CFLAGS: -DFARLOG_FAULT":       1,
		"if (MUTANT_LATE)":                               1,
		"int __wrap_clock_poll(void);":                   1,
		"#ifndef FARLOG_REGION_H":                        0,
		"#ifdef FARLOG_HAVE_WR_FLUSH /* of the build */": 0,
		"#define FARLOG_LEVEL 3":                         0,
	} {
		if got := len(hooksIn([]byte(line + "\n"))); got != want {
			t.Errorf("%q: %d hooks found, expected %d", line, got, want)
		}
	}
}
