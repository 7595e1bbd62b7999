//go:build cgo

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/farlog"
)

// The drain reads its whole store again and again, and says so when a byte of it is no longer what was stored.
func TestScrub_DamageIsSeen(t *testing.T) {
	address := startDev(t, "--store-verify", "1s")
	writer := openDevWriter(t, address)
	for range 20 {
		if _, err := writer.Append(farlog.Entry{Data: []byte("the order that somebody alters")}, 0); err != nil {
			t.Fatal(err)
		}
	}
	until := func(line string) {
		t.Helper()
		for deadline := time.Now().Add(stepTimeout); !strings.Contains(fetch(t, "http://"+address.Metrics+"/metrics"),
			line); time.Sleep(100 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("no %q in metrics:\n%s", line, fetch(t, "http://"+address.Metrics+"/metrics"))
			}
		}
	}
	until(`farlog_drain_records_total{stream="a"} 21`)
	until(`farlog_store_verify_failed{stream="a"} 0`)
	alterStored(t, address.Store)
	until(`farlog_store_verify_failed{stream="a"} 1`)
}

// alterStored changes one letter in the first record of a store's segment.
func alterStored(t *testing.T, dir string) {
	t.Helper()
	altered := 0
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		raw, err := os.ReadFile(path)
		if at := bytes.Index(raw, []byte("somebody")); err == nil && at >= 0 {
			file, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			defer file.Close()
			altered++
			_, err = file.WriteAt([]byte("N"), int64(at))
			return err
		}
		return err
	})
	if err != nil || altered != 1 {
		t.Fatalf("altered %d files: %v", altered, err)
	}
}
