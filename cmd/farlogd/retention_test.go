//go:build cgo

package main

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

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
	expect(true, "nowhere: removed without an archive")
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
