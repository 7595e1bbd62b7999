package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/store"
	"github.com/farlog/farlog/pkg/store/storetest"
)

const (
	goldenRing   = "../../rdma/test/golden/ring_small.bin"
	goldenBlocks = "../../rdma/test/golden/ring_blocks.bin" // records packed into LBAs
)

// storeOrders makes a closed store with `count` records "order 0", "order 1" … in a few sealed segments.
func storeOrders(t *testing.T, count int) (dir string, ring *storetest.Ring) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "store")
	opened, err := store.Open(dir, store.Options{Create: true, SegmentBytes: 16 << 10})
	if err != nil {
		t.Fatal(err)
	}
	ring = storetest.NewRing("desk7/orders", 1)
	for i := range count {
		ring.AppendPayload(fmt.Appendf(nil, "order %d", i))
	}
	appender, err := opened.OpenStream(ring.Source)
	if err != nil {
		t.Fatal(err)
	}
	for _, rec := range ring.Records {
		if _, _, err := appender.Append(rec.Raw); err != nil {
			t.Fatal(err)
		}
	}
	if err := appender.Close(); err != nil {
		t.Fatal(err)
	}
	return dir, ring
}

func streamFile(dir, name string) string {
	return filepath.Join(dir, "streams", "desk7%2Forders", name)
}

func TestVerify_Store(t *testing.T) {
	dir, _ := storeOrders(t, 500)
	table, talk, code := runFarlog(t, "verify", dir)
	if code != exitOK || !strings.Contains(table, "nothing is missing, altered or out of order") || talk != "" {
		t.Fatalf("exit code %d, stderr %q, table\n%s", code, talk, table)
	}
	text, _, code := runFarlog(t, "verify", dir, "--stream", "desk7/orders", "--output", "json")
	var result verifyResult
	if err := json.Unmarshal([]byte(text), &result); err != nil || code != exitOK {
		t.Fatalf("exit code %d, %v: %s", code, err, text)
	}
	if s := result.Streams[0]; !result.OK || result.Kind != kindStore || s.Records != 500 || s.Duplicates != 0 ||
		s.SealedSegments < 2 {
		t.Fatalf("%+v", result)
	}
}

func TestVerify_FlippedBitIsNamedWithExitCodeOne(t *testing.T) {
	dir, _ := storeOrders(t, 500)
	name := streamFile(dir, "0000000002.seg")
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	lsn := binary.LittleEndian.Uint64(raw[4096+128+8:]) // of the second record
	raw[4096+128+60] ^= 4
	if err := os.Chmod(name, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, raw, 0o644); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("segment 0000000002.seg, lsn %d, offset %d: CRC does not match", lsn, 4096+128)
	for _, path := range []string{dir, name} {
		table, talk, code := runFarlog(t, "verify", path)
		if code != exitFailure || !strings.Contains(talk, want) || !strings.Contains(table, "FAILED") {
			t.Errorf("exit code %d, stderr %q, expected %q; table\n%s", code, talk, want, table)
		}
		if strings.Count(talk, "\n") != 1 {
			t.Errorf("stderr has more than one line: %q", talk)
		}
	}
}

func TestVerify_SegmentAndRing(t *testing.T) {
	dir, _ := storeOrders(t, 500)
	for _, path := range []string{streamFile(dir, "0000000001.seg"), goldenRing, goldenBlocks} {
		table, talk, code := runFarlog(t, "verify", path)
		if code != exitOK || !strings.Contains(table, "nothing is missing") {
			t.Errorf("%s: exit code %d, stderr %q, table\n%s", path, code, talk, table)
		}
	}
	text, _, _ := runFarlog(t, "verify", goldenRing, "--output", "json")
	var result verifyResult
	if err := json.Unmarshal([]byte(text), &result); err != nil || result.Ring.Records != 5 ||
		result.Ring.TailLSN != 16768 {
		t.Errorf("%v: %s", err, text)
	}
}

