package mutant

import (
	"strings"
	"testing"
)

const head = "The fault,\nin two lines.\n\n" +
	"test: SEED=3 CRASHES=9 crash --blocks\nfails: FAILED: \n" +
	"test: unit open open__x\nfails: assert_true(a)\n"

const diff = "--- a/f.c\n+++ b/f.c\n@@ -7,3 +7,2 @@\n one\n-two\n\n@@ -20 +20 @@\n-four\n+five\n"

func TestParse_HeadAndDiff(t *testing.T) {
	m, err := Parse("dir/the-fault.patch", head+diff)
	if err != nil {
		t.Fatal(err)
	}
	if m.Name != "the-fault" || m.Fault != "The fault, in two lines." || len(m.Tests) != 2 || len(m.Files) != 1 {
		t.Fatalf("parsed %+v", m)
	}
	test := m.Tests[0]
	if strings.Join(test.Env, " ") != "SEED=3 CRASHES=9" || test.Program != "crash" ||
		strings.Join(test.Args, " ") != "--blocks" || test.Fails != "FAILED: " {
		t.Errorf("the first test is %+v", test)
	}
	got, err := m.Files[0].Apply("zero\none\ntwo\n\nthree\nfour\n")
	if want := "zero\none\n\nthree\nfive\n"; err != nil || got != want {
		t.Errorf("applied: %q, %v; expected %q", got, err, want)
	}
}

func TestApply_LinesThatMovedOrAreThereTwice(t *testing.T) {
	m, err := Parse("x.patch", head+"--- a/f.c\n+++ b/f.c\n@@ @@\n-two\n+three\n")
	if err != nil {
		t.Fatal(err)
	}
	for text, said := range map[string]string{
		"one\n":                   "not in f.c any more",
		"two \n":                  "not in f.c any more",
		"not two\n":               "not in f.c any more",
		"two\ntwo\n":              "more than once",
		"two\none\ntwo\nand\n":    "more than once",
		"one\nbut two\ntwo\nto\n": "",
	} {
		_, err := m.Files[0].Apply(text)
		if (err == nil) != (said == "") || err != nil && !strings.Contains(err.Error(), said) {
			t.Errorf("%q: %v; expected %q", text, err, said)
		}
	}
}

func TestParse_RefusesWhatIsNotWhole(t *testing.T) {
	for text, said := range map[string]string{
		"":                                  "no end",
		"A fault.\n" + diff:                 "names no test",
		head:                                "changes no file",
		"\ntest: unit\n" + diff:             "says nothing of its fault",
		"A fault.\n\ntest: unit\n" + diff:   `expected a line "fails:"`,
		"A fault.\n\nfails: x\n" + diff:     "belongs to no test",
		"A fault.\n\ntest: SEED=1\n" + diff: "names no program",
		"A fault.\n\ntest: unit\nfail: x\n" + diff:            "in the head",
		head + "--- a/f.c\n+++ b/g.c\n@@ -1 +1 @@\n-a\n+b\n":  "g.c",
		head + "--- a/f.c\n+++ b/f.c\n@@ -1 +1 @@\n-a\n*b\n":  "in a hunk",
		head + "--- a/f.c\n+++ b/f.c\n@@ -1 +1 @@\n-a\n+b":    "no end",
		"A fault.\n\ntest: unit\nfails: x\nfails: y\n" + diff: "belongs to no test",
	} {
		if _, err := Parse("x.patch", text); err == nil || !strings.Contains(err.Error(), said) {
			t.Errorf("%q: %v; expected an error with %q", text, err, said)
		}
	}
}
