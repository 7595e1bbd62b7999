//go:build cgo

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/merge"
	"github.com/farlog/farlog/pkg/store"
)

// A drain that was told to keeps its store's streams in one order, and says how far that is.
func TestMerging_OrderIsMadeWhileTheDrainStores(t *testing.T) {
	address := startDev(t, "--merge-late", "100ms")
	writer := openDevWriter(t, address)
	for range 20 {
		if _, err := writer.Append(farlog.Entry{Data: []byte("an order")}, 0); err != nil {
			t.Fatal(err)
		}
	}
	for deadline := time.Now().Add(stepTimeout); ; time.Sleep(50 * time.Millisecond) {
		body := fetch(t, "http://"+address.Metrics+"/metrics")
		if strings.Contains(body, "farlog_merge_records_total 21") && strings.Contains(body, "farlog_merge_failing 0") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the order does not come:\n%s", body)
		}
	}
	opened, err := store.Open(address.Store, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	reader, err := merge.OpenReader(opened)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	for index := range uint64(21) {
		item, err := reader.Next()
		if err != nil || item.Index != index || item.Seq != index {
			t.Fatalf("entry %d: %+v, %v", index, item.Entry, err)
		}
	}
}
