package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farlog/farlog/pkg/store"
	"github.com/farlog/farlog/pkg/store/storetest"
)

// storeMoreOrders adds a second stream whose records lie between those of storeOrders.
func storeMoreOrders(t *testing.T, dir string, count int) {
	t.Helper()
	opened, err := store.Open(dir, store.Options{SegmentBytes: 16 << 10})
	if err != nil {
		t.Fatal(err)
	}
	ring := storetest.NewRing("desk8/orders", 2)
	for i := range count {
		ring.AppendPayload(fmt.Appendf(nil, "other %d", i))
	}
	appender, err := opened.OpenStream(ring.Source)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := appender.Append(storetest.Batch(ring.Records)); err != nil {
		t.Fatal(err)
	}
	if err := appender.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestMerge_ReplayAndVerifyOfAStoreWithTwoStreams(t *testing.T) {
	dir, _ := storeOrders(t, 60)
	if _, talk, code := runFarlog(t, "replay", dir, "--merged", "--speed", "max"); code != exitFailure ||
		!strings.Contains(talk, "has no merged order: farlog merge makes it") {
		t.Fatalf("exit code %d, stderr %q", code, talk)
	}
	storeMoreOrders(t, dir, 40)
	table, talk, code := runFarlog(t, "merge", dir)
	if code != exitOK || !strings.Contains(table, "desk8/orders") || talk != "" {
		t.Fatalf("exit code %d, stderr %q: expected that it waits for the stream that ends first:\n%s", code, talk,
			table)
	}
	if table, talk, code = runFarlog(t, "merge", dir, "--final"); code != exitOK || !strings.Contains(table, " 102 ") {
		t.Fatalf("exit code %d, stderr %q, table\n%s", code, talk, table)
	}
	lines, _, code := runFarlog(t, "replay", dir, "--merged", "--speed", "max", "--format", "json")
	if code != exitOK || strings.Count(lines, "\n") != 100 || !strings.Contains(lines, `"stream":"desk8/orders"`) ||
		!strings.Contains(lines, `"index":2,`) {
		t.Fatalf("exit code %d:\n%s", code, lines)
	}
	if table, _, code = runFarlog(t, "verify", dir); code != exitOK ||
		!strings.Contains(table, "merged order: 102 entries of 2 streams") {
		t.Fatalf("exit code %d:\n%s", code, table)
	}
	name := filepath.Join(dir, "merged", "order", "0000000001.seg")
	before, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	altered := append([]byte(nil), before...)
	altered[4096+128*20+60] ^= 1
	if err := os.WriteFile(name, altered, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, talk, code = runFarlog(t, "verify", dir); code != exitFailure ||
		!strings.Contains(talk, "merged order: segment 0000000001.seg") {
		t.Fatalf("exit code %d, stderr %q", code, talk)
	}
	if _, talk, code = runFarlog(t, "merge", dir); code != exitFailure || !strings.Contains(talk, "--rebuild") {
		t.Fatalf("exit code %d, stderr %q", code, talk)
	}
	if _, talk, code = runFarlog(t, "merge", dir, "--rebuild", "--final"); code != exitOK {
		t.Fatalf("exit code %d, stderr %q", code, talk)
	}
	after, err := os.ReadFile(name)
	if err != nil || string(after[4096:]) != string(before[4096:]) {
		t.Fatalf("the order that was made again has other bytes: %v", err)
	}
	if _, talk, code = runFarlog(t, "merge", dir, "--rebuild"); code != exitFailure ||
		!strings.Contains(talk, "the order that is there goes further") || !strings.Contains(talk, "--final") {
		t.Fatalf("an order that ends earlier took the place of one that is whole: exit code %d, stderr %q", code, talk)
	}
	if table, _, code = runFarlog(t, "verify", dir); code != exitOK ||
		!strings.Contains(table, "merged order: 102 entries of 2 streams") {
		t.Fatalf("exit code %d:\n%s", code, table)
	}
	if names, err := os.ReadDir(filepath.Join(dir, "merged")); err != nil || len(names) != 3 {
		t.Fatalf("%v, %v: expected lock, decisions and the order", names, err)
	}
	if _, talk, code = runFarlog(t, "merge", dir, "--final", "-f"); code != exitUsage ||
		!strings.Contains(talk, "expected one of them") {
		t.Fatalf("exit code %d, stderr %q", code, talk)
	}
}

// A stream that was made and never written holds up no other one.
func TestMerge_EmptyStreamIsNotWaitedFor(t *testing.T) {
	dir, _ := storeOrders(t, 20)
	opened, err := store.Open(dir, store.Options{SegmentBytes: 16 << 10})
	if err != nil {
		t.Fatal(err)
	}
	appender, err := opened.OpenStream(storetest.NewRing("bad", 3).Source)
	if err != nil {
		t.Fatal(err)
	}
	if err := appender.Close(); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"merge", dir}, {"merge", dir, "--rebuild"}} {
		table, talk, code := runFarlog(t, args...)
		if code != exitOK || !strings.Contains(table, " 21 ") || strings.Contains(table, "bad") {
			t.Fatalf("%v: exit code %d, stderr %q:\n%s", args[1:], code, talk, table)
		}
	}
}
