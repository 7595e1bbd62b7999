package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farlog/farlog/pkg/store"
	"github.com/farlog/farlog/pkg/store/storetest"
)

// removeSegments removes the first segments of storeOrders by a rule.
func removeSegments(t *testing.T, dir string, before uint64) *store.Base {
	t.Helper()
	opened, err := store.Open(dir, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	base, err := opened.RemoveBefore("desk7/orders", store.Removal{Before: before, Policy: "a rule of 30 days"})
	if err != nil {
		t.Fatal(err)
	}
	return base
}

// Who asks a reader for what retention has removed is told so, by the base that it begins with; who asks for what is
// there is not bothered.
func TestReaders_SayWhatWasRemoved(t *testing.T) {
	dir, ring := storeOrders(t, 500)
	storeMoreOrders(t, dir, 40)
	if _, talk, code := runFarlog(t, "merge", dir, "--final"); code != exitOK {
		t.Fatal(talk)
	}
	for _, arguments := range [][]string{
		{"dump", dir},
		{"replay", dir, "--stream", "desk7/orders", "--speed", "max"},
		{"replay", dir, "--merged", "--speed", "max"},
	} {
		if _, talk, code := runFarlog(t, arguments...); code != exitOK || strings.Contains(talk, "removed") {
			t.Fatalf("%v: exit code %d, stderr %q, and nothing was removed", arguments, code, talk)
		}
	}
	base := removeSegments(t, dir, 3)
	want := fmt.Sprintf("farlog: stream desk7/orders begins at segment 3, behind lsn %d of generation 1: before it, 2 "+
		"segments with %d records, the newest of ", base.LastLSN, base.RemovedRecords)
	last, first := fmt.Sprint(base.MaxTimestampNS), fmt.Sprint(base.MaxTimestampNS+1)
	for _, test := range []struct {
		arguments []string
		isSaid    bool
		code      int
	}{
		{[]string{"dump", dir}, true, exitOK},
		{[]string{"dump", dir, "--from", fmt.Sprint(base.LastLSN)}, true, exitOK},
		{[]string{"dump", dir, "--from", fmt.Sprint(base.NextLSN)}, false, exitOK},
		{[]string{"dump", dir, "--stream", "desk8/orders"}, false, exitOK},
		{[]string{"replay", dir, "--stream", "desk7/orders", "--speed", "max"}, true, exitOK},
		{[]string{"replay", dir, "--stream", "desk7/orders", "--speed", "max", "--from", last}, true, exitOK},
		{[]string{"replay", dir, "--stream", "desk7/orders", "--speed", "max", "--from", first}, false, exitOK},
		{[]string{"replay", dir, "--merged", "--speed", "max"}, true, exitOK},
		{[]string{"replay", dir, "--merged", "--speed", "max", "--from", first}, false, exitOK},
		{[]string{"order", "A", "--store", dir, "--stream", "desk7/orders"}, true, exitFailure},
		{[]string{"order", "A", "--store", dir, "--stream", "desk8/orders"}, false, exitFailure},
	} {
		_, talk, code := runFarlog(t, test.arguments...)
		isSaid := strings.Contains(talk, want) && strings.Contains(talk, `by "a rule of 30 days", without an archive`)
		if code != test.code || isSaid != test.isSaid {
			t.Errorf("%v: exit code %d, stderr %q; expected %d and that what was removed is said: %v", test.arguments,
				code, talk, test.code, test.isSaid)
		}
	}
	if lines, _, _ := runFarlog(t, "dump", dir, "--stream", "desk7/orders"); strings.Contains(lines, "order 0\n") ||
		!strings.Contains(lines, fmt.Sprintf("order %d\n", len(ring.Records)-2)) {
		t.Error("expected that the records before the base are gone and the others there")
	}
}

// Who asks for audit events that retention has removed is told so as well.
func TestAudit_SaysWhatWasRemoved(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	opened, err := store.Open(dir, store.Options{Create: true, SegmentBytes: 16 << 10})
	if err != nil {
		t.Fatal(err)
	}
	ring := storetest.NewRing("farlog/audit", 1)
	for i := range 400 {
		ring.AppendPayload(fmt.Appendf(nil, `{"id":"%d","time":"2026-01-02T03:04:05Z","what":"CreateStream"}`, i))
	}
	appender, err := opened.OpenStream(ring.Source)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range ring.Records {
		if _, _, err := appender.Append(one.Raw); err != nil {
			t.Fatal(err)
		}
	}
	if err := appender.Close(); err != nil {
		t.Fatal(err)
	}
	const note = "farlog: stream farlog/audit begins at segment 2"
	if _, talk, code := runFarlog(t, "audit", dir); code != exitOK || strings.Contains(talk, "removed") {
		t.Fatalf("exit code %d, stderr %q, and nothing was removed", code, talk)
	}
	base, err := opened.RemoveBefore("farlog/audit", store.Removal{Before: 2, Policy: "a rule of 30 days"})
	if err != nil {
		t.Fatal(err)
	}
	last, first := fmt.Sprint(base.MaxTimestampNS), fmt.Sprint(base.MaxTimestampNS+1)
	for _, test := range []struct {
		arguments []string
		isSaid    bool
	}{
		{nil, true},
		{[]string{"--from", last}, true},
		{[]string{"--from", first}, false},
		{[]string{"--output", "json"}, true},
	} {
		text, talk, code := runFarlog(t, append([]string{"audit", dir}, test.arguments...)...)
		if code != exitOK || strings.Contains(talk, note) != test.isSaid ||
			strings.Contains(text, "begins at segment") {
			t.Errorf(
				"%v: exit code %d, stderr %q; expected that what was removed is said there: %v",
				test.arguments,
				code,
				talk,
				test.isSaid,
			)
		}
	}
}
