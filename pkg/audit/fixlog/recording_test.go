package fixlog

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/farlog/farlog/pkg/audit/fix"
)

const (
	recordingPath = "../../../testdata/fix/orders.fixlog.zst"
	readmePath    = "../../../testdata/fix/README.md"
	tablesBegin   = "<!-- tables: begin -->\n"
	tablesEnd     = "<!-- tables: end -->\n"
	recordingMax  = 4 << 20 // bytes of the committed file
)

var update = flag.Bool("update", false, "rewrite the tables of testdata/fix/README.md from the recording")

// loadOnce is shared by the tests, which do not change what it gives.
var loadOnce = sync.OnceValues(func() ([]Entry, error) { return Load(recordingPath) })

func loadRecording(t testing.TB) []Entry {
	t.Helper()
	entries, err := loadOnce()
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

func tallyOf(t testing.TB, entries []Entry) *Tally {
	t.Helper()
	tally := NewTally()
	for i, entry := range entries {
		if err := tally.Add(entry); err != nil {
			t.Fatalf("message %d: %v", i+1, err)
		}
	}
	return tally
}

func TestRecording_HoldsEveryOrderStatusAndOnlyValidMessages(t *testing.T) {
	tally := tallyOf(t, loadRecording(t))
	for _, status := range fix.Statuses() {
		if tally.ByStatus[status] == nil {
			t.Errorf("no message has OrdStatus %c (%s)", status, fix.StatusName(status))
		}
	}
	if tally.BadMessage != 0 {
		t.Errorf("%d messages have a wrong body length or check sum", tally.BadMessage)
	}
	info, err := os.Stat(recordingPath)
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > recordingMax {
		t.Errorf("recording takes %d bytes, expected at most %d", info.Size(), recordingMax)
	}
}

func TestRecording_TimesNeverGoBack(t *testing.T) {
	lastNS := int64(0)
	for i, entry := range loadRecording(t) {
		if entry.TimestampNS < lastNS {
			t.Fatalf("message %d: time %d is before %d", i+1, entry.TimestampNS, lastNS)
		}
		lastNS = entry.TimestampNS
	}
}

func TestReadme_TablesMatchTheRecording(t *testing.T) {
	tables := tallyOf(t, loadRecording(t)).Markdown()
	readme, err := os.ReadFile(readmePath)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, hasBegin := strings.Cut(string(readme), tablesBegin)
	committed, after, hasEnd := strings.Cut(rest, tablesEnd)
	if !hasBegin || !hasEnd {
		t.Fatalf("%s has no %q … %q", readmePath, tablesBegin, tablesEnd)
	}
	if committed == tables {
		return
	}
	if !*update {
		t.Fatalf("tables of %s are not those of the recording: run go test ./pkg/audit/fixlog -update", readmePath)
	}
	if err := os.WriteFile(readmePath, []byte(before+tablesBegin+tables+tablesEnd+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestReader_RefusesABrokenLine(t *testing.T) {
	for _, test := range []struct{ name, line, want string }{
		{"empty", "\n", "expected a time, a direction and a message"},
		{"no message", "12 I \n", "expected a time, a direction and a message"},
		{"time not a number", "x1 I 8=FIX\n", `time "x1": expected nanoseconds since 1970`},
		{"time negative", "-1 I 8=FIX\n", `time "-1": expected nanoseconds since 1970`},
		{"unknown direction", "12 Q 8=FIX\n", `direction "Q": expected I or O`},
		{"line too long", "12 I " + strings.Repeat("x", lineLenMax) + "\n", "token too long"},
	} {
		t.Run(test.name, func(t *testing.T) {
			reader, err := NewReader(strings.NewReader("11 O 8=FIX\n" + test.line))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := reader.Next(); err != nil {
				t.Fatal(err)
			}
			if _, err := reader.Next(); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("got %v, expected an error with %q", err, test.want)
			}
		})
	}
}

func TestReader_RefusesATruncatedRecording(t *testing.T) {
	whole, err := os.ReadFile(recordingPath)
	if err != nil {
		t.Fatal(err)
	}
	reader, err := NewReader(bytes.NewReader(whole[:len(whole)/2]))
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	for err == nil {
		_, err = reader.Next()
	}
	if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatalf("got %v, expected an error that tells a cut from an end", err)
	}
}
