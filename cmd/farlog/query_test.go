package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/farlog/farlog/pkg/query"
	"github.com/farlog/farlog/pkg/record"
	"github.com/farlog/farlog/pkg/store"
	"github.com/farlog/farlog/pkg/store/storetest"
)

// storeMixed makes a store of three streams with classes, keys, any bytes, heartbeats, and records that a later epoch
// replaced.
func storeMixed(t *testing.T) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "store")
	opened, err := store.Open(dir, store.Options{Create: true, SegmentBytes: store.SegmentBytesMin})
	if err != nil {
		t.Fatal(err)
	}
	for seed, stream := range []string{"desk7/orders", "desk7/trades", "desk8/orders"} {
		ring := storetest.NewRing(stream, uint64(seed))
		ring.Append(150, 300)
		appender, err := opened.OpenStream(ring.Source)
		if err != nil {
			t.Fatal(err)
		}
		appendAll(t, appender, ring.Records)
		from := len(ring.Records) - 20
		ring.OpenEpochAt(ring.Records[from].LSN)
		ring.Append(100, 300)
		ring.AppendPayload([]byte("8=FIX.4.4\x019=5\x0135=8\x0110=000\x01"))
		appendAll(t, appender, ring.Records[from:])
		if err := appender.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func appendAll(t *testing.T, appender *store.Appender, records []storetest.Record) {
	t.Helper()
	for _, rec := range records {
		if _, _, err := appender.Append(rec.Raw); err != nil {
			t.Fatal(err)
		}
	}
	if err := appender.Sync(); err != nil {
		t.Fatal(err)
	}
}

// queryLine is a row of farlog query -o json, and as much of a line of farlog dump.
type queryLine struct{ dumpLine }

func readLines(t *testing.T, text string) (lines []queryLine) {
	t.Helper()
	for line := range strings.Lines(text) {
		var one queryLine
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		lines = append(lines, one)
	}
	return lines
}

func (l *queryLine) bytes(text string, raw []byte) []byte {
	if raw != nil {
		return raw
	}
	return []byte(text)
}

// isSame compares what both commands print.
func (l *queryLine) isSame(other *queryLine) bool {
	isSameErr := (l.ClockErrNS == nil) == (other.ClockErrNS == nil) &&
		(l.ClockErrNS == nil || *l.ClockErrNS == *other.ClockErrNS)
	return l.Stream == other.Stream && l.LSN == other.LSN && l.Seq == other.Seq && l.Epoch == other.Epoch &&
		l.Time == other.Time && l.TimestampNS == other.TimestampNS && isSameErr && l.Class == other.Class &&
		l.Len == other.Len && bytes.Equal(l.bytes(l.Key, l.KeyRaw), other.bytes(other.Key, other.KeyRaw)) &&
		bytes.Equal(l.bytes(l.Payload, l.PayloadRaw), other.bytes(other.Payload, other.PayloadRaw))
}

// What a query finds is what a person finds who reads all that farlog dump prints: record by record, byte by byte.
func TestQuery_SameAsDumpFilteredByHand(t *testing.T) {
	dir := storeMixed(t)
	text, talk, code := runFarlog(t, "dump", dir, "-o", "json")
	if code != exitOK {
		t.Fatal(talk)
	}
	all := slices.DeleteFunc(readLines(t, text), func(one queryLine) bool {
		return one.IsSuperseded || one.Flags != record.Flags(0).String()
	})
	middle := all[len(all)/2]
	at, until := fmt.Sprint(middle.TimestampNS), fmt.Sprint(middle.TimestampNS+20_000)
	for name, test := range map[string]struct {
		arguments []string
		isWanted  func(one *queryLine) bool
	}{
		"all": {nil, func(*queryLine) bool { return true }},
		"a pattern": {[]string{"--stream", "desk7/**"}, func(one *queryLine) bool {
			return strings.HasPrefix(one.Stream, "desk7/")
		}},
		"two streams": {[]string{"--stream", "desk8/orders", "--stream", "desk7/t*"}, func(one *queryLine) bool {
			return one.Stream != "desk7/orders"
		}},
		"a time": {[]string{"--from", at, "--to", until}, func(one *queryLine) bool {
			return one.TimestampNS >= middle.TimestampNS && one.TimestampNS < middle.TimestampNS+20_000
		}},
		"from a time": {[]string{"--from", middle.Time}, func(one *queryLine) bool {
			return one.TimestampNS >= middle.TimestampNS
		}},
		"classes": {[]string{"--class", "1,3"}, func(one *queryLine) bool { return one.Class == 1 || one.Class == 3 }},
		"keys": {[]string{"--key", middle.Key, "--key", "ORD-17"}, func(one *queryLine) bool {
			return one.Key == middle.Key || one.Key == "ORD-17"
		}},
		"a filter": {[]string{"--filter", "len > 100 && class == 2 && key.endsWith('7')"}, func(one *queryLine) bool {
			return one.Len > 100 && one.Class == 2 && strings.HasSuffix(one.Key, "7")
		}},
		"FIX": {[]string{"--filter", "'35' in fix && fix['35'] == '8'"}, func(one *queryLine) bool {
			return strings.HasPrefix(one.Payload, "8=FIX")
		}},
		"all together": {
			[]string{"--stream", "desk7/*", "--to", at, "--class", "2", "--filter", "seq % 2 == 0"},
			func(one *queryLine) bool {
				return strings.HasPrefix(one.Stream, "desk7/") && one.TimestampNS < middle.TimestampNS &&
					one.Class == 2 && one.Seq%2 == 0
			},
		},
		"nothing": {[]string{"--class", "9"}, func(*queryLine) bool { return false }},
	} {
		var want []queryLine
		for _, one := range all {
			if test.isWanted(&one) {
				want = append(want, one)
			}
		}
		if (len(want) == 0) != (name == "nothing") {
			t.Fatalf("%s: the store has %d such records", name, len(want))
		}
		arguments := append([]string{"query", dir, "-o", "json"}, test.arguments...)
		expectLines(t, name, want, arguments)
		slices.SortStableFunc(
			want,
			func(a, b queryLine) int { return int(int64(a.TimestampNS) - int64(b.TimestampNS)) },
		)
		expectLines(t, name+", merged", want, append(arguments, "--merged"))
	}
}

func expectLines(t *testing.T, name string, want []queryLine, arguments []string) {
	t.Helper()
	text, talk, code := runFarlog(t, arguments...)
	got := readLines(t, text)
	if code != exitOK || len(got) != len(want) ||
		!strings.HasPrefix(talk, counted(uint64(len(want)), "record", "records")+", of ") {
		t.Fatalf("%s: exit code %d, %d rows, stderr %q; expected %d", name, code, len(got), talk, len(want))
	}
	for i := range want {
		if !got[i].isSame(&want[i]) {
			t.Fatalf("%s: row %d is %+v, expected %+v", name, i, got[i], want[i])
		}
	}
}

// Every wrong word is one line that names it and what was expected.
func TestQuery_BadInputIsOneLine(t *testing.T) {
	dir := storeMixed(t)
	for _, c := range []struct {
		arguments []string
		code      int
		want      string
	}{
		{nil, exitUsage, "expected the directories"},
		{[]string{"/nonexistent"}, exitFailure, "/nonexistent: no such file"},
		{[]string{goldenRing}, exitFailure, "a ring: expected a store"},
		{[]string{dir, "--stream", "desk9/**"}, exitFailure, `"desk9/**": no stream matches: expected a name, or a ` +
			`pattern such as desk7/**, of desk7/orders, desk7/trades, desk8/orders`},
		{[]string{dir, "--stream", "desk7/**", "--stream", "desk7/none"}, exitFailure, `"desk7/none"`},
		{[]string{dir, "--stream", "["}, exitUsage, `"["`},
		{[]string{dir, "--from", "noon"}, exitUsage, `--from "noon"`},
		{[]string{dir, "--to", "+1h"}, exitUsage, `--to "+1h"`},
		{[]string{dir, "--from", "2", "--to", "1"}, exitUsage, "earlier"},
		{[]string{dir, "--from", "2500-01-01T00:00:00Z", "--to", "2400-01-01T00:00:00Z"}, exitUsage, "earlier"},
		{[]string{dir, "--class", "65536"}, exitUsage, "65536"},
		{[]string{dir, "--class", "new"}, exitUsage, "new"},
		{[]string{dir, "--fields", "lsn,price"}, exitUsage, `"price": expected some of store, stream`},
		{[]string{dir, "--filter", "class = 3"}, exitUsage, `"class = 3": line 1, column 7: `},
		{[]string{dir, "--filter", "class"}, exitUsage, "gives int, expected bool"},
		{[]string{dir, "-o", "xml"}, exitUsage, `"xml": expected table, json, csv or parquet`},
		{[]string{dir, "--read-limit", "4KiB"}, exitFailure, "--read-limit"},
	} {
		stdout, stderr, code := runFarlog(t, append([]string{"query"}, c.arguments...)...)
		if code != c.code || !strings.Contains(stderr, c.want) || strings.Count(stderr, "\n") != 1 || stdout != "" {
			t.Errorf("%v: exit code %d, stderr %q, stdout %q; expected %d and %q", c.arguments, code, stderr, stdout,
				c.code, c.want)
		}
	}
	_, stderr, code := runFarlog(t, "query", dir, "--filter", "fix['35'] == '8'")
	if code != exitFailure || !strings.Contains(stderr, "stream desk7/orders, lsn ") ||
		!strings.Contains(stderr, "no such key: 35") {
		t.Errorf("a filter that fails at a record: exit code %d, stderr %q", code, stderr)
	}
}

// Records have times from 1970 to 2262: a time before or behind them is none of another record.
func TestQuery_TimesBeforeAndBehindAllRecords(t *testing.T) {
	dir := storeMixed(t)
	text, _, code := runFarlog(t, "query", dir, "-o", "json")
	all := strings.Count(text, "\n")
	if code != exitOK || all == 0 {
		t.Fatalf("exit code %d, %d records", code, all)
	}
	for _, c := range []struct {
		arguments []string
		want      int
	}{
		{[]string{"--to", "9999-12-31T23:59:59Z"}, all},
		{[]string{"--to", "2300-01-01T00:00:00Z"}, all},
		{[]string{"--to", "2262-01-01T00:00:00Z"}, all},
		{[]string{"--from", "1960-01-01T00:00:00Z", "--to", "2600-01-01T00:00:00Z"}, all},
		{[]string{"--from", "0001-01-01T00:00:00Z"}, all},
		{[]string{"--from", "1650-01-01T00:00:00Z"}, all},
		{[]string{"--to", "1650-01-01T00:00:00Z"}, 0},
		{[]string{"--to", "0001-01-01T00:00:00Z"}, 0},
		{[]string{"--from", "2300-01-01T00:00:00Z"}, 0},
		{[]string{"--from", "2300-01-01T00:00:00Z", "--to", "2900-01-01T00:00:00Z"}, 0},
		{[]string{"--from", "9999-12-31T23:59:59Z"}, 0},
	} {
		text, talk, code := runFarlog(t, append([]string{"query", dir, "-o", "json"}, c.arguments...)...)
		if got := strings.Count(text, "\n"); code != exitOK || got != c.want {
			t.Errorf("%v: exit code %d, %d records, expected %d: %s", c.arguments, code, got, c.want, talk)
		}
	}
}

// Damage where a query reads is a failure that names the place, in each format, and not fewer rows; elsewhere it is
// nothing to a query.
func TestQuery_DamageIsAFailure(t *testing.T) {
	dir, ring := storeOrders(t, 500)
	name := streamFile(dir, "0000000003.seg")
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	raw[4096+60] ^= 4
	if err := errors.Join(os.Chmod(name, 0o644), os.WriteFile(name, raw, 0o644)); err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"table", "json", "csv", "parquet"} {
		stdout, stderr, code := runFarlog(t, "query", dir, "-o", format)
		if code != exitFailure || !strings.Contains(stderr, "0000000003.seg") ||
			strings.Contains(stderr, " records, of ") {
			t.Errorf("%s: exit code %d, stderr %q", format, code, stderr)
		}
		if isWhole := strings.HasSuffix(stdout, "PAR1"); isWhole {
			t.Errorf("%s: what was written looks like a whole file", format)
		}
	}
	last := ring.Records[len(ring.Records)-1].TimestampNS
	stdout, stderr, code := runFarlog(t, "query", dir, "-o", "json", "--from", fmt.Sprint(last))
	if code != exitOK || strings.Count(stdout, "\n") != 1 {
		t.Errorf("behind the damage: exit code %d, stderr %q, %q", code, stderr, stdout)
	}
}

