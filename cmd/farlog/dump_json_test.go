package main

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farlog/farlog/pkg/store"
	"github.com/farlog/farlog/pkg/store/storetest"
)

// A record's bytes come out of the JSON as they went into the ring: a FIX message with its separators, a bar, and bytes
// that are no text.
func TestDump_JSONHasTheBytes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	opened, err := store.Open(dir, store.Options{Create: true, SegmentBytes: 16 << 10})
	if err != nil {
		t.Fatal(err)
	}
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	payloads := [][]byte{
		[]byte("8=FIX.4.4\x0135=D\x0158=a|b\x01"), []byte("\x00\t\n\r\"\\<&>\u2028\u00e9"),
		[]byte("\\u0001 |"), all,
		{0xff},
		{},
	}
	ring := storetest.NewRing("desk7/orders", 1)
	for _, payload := range payloads {
		ring.AppendPayload(payload)
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
	text, _, code := runFarlog(t, "dump", dir, "--output", "json")
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if code != exitOK || len(lines) != len(payloads)+1 { // and the EPOCH record
		t.Fatalf("exit code %d, %d lines:\n%s", code, len(lines), text)
	}
	for i, want := range payloads {
		var got dumpLine
		if err := json.Unmarshal([]byte(lines[i+1]), &got); err != nil {
			t.Fatal(err)
		}
		if bytes := bytes.Join([][]byte{[]byte(got.Payload), got.PayloadRaw}, nil); string(bytes) != string(want) ||
			got.Len != len(want) {
			t.Errorf("payload %q comes as %q in %s", want, bytes, lines[i+1])
		}
	}
}
