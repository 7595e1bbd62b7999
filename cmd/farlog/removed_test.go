package main

import (
	"bytes"
	"fmt"
	"path/filepath"
	"regexp"
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
		{[]string{"replay", dir, "--merged", "--speed", "max", "--format", "json"}, true, exitOK},
		{[]string{"dump", dir, "--output", "json"}, true, exitOK},
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
		{[]string{"--from", "2300-01-01T00:00:00Z"}, false},
		{[]string{"--from", "9999-12-31T23:59:59Z"}, false},
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

// removing is an output that removes segments of the store as soon as something is written.
type removing struct {
	t      *testing.T
	dir    string
	before uint64
}

func (r *removing) Write(text []byte) (int, error) {
	if r.before > 0 {
		removeSegments(r.t, r.dir, r.before)
		r.before = 0
	}
	return len(text), nil
}

// A replay of the merged order passes over what is removed while it runs, and says so in the end; what it has said in
// the beginning it does not say again.
func TestReplay_SaysWhatIsRemovedMeanwhile(t *testing.T) {
	dir, _ := storeOrders(t, 700)
	if _, talk, code := runFarlog(t, "merge", dir, "--final"); code != exitOK {
		t.Fatal(talk)
	}
	removeSegments(t, dir, 2)
	for _, before := range []uint64{0, 3} {
		var talk bytes.Buffer
		env := &environment{stdout: &removing{t, dir, before}, stderr: &talk}
		if err := runReplay(t.Context(), env, dir, replayOptions{isMerged: true, format: replayLines}); err != nil {
			t.Fatal(err)
		}
		isSaid := strings.Contains(talk.String(), "stream desk7/orders begins at segment 3")
		if strings.Count(talk.String(), "begins at segment 2") != 1 || isSaid != (before > 0) {
			t.Errorf("segments before %d are removed meanwhile: stderr %q", before, talk.String())
		}
	}
}

// An order whose first message is there has nothing before the base: nothing is said. One that begins before it, or is
// not there at all, may have.
func TestOrder_SaysWhatWasRemovedOfIt(t *testing.T) {
	dir, ring := storeRecordingIn(t, 3000, store.Options{SegmentBytes: 64 << 10})
	base := removeSegments(t, dir, 3)
	id := regexp.MustCompile(`\x0135=D\x01(?:.*\x01)?11=([^\x01]+)\x01`)
	before, behind, removed := "", "", map[string]bool{}
	for _, one := range ring.Records {
		found := id.FindSubmatch(one.Raw)
		switch {
		case found != nil && one.LSN < base.NextLSN:
			removed[string(found[1])] = true
		case found != nil:
			behind = string(found[1])
		case one.LSN >= base.NextLSN:
			for key := range removed {
				if bytes.Contains(one.Raw, []byte("\x0111="+key+"\x01")) {
					before = key
				}
			}
		}
	}
	if before == "" || behind == "" {
		t.Fatalf("orders %q and %q: expected one that begins before the base, and one behind it", before, behind)
	}
	for key, want := range map[string]struct {
		isSaid bool
		code   int
	}{before: {true, exitOK}, behind: {false, exitOK}, "none": {true, exitFailure}} {
		_, talk, code := runFarlog(t, "order", key, "--store", dir, "--stream", "desk7/orders")
		if code != want.code || strings.Contains(talk, "begins at segment 3") != want.isSaid {
			t.Errorf("order %q: exit code %d, stderr %q; expected %d and that what was removed is said: %v", key, code,
				talk, want.code, want.isSaid)
		}
	}
}
