package store_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestVerify_EndIsNotProved: the last segments of a store were removed with their manifests. What is left is whole, and
// verifying does not say more than that: it names the lsn that the ring's head must not be above, and no report says
// that the end is proved.
func TestVerify_EndIsNotProved(t *testing.T) {
	f := newFixture(t)
	f.fill(120)
	whole := f.verify()
	names, err := f.fs.ReadDir(streamPath)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasPrefix(name, "0") && !strings.HasPrefix(name, "0000000001") {
			if err := f.fs.Remove(streamPath + name); err != nil {
				t.Fatal(err)
			}
		}
	}
	report := f.verify()
	next := report.Generations[0].NextLSN
	if report.Failure != nil || next == 0 || next >= whole.Generations[0].NextLSN {
		t.Fatalf("%s, expected a sound beginning of %s", report.Statement(), whole.Statement())
	}
	for _, one := range []string{report.Statement(), whole.Statement()} {
		if !strings.Contains(one, "not proved: that the stream ends at lsn ") {
			t.Errorf("%q says nothing of the end", one)
		}
	}
	if want := fmt.Sprintf("ends at lsn %d.", next); !strings.Contains(report.Statement(), want) ||
		report.IsEndProved || whole.IsEndProved {
		t.Errorf("%q (is proved: %v), expected %q", report.Statement(), report.IsEndProved, want)
	}
}
