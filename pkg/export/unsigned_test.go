package export

import (
	"crypto/ed25519"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/store"
	"github.com/farlog/farlog/pkg/store/storetest"
)

// expectUnsigned exports and verifies with all keys: nothing is wrong, and what the store has not signed is not
// checked; want = "": all is.
func expectUnsigned(t *testing.T, source *store.Store, request Request, rows uint64, want string) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Request: request, MadeBy: "J. Doe", Why: "test", Program: "test", Key: private}
	dir := filepath.Join(t.TempDir(), "bundle")
	b, err := Export(t.Context(), source, dir, o)
	if err != nil {
		t.Fatal(err)
	}
	report, err := Verify(t.Context(), dir, VerifyOptions{
		StoreKeys: source.Keys(), ExporterKeys: []ed25519.PublicKey{public},
	})
	if err != nil || !report.OK() || b.Rows != rows {
		t.Fatalf("%+v: %d rows, %q, %v, expected %d rows", request, b.Rows, report.Failures, err, rows)
	}
	text := strings.Join(report.NotChecked, "\n")
	if report.IsWhole() != (want == "") || !strings.Contains(text, want) {
		t.Errorf("%+v: not checked: %q, expected %q", request, text, want)
	}
	if list := strings.Join(b.Missing, "\n"); !strings.Contains(list, "has no manifest") {
		t.Errorf("%+v: missing: %q, expected the segment without a manifest", request, list)
	}
}

// Records that the store has not signed are not checked, nor is that it has none of a time in what it has not signed.
func TestVerify_UnsignedRecords(t *testing.T) {
	source := newStore(t, filepath.Join(t.TempDir(), "store"))
	orders := []string{"desk7/orders"}
	expectUnsigned(t, source, Request{Streams: orders}, 400, "in a segment that has no manifest: the store has not "+
		"signed them")
	expectUnsigned(t, source, Request{Streams: orders, From: "2026-11-21T00:00:00Z"}, 0, "has no manifest, and no "+
		"record of the time asked for")
	expectUnsigned(t, source, Request{Streams: orders, To: "2026-11-20T14:01:00Z"}, 60, "")
}

// An epoch that nobody has signed, and which goes back behind the end of the sealed segments, is named: it leaves out
// records that are signed.
func TestVerify_UnsignedEpochGoesBack(t *testing.T) {
	source, err := store.Open(filepath.Join(t.TempDir(), "store"), store.Options{
		Create: true, SegmentBytes: store.SegmentBytesMin, IsSynchronous: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	ring := storetest.NewRing("desk7/orders", 1)
	for i := range 200 {
		ring.SetClock(start.Add(time.Duration(i) * time.Second))
		ring.AppendPayload(message("35=D", "55=BMW", "54=1", "38=100", "58="+strings.Repeat("x", 100)))
	}
	records := ring.Records
	ring.OpenEpochAt(records[50].LSN)
	records = append(records, ring.Records[len(ring.Records)-1])
	appender, err := source.OpenStream(ring.Source)
	if err != nil {
		t.Fatal(err)
	}
	for _, rec := range records {
		if _, _, err := appender.Append(rec.Raw); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(appender.Sync(), appender.Close()); err != nil {
		t.Fatal(err)
	}
	// EPOCH, 49 records, and a time before all that is not sealed
	expectUnsigned(t, source, Request{To: "2026-11-20T14:02:00Z"}, 49, "goes back to lsn")
	report, err := source.Verify(t.Context(), store.VerifyOptions{})
	if err != nil || !report.OK() || !strings.Contains(report.Streams[0].Statement(), "supersedes sealed records") {
		t.Errorf("%+v, %v: expected that the epoch is named", report, err)
	}
}
