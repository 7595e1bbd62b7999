//go:build cgo

package main

import (
	"bytes"
	"crypto/sha256"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/retention"
	"github.com/farlog/farlog/pkg/store"
	"github.com/farlog/farlog/pkg/store/storetest"
)

// TestRetain_BesideTheDrainOfAStream: the drain has the stream's lock and writes it; the daemon removes with its
// appender, and only when it knows who reads.
func TestRetain_BesideTheDrainOfAStream(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	opened, err := store.Open(dir, store.Options{Create: true, SegmentBytes: store.SegmentBytesMin})
	if err != nil {
		t.Fatal(err)
	}
	ring := storetest.NewRing("desk7/orders", 1)
	ring.Append(150, 600)
	appender, err := opened.OpenStream(ring.Source)
	if err != nil {
		t.Fatal(err)
	}
	for _, rec := range ring.Records {
		if _, _, err := appender.Append(rec.Raw); err != nil {
			t.Fatal(err)
		}
	}
	if err := appender.Close(); err != nil { // everything is sealed that is full
		t.Fatal(err)
	}
	if appender, err = opened.OpenStream(ring.Source); err != nil {
		t.Fatal(err)
	}
	defer appender.Close()
	err = retention.Change(dir, func(p *retention.Policy) error {
		p.Rules = []retention.Rule{{Pattern: "*", MaxBytes: 1, WithoutArchive: true, SetBy: "tester"}}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	worker := &drainWorker{assignment: &api.Assignment{Stream: "desk7/orders"}}
	role := &drainRole{
		settings: &settings{storeServe: "127.0.0.1:0"}, store: opened, logger: slog.New(slog.NewTextHandler(&log, nil)),
		workers: map[string]*drainWorker{"it": worker},
	}
	said := map[string]string{}
	expect := func(isRemoved bool, text string) {
		t.Helper()
		log.Reset()
		role.removeOnce(retention.NewClock(), said)
		base, err := opened.Base("desk7/orders")
		if err != nil || (base != nil) != isRemoved || !strings.Contains(log.String(), text) {
			t.Fatalf("base %+v, error %v, log %q; expected removed: %t, and %q", base, err, log.String(), isRemoved,
				text)
		}
	}
	expect(false, "how far they are is not known")
	role.settings.storeServe = ""
	expect(false, "has not opened it yet")
	worker.keepAppender(appender)
	expectReported(t, worker, opened)
	expect(true, "nowhere: removed without an archive")
	expectReported(t, worker, opened)
	ring.Append(5, 100)
	for _, rec := range ring.Records[len(ring.Records)-5:] {
		if _, _, err := appender.Append(rec.Raw); err != nil {
			t.Fatal(err)
		}
	}
	if err := appender.Sync(); err != nil {
		t.Fatal(err)
	}
	report, err := opened.Verify(t.Context(), store.VerifyOptions{})
	if err != nil || !report.OK() {
		t.Fatalf("%+v, %v", report, err)
	}
}

// expectReported expects that the drain reports the base manifest of the store, when it has one.
func expectReported(t *testing.T, worker *drainWorker, opened *store.Store) {
	t.Helper()
	base, err := opened.Base("desk7/orders")
	if err != nil {
		t.Fatal(err)
	}
	got := worker.baseMessage()
	if base == nil {
		if got != nil {
			t.Errorf("the drain reports %v, and nothing was removed", got)
		}
		return
	}
	raw, err := os.ReadFile(filepath.Join(opened.Dir(), store.BaseFile("desk7/orders", base.Segment)))
	if err != nil {
		t.Fatal(err)
	}
	digest := sha256.Sum256(raw)
	if got.GetSegment() != base.Segment || !bytes.Equal(got.GetSha256(), digest[:]) ||
		got.GetRemovedRecords() != base.RemovedRecords || got.GetPolicy() != base.Policy ||
		got.GetRemoveTime().AsTime().Format(time.RFC3339Nano) != base.RemovedAt {
		t.Errorf("the drain reports %v of base %+v", got, base)
	}
}
