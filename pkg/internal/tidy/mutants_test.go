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
