package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farlog/farlog/pkg/store"
	"github.com/farlog/farlog/pkg/store/storetest"
)

// storeOf makes a store of one ring with these payloads, with segments of its own size.
func storeOf(t *testing.T, segmentBytes int64, payloads []string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "store")
	opened, err := store.Open(dir, store.Options{Create: true, SegmentBytes: segmentBytes})
	if err != nil {
		t.Fatal(err)
	}
	ring := storetest.NewRing("desk7/orders", 1)
	appender, err := opened.OpenStream(ring.Source)
	if err != nil {
		t.Fatal(err)
	}
	for _, payload := range payloads {
		ring.AppendPayload([]byte(payload))
	}
	for _, rec := range ring.Records {
		if _, _, err := appender.Append(rec.Raw); err != nil {
			t.Fatal(err)
		}
	}
	if err := appender.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestVerify_AgainstAnotherStore(t *testing.T) {
	var payloads []string
	for i := range 300 {
		payloads = append(payloads, fmt.Sprintf("order %03d", i))
	}
	first, second := storeOf(t, 16<<10, payloads), storeOf(t, 64<<10, payloads[:200])
	for _, test := range []struct{ path, against, want string }{
		{first, second, "201 records are the same in " + second + ", which is 100 behind"},
		{second, first, "201 records are the same in " + first + ", which is 100 ahead"},
		{first, first, "301 records are the same in " + first},
	} {
		table, talk, code := runFarlog(t, "verify", test.path, "--against", test.against)
		if code != exitOK || !strings.Contains(table, test.want) || talk != "" {
			t.Fatalf("exit code %d, stderr %q, expected %q:\n%s", code, talk, test.want, table)
		}
	}
	other := append([]string(nil), payloads...)
	other[150] = "order 15x"
	third := storeOf(t, 64<<10, other)
	table, talk, code := runFarlog(t, "verify", first, "--against", third)
	if code != exitFailure || !strings.Contains(talk, "stream desk7/orders: generation 1, epoch 1, lsn ") ||
		!strings.Contains(talk, "(seq 151): byte 52 of the record is another") ||
		!strings.Contains(table, "DIFFERS") || strings.Count(talk, "\n") != 1 {
		t.Fatalf("exit code %d, stderr %q, table\n%s", code, talk, table)
	}
	if _, talk, code = runFarlog(t, "verify", first, "--against", filepath.Dir(first)); code != exitFailure ||
		!strings.Contains(talk, "--against") {
		t.Fatalf("exit code %d, stderr %q", code, talk)
	}
}