func TestDump_StoreSegmentAndRing(t *testing.T) {
	dir, ring := storeOrders(t, 200)
	lines, _, code := runFarlog(t, "dump", dir)
	if code != exitOK || strings.Count(lines, "\n") != len(ring.Records) || !strings.Contains(lines, "order 199\n") {
		t.Errorf("store: exit code %d, %d lines, expected %d", code, strings.Count(lines, "\n"), len(ring.Records))
	}
	if lines, _, _ = runFarlog(t, "dump", streamFile(dir, "0000000001.seg"), "--limit", "3"); strings.Count(lines,
		"\n") != 3 {
		t.Errorf("segment: %s", lines)
	}
	from, to := ring.Records[50].LSN, ring.Records[60].LSN
	lines, _, _ = runFarlog(t, "dump", dir, "--from", fmt.Sprint(from), "--to", fmt.Sprint(to), "--payload", "hex")
	if strings.Count(lines, "\n") != 10 || !strings.Contains(lines, fmt.Sprintf("%x", "order 5")) {
		t.Errorf("range: %s", lines)
	}
	lines, _, _ = runFarlog(t, "dump", goldenRing, "--payload", "none", "--output", "json")
	for line := range strings.Lines(lines) {
		var record dumpLine
		if err := json.Unmarshal([]byte(line), &record); err != nil || record.Payload != "" ||
			record.Stream != "desk7/orders" {
			t.Errorf("ring: %v: %s", err, line)
		}
	}
	if strings.Count(lines, "\n") != 8 {
		t.Errorf("ring: %d lines, expected 8", strings.Count(lines, "\n"))
	}
	lines, _, _ = runFarlog(t, "dump", goldenBlocks, "--output", "json")
	if strings.Count(lines, `"PAD"`) != 5 || strings.Count(lines, "\n") != 13 {
		t.Errorf("ring on blocks: %s", lines)
	}
}

func TestReplay_GivesPayloadsInOrder(t *testing.T) {
	dir, ring := storeOrders(t, 300)
	var want strings.Builder
	for i := range 300 {
		fmt.Fprintf(&want, "order %d\n", i)
	}
	lines, talk, code := runFarlog(t, "replay", dir, "--stream", "desk7/orders", "--speed", "max")
	if code != exitOK || lines != want.String() || !strings.Contains(talk, "replayed 300 records") {
		t.Fatalf("exit code %d, stderr %q, %d bytes", code, talk, len(lines))
	}
	from, to := ring.Records[101].TimestampNS, ring.Records[104].TimestampNS // record 0 is the EPOCH
	for _, bounds := range [][2]string{
		{fmt.Sprint(from), fmt.Sprint(to)},
		{
			time.Unix(0, int64(from)).UTC().Format(time.RFC3339Nano),
			time.Unix(0, int64(to)).UTC().Format(time.RFC3339Nano),
		},
		{fmt.Sprintf("+%dns", from-ring.Records[1].TimestampNS), fmt.Sprintf("+%dns", to-ring.Records[1].TimestampNS)},
	} {
		lines, _, _ = runFarlog(t, "replay", dir, "--stream", "desk7/orders", "--from", bounds[0], "--to", bounds[1],
			"--speed", "10x")
		if lines != "order 100\norder 101\norder 102\n" {
			t.Errorf("from %s to %s: %q", bounds[0], bounds[1], lines)
		}
	}
	framed, _, _ := runFarlog(t, "replay", dir, "--stream", "desk7/orders", "--format", "length-prefixed", "--speed",
		"max",
		"--to", fmt.Sprint(ring.Records[2].TimestampNS))
	if framed != "\x07\x00\x00\x00order 0" {
		t.Errorf("length-prefixed: %q", framed)
	}
}

// TestReplay_KeepsThePace checks the lower bound only: a record never goes out before it is due.
func TestReplay_KeepsThePace(t *testing.T) {
	dir, ring := storeOrders(t, 300)
	span := time.Duration(ring.Records[300].TimestampNS - ring.Records[1].TimestampNS)
	start := time.Now()
	_, _, code := runFarlog(t, "replay", dir, "--stream", "desk7/orders", "--speed", "0.001x")
	if took := time.Since(start); code != exitOK || took < span*900 {
		t.Errorf("exit code %d, took %s, expected at least %s", code, took, span*900)
	}
}

