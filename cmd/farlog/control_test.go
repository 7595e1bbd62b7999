package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// A backup that lacks a byte, or has another one, is not believed.
func TestReadBackup_EveryByteCounts(t *testing.T) {
	rest := []*api.BackupEntry{{Key: "spec/stream_id", Value: "7"}, {Key: "spec/epochs/a", Value: "3"}}
	next := func() (*api.BackupEntry, error) {
		if len(rest) == 0 {
			return nil, io.EOF
		}
		entry := rest[0]
		rest = rest[1:]
		return entry, nil
	}
	var whole bytes.Buffer
	if count, err := writeBackup(&whole, &api.BackupEntry{Key: "spec/streams/a", Value: `{"x":"<&>"}`, Revision: 9},
		next); err != nil || count != 3 {
		t.Fatalf("wrote %d, %v", count, err)
	}
	path := filepath.Join(t.TempDir(), "backup")
	read := func(content []byte) ([]*api.BackupEntry, error) {
		t.Helper()
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return readBackup(path)
	}
	entries, err := read(whole.Bytes())
	if err != nil || len(entries) != 3 || entries[0].Value != `{"x":"<&>"}` || entries[2].Key != "spec/epochs/a" {
		t.Fatalf("read %v, %v", entries, err)
	}
	isSame := func(entries []*api.BackupEntry) bool {
		return len(entries) == 3 && entries[0].Value == `{"x":"<&>"}` && entries[0].Key == "spec/streams/a" &&
			entries[1].Value == "7" && entries[2].Value == "3"
	}
	for i := range whole.Len() {
		changed := bytes.Clone(whole.Bytes())
		changed[i] ^= 1
		if entries, err := read(changed); err == nil && !isSame(entries) {
			t.Errorf("byte %d changed: read %v", i, entries)
		}
		if i == whole.Len()-1 {
			continue // only the last line's end is missing
		}
		if _, err := read(whole.Bytes()[:i]); err == nil {
			t.Errorf("cut at byte %d and believed", i)
		}
	}
	if _, err := readBackup(path + ".none"); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("got %v", err)
	}
}