// What retention has removed of the time is said, and so are GAP records in it.
func TestQuery_SaysWhatIsMissing(t *testing.T) {
	dir, ring := storeOrders(t, 500)
	opened, err := store.Open(dir, store.Options{SegmentBytes: store.SegmentBytesMin})
	if err != nil {
		t.Fatal(err)
	}
	before := len(ring.Records)
	ring.AppendGap("no such checksum")
	ring.AppendPayload([]byte("behind the gap"))
	appender, err := opened.OpenStream(ring.Source)
	if err != nil {
		t.Fatal(err)
	}
	appendAll(t, appender, ring.Records[before:])
	if err := appender.Close(); err != nil {
		t.Fatal(err)
	}
	_, stderr, code := runFarlog(t, "query", dir)
	if code != exitOK || strings.Contains(stderr, "removed") ||
		!strings.Contains(stderr, "has 1 GAP record for what may be of the time, the first at lsn ") ||
		!strings.Contains(stderr, "no such checksum") {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
	base := removeSegments(t, dir, 3)
	for from, isSaid := range map[uint64]bool{0: true, base.MaxTimestampNS: true, base.MaxTimestampNS + 1: false} {
		_, stderr, code := runFarlog(t, "query", dir, "--from", fmt.Sprint(from))
		if code != exitOK || strings.Contains(stderr, "begins at segment 3") != isSaid {
			t.Errorf("from %d: exit code %d, stderr %q, expected removed ones: %v", from, code, stderr, isSaid)
		}
	}
}

// A table is no wider than the terminal, and what is not a terminal gets all of it.
func TestQueryTable_Width(t *testing.T) {
	fields, err := query.Fields([]string{"time", "stream", "lsn", "key", "payload"})
	if err != nil {
		t.Fatal(err)
	}
	for _, width := range []int{0, 20, 80, 200} {
		var out bytes.Buffer
		table := newQueryTable(&out, fields, width)
		for i := range 3 * queryTableSample {
			row := &query.Row{Stream: "desk7/orders"}
			row.TimestampNS, row.LSN = uint64(time.Hour)*uint64(i), uint64(i)<<20
			row.Key = bytes.Repeat([]byte("k"), i)
			row.Payload = append([]byte("a\nb\x1b[2J\x01é"), bytes.Repeat([]byte("p"), i)...)
			if err := table.Write(row); err != nil {
				t.Fatal(err)
			}
		}
		if err := table.Close(); err != nil {
			t.Fatal(err)
		}
		if lines := strings.Count(out.String(), "\n"); lines != 3*queryTableSample+1 {
			t.Errorf("width %d: %d lines", width, lines)
		}
		for line := range strings.Lines(out.String()) {
			if columns := utf8.RuneCountInString(line) - 1; width > 0 && columns > width ||
				strings.Contains(line, "\x1b") {
				t.Errorf("width %d: line of %d columns: %q", width, columns, line)
			}
		}
		if width == 0 && !strings.Contains(out.String(), strings.Repeat("k", 500)) {
			t.Error("a key was cut where nobody's terminal is")
		}
	}
}