func TestOffline_BadInputIsOneLineAndAnExitCode(t *testing.T) {
	dir, _ := storeOrders(t, 10)
	empty := t.TempDir()
	text := filepath.Join(empty, "notes.txt")
	if err := os.WriteFile(text, []byte("not a store"), 0o644); err != nil {
		t.Fatal(err)
	}
	blank := filepath.Join(empty, "blank.ring")
	if err := os.WriteFile(blank, make([]byte, 1<<16), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		arguments []string
		code      int
		want      string
	}{
		{[]string{"verify"}, exitUsage, "expected"},
		{[]string{"verify", "/nonexistent"}, exitFailure, "/nonexistent: no such file"},
		{[]string{"verify", empty}, exitFailure, "store.json"},
		{[]string{"verify", text}, exitFailure, "expected a store"},
		{[]string{"verify", blank}, exitFailure, "expected a store"},
		{[]string{"verify", dir, "--stream", "desk8"}, exitFailure, `"desk8"`},
		{[]string{"verify", goldenRing, "--stream", "desk8"}, exitUsage, "--stream"},
		{[]string{"verify", dir, "--public-key", text}, exitFailure, "notes.txt"},
		{[]string{"dump", dir, "--payload", "base64"}, exitUsage, "base64"},
		{[]string{"dump", dir, "--from", "9", "--to", "8"}, exitUsage, "--from 9"},
		{[]string{"dump", dir, "--from", "-1"}, exitUsage, "-1"},
		{[]string{"dump", dir, "--stream", "desk8"}, exitFailure, `"desk8"`},
		{[]string{"dump", "../../rdma/test/golden/superblock.bin"}, exitFailure, "512 bytes"},
		{[]string{"replay", dir}, exitUsage, "--stream"},
		{[]string{"replay", dir, "--stream", "desk8"}, exitFailure, `"desk8"`},
		{[]string{"replay", goldenRing, "--stream", "desk7/orders"}, exitFailure, "expected a store"},
		{[]string{"replay", dir, "--stream", "desk7/orders", "--speed", "fast"}, exitUsage, `"fast"`},
		{[]string{"replay", dir, "--stream", "desk7/orders", "--speed", "-1x"}, exitUsage, `"-1x"`},
		{[]string{"replay", dir, "--stream", "desk7/orders", "--speed", "NaNx"}, exitUsage, `"NaNx"`},
		{[]string{"replay", dir, "--stream", "desk7/orders", "--from", "noon"}, exitUsage, `"noon"`},
		{[]string{"replay", dir, "--stream", "desk7/orders", "--from", "+2s", "--to", "+1s"}, exitUsage, "earlier"},
		{[]string{"replay", dir, "--stream", "desk7/orders", "--format", "xml"}, exitUsage, `"xml"`},
	} {
		stdout, stderr, code := runFarlog(t, c.arguments...)
		if code != c.code || !strings.Contains(stderr, c.want) || strings.Count(stderr, "\n") != 1 || stdout != "" {
			t.Errorf("%v: exit code %d, stderr %q, stdout %q; expected %d and %q", c.arguments, code, stderr, stdout,
				c.code, c.want)
		}
	}
}

// FuzzReplayTime gives --from any text: it must never panic, and what it takes must mean the same twice.
func FuzzReplayTime(f *testing.F) {
	for _, text := range []string{
		"", "-15m", "+1h", "1763700000000000000", "2026-11-20T14:30:00Z", "-", "+",
		"99999999999999999999",
	} {
		f.Add(text)
	}
	now := time.Unix(1763700000, 0)
	f.Fuzz(func(t *testing.T, text string) {
		first, err := parseReplayTime(text, now, now)
		again, errAgain := parseReplayTime(text, now, now)
		if (err == nil) != (errAgain == nil) || !first.Equal(again) {
			t.Fatalf("%q: %v, %v and %v, %v", text, first, err, again, errAgain)
		}
		if _, err := parseReplayTime("", now, now); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzText shows any bytes on one line: no control character may reach the terminal.
func FuzzText(f *testing.F) {
	f.Add([]byte("8=FIX.4.4\x0135=D\x01"))
	f.Add([]byte("\x1b[2J\xff\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, char := range string(appendText(nil, raw)) {
			if char < ' ' || char == 0x7f {
				t.Fatalf("%q shows control character %q", raw, char)
			}
		}
	})
}
