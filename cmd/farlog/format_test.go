package main

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/store"
	"github.com/farlog/farlog/pkg/store/storetest"
)

// What an agent, or somebody who was refused, may send as a name or an error.
const hostile = "x\n2026-01-02T03:04:05Z  spiffe://farlog/farlog/admin/alice  Restore  -  OK" +
	"\t\x1b[31m\x1b]0;\a\u009b\u202e\u2028"

// A caller without a role is recorded with the name that he gave. It forges no audit event in the table, and the JSON
// has it as it was.
func TestAudit_NamesForgeNoRow(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	opened, err := store.Open(dir, store.Options{Create: true, SegmentBytes: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	ring := storetest.NewRing("farlog/audit", 1)
	raw, err := json.Marshal(auditEvent{
		ID: "1", Time: time.Now().UTC(), Who: "spiffe://farlog/farlog/host/mallory",
		What: "CreateStream", Stream: hostile, Outcome: "PERMISSIONDENIED", Changes: []string{hostile},
	})
	if err != nil {
		t.Fatal(err)
	}
	ring.AppendPayload(raw)
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
	table, _, code := runFarlog(t, "audit", dir)
	if code != exitOK || strings.Count(table, "\n") != 2 ||
		strings.IndexFunc(strings.ReplaceAll(table, "\n", ""), isUnseen) >= 0 {
		t.Errorf("exit code %d, expected the head and one row, nothing of which a terminal takes for anything but "+
			"text:\n%q", code, table)
	}
	text, _, _ := runFarlog(t, "audit", dir, "--output", "json")
	var got auditEvent
	if err := json.Unmarshal([]byte(text), &got); err != nil || got.Stream != hostile {
		t.Errorf("%v, stream %q, expected what was given", err, got.Stream)
	}
}

// What agents tell stays in its cell: of hosts and streams, in tables, pictures and lines.
func TestTables_AgentsWriteNothingToTheTerminal(t *testing.T) {
	var table, screen bytes.Buffer
	if err := printHosts(&environment{stdout: &table}, []hostRow{{
		Host:  hostile,
		Paths: []pathRow{{Target: hostile, Listener: hostile, Error: hostile}},
	}}); err != nil {
		t.Fatal(err)
	}
	row := statusRow{
		Stream: "a", State: "error", Reason: hostile, Writer: hostile, Drain: hostile,
		Attestation: hostile,
	}
	row.render(&screen, true)
	pictured := &top{env: &environment{control: "c"}, rows: []statusRow{row}}
	for name, text := range map[string]string{
		"hosts": table.String(), "status": screen.String(),
		"drift": driftText(&api.Drift{Kind: "stream", Name: "a", Reason: hostile}),
		"error": oneLine(usageErrorf("%s", hostile)),
		"top":   strings.Join(pictured.lines(screenSize{columns: 300, rows: 10}, false), "\n"),
		"ring": ringText(&api.StreamStatus{
			Reason: hostile,
			Stream: &api.Stream{Spec: &api.StreamSpec{Members: 1}},
		}),
	} {
		if strings.IndexFunc(strings.ReplaceAll(text, "\n", ""), isUnseen) >= 0 {
			t.Errorf("%s: %q", name, text)
		}
		for _, line := range strings.Split(text, "\n") {
			if strings.HasPrefix(line, "2026-01-02") {
				t.Errorf("%s: a line of its own: %q", name, line)
			}
		}
	}
}

// A row of an epoch's member has its own cells behind those of the stream, and a holder's name is one of them.
func TestPrintEpochs_Wide(t *testing.T) {
	var table bytes.Buffer
	one := &api.EpochInfo{
		Stream: "desk7/orders", Granted: 7, Holder: &api.Holder{Host: "h", Pid: 5, Name: hostile},
		Members: []*api.MemberEpoch{{Target: "t1", LastEpoch: 6}, {Member: 1, Target: "t2"}},
	}
	all := &api.ListEpochsResponse{Epochs: []*api.EpochInfo{one}}
	if err := printEpochs(&environment{stdout: &table, output: outputWide}, all); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(table.String()), "\n")
	if len(lines) != 3 || strings.Index(lines[0], "TARGET ") != strings.Index(lines[1], "t1 ") ||
		strings.Index(lines[0], "TARGET ") != strings.Index(lines[2], "t2 ") {
		t.Errorf("expected the targets below their head:\n%q", lines)
	}
}

// Text that can be seen is shown as it is.
func TestPlain(t *testing.T) {
	if got := plain("é ring \"a\\b\" → 5 µs"); got != "é ring \"a\\b\" → 5 µs" {
		t.Errorf("%q", got)
	}
	rapid.Check(t, func(rt *rapid.T) {
		text := rapid.String().Draw(rt, "text")
		if got := plain(text); strings.IndexFunc(got, isUnseen) >= 0 || !utf8.ValidString(got) || plain(got) != got {
			rt.Fatalf("%q: %q", text, got)
		}
	})
}
