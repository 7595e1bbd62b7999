package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/farlog/farlog/pkg/audit"
	"github.com/farlog/farlog/pkg/audit/fixlog"
	"github.com/farlog/farlog/pkg/store"
	"github.com/farlog/farlog/pkg/store/storetest"
)

// storeRecording makes a store with the first messages of the recording in it, as a drain stores them.
func storeRecording(t *testing.T, count int) string {
	t.Helper()
	dir, _ := storeRecordingIn(t, count, store.Options{})
	return dir
}

func storeRecordingIn(t *testing.T, count int, options store.Options) (dir string, ring *storetest.Ring) {
	t.Helper()
	recording, err := fixlog.Load("../../testdata/fix/orders.fixlog.zst")
	if err != nil {
		t.Fatal(err)
	}
	dir, options.Create = filepath.Join(t.TempDir(), "store"), true
	opened, err := store.Open(dir, options)
	if err != nil {
		t.Fatal(err)
	}
	ring = storetest.NewRing("desk7/orders", 1)
	for _, entry := range recording[:count] {
		ring.AppendPayload(entry.Message)
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
	if err := appender.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := appender.Close(); err != nil {
		t.Fatal(err)
	}
	return dir, ring
}

func runFarlog(t *testing.T, arguments ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, talk strings.Builder
	code = run(t.Context(), arguments, strings.NewReader(""), &out, &talk)
	return out.String(), talk.String(), code
}

func TestOrder_ShowsTheLifeOfAnOrder(t *testing.T) {
	dir := storeRecording(t, 10_000)
	table, _, code := runFarlog(t, "order", "D7-000056", "--store", dir, "--stream", "desk7/orders")
	if code != exitOK || !strings.Contains(table, "New order") || !strings.Contains(table, "anomalies: none") {
		t.Fatalf("exit code %d, table\n%s", code, table)
	}
	for line := range strings.Lines(table) {
		if width := utf8.RuneCountInString(line) - 1; width > 100 {
			t.Errorf("line of %d columns, expected at most 100: %s", width, line)
		}
	}
	text, _, code := runFarlog(t, "order", "D7-000056", "--store", dir, "--stream", "desk7/orders", "--output", "json")
	var order audit.Order
	if err := json.Unmarshal([]byte(text), &order); err != nil || code != exitOK {
		t.Fatalf("exit code %d, %v: %s", code, err, text)
	}
	if order.ClOrdIDs[0] != "D7-000056" || len(order.Steps) == 0 {
		t.Errorf("order is %+v", order)
	}
}

func TestOrder_BadInputIsOneLine(t *testing.T) {
	dir := storeRecording(t, 100)
	for _, test := range []struct {
		name      string
		arguments []string
		code      int
		want      []string
	}{
		{
			"unknown key",
			[]string{"NOBODY", "--store", dir, "--stream", "desk7/orders"},
			exitFailure,
			[]string{`"NOBODY"`, "ClOrdID"},
		},
		{
			"unknown stream",
			[]string{"A", "--store", dir, "--stream", "desk8/orders"},
			exitFailure,
			[]string{`"desk8/orders"`},
		},
		{
			"no store there",
			[]string{"A", "--store", t.TempDir(), "--stream", "desk7/orders"},
			exitFailure,
			[]string{"without store.json: expected a store"},
		},
		{
			"no directory",
			[]string{"A", "--store", "/nonexistent", "--stream", "desk7/orders"},
			exitFailure,
			[]string{"/nonexistent"},
		},
		{"no key", []string{"--store", dir, "--stream", "desk7/orders"}, exitUsage, []string{"order", "expected"}},
		{"no store flag", []string{"A", "--stream", "desk7/orders"}, exitUsage, []string{"--store", "expected"}},
		{"no stream flag", []string{"A", "--store", dir}, exitUsage, []string{"--stream", "expected"}},
		{"unknown format", []string{"A", "--store", dir, "--stream", "s", "-o", "xml"}, exitUsage, []string{`"xml"`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			stdout, stderr, code := runFarlog(t, append([]string{"order"}, test.arguments...)...)
			if code != test.code || stdout != "" || strings.Count(stderr, "\n") != 1 {
				t.Errorf("exit code %d, stdout %q, stderr %q; expected code %d and one line", code, stdout, stderr,
					test.code)
			}
			for _, want := range test.want {
				if !strings.Contains(stderr, want) {
					t.Errorf("stderr %q lacks %q", stderr, want)
				}
			}
		})
	}
}

// Asking must not leave anything behind in what it reads.
func TestOrder_WritesNothing(t *testing.T) {
	empty := t.TempDir()
	runFarlog(t, "order", "A", "--store", empty, "--stream", "desk7/orders")
	if entries, err := os.ReadDir(empty); err != nil || len(entries) > 0 {
		t.Fatalf("the directory holds %v, %v", entries, err)
	}
}
