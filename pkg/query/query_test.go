package query_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/farlog/farlog/pkg/query"
	"github.com/farlog/farlog/pkg/store"
	"github.com/farlog/farlog/pkg/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fill puts records into a stream of a store, in small segments; clock gives each one its time.
func fill(t *testing.T, dir, stream string, seed uint64, clock []time.Time) *store.Store {
	t.Helper()
	opened, err := store.Open(dir, store.Options{Create: true, SegmentBytes: store.SegmentBytesMin})
	if err != nil {
		t.Fatal(err)
	}
	ring := storetest.NewRing(stream, seed)
	for i, at := range clock {
		ring.SetClock(at)
		ring.AppendPayload(fmt.Appendf(nil, "%s %d", stream, i))
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
	return opened
}

// minutes are times from a minute on, one every so many seconds.
func minutes(minute, count, seconds int) (clock []time.Time) {
	for i := range count {
		clock = append(clock, time.Date(2026, 11, 20, 14, minute, i*seconds, 0, time.UTC))
	}
	return clock
}

// answer runs a query and gives "time payload" of its rows.
func answer(t *testing.T, stores []*store.Store, request query.Request) (rows []string, q *query.Query) {
	t.Helper()
	q, err := query.Open(stores, request)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	_, err = q.Run(t.Context(), func(row *query.Row) error {
		rows = append(rows, row.Time().Format("15:04:05 ")+string(row.Payload))
		return nil
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return rows, q
}

// Rows of several streams of several stores come by stream and name, or merged by time; a stream whose clock went back
// keeps its order.
func TestRun_ByStreamAndMerged(t *testing.T) {
	dir := t.TempDir()
	one := fill(t, filepath.Join(dir, "one"), "b", 1, minutes(0, 3, 10))
	fill(t, filepath.Join(dir, "one"), "a", 2, []time.Time{
		minutes(0, 1, 0)[0].Add(5 * time.Second), minutes(0, 1, 0)[0].Add(25 * time.Second),
		minutes(0, 1, 0)[0].Add(2 * time.Second), // set back
	})
	two := fill(t, filepath.Join(dir, "two"), "c/d", 3, minutes(0, 2, 11))
	stores := []*store.Store{one, two}
	rows, _ := answer(t, stores, query.Request{})
	want := []string{
		"14:00:05 a 0", "14:00:25 a 1", "14:00:02 a 2", "14:00:00 b 0", "14:00:10 b 1", "14:00:20 b 2",
		"14:00:00 c/d 0", "14:00:11 c/d 1",
	}
	if !slices.Equal(rows, want) {
		t.Errorf("by stream %q", rows)
	}
	rows, _ = answer(t, stores, query.Request{IsMerged: true})
	want = []string{
		"14:00:00 b 0", "14:00:00 c/d 0", "14:00:05 a 0", "14:00:10 b 1", "14:00:11 c/d 1", "14:00:20 b 2",
		"14:00:25 a 1", "14:00:02 a 2",
	}
	if !slices.Equal(rows, want) {
		t.Errorf("merged %q", rows)
	}
	rows, q := answer(t, stores, query.Request{Streams: []string{"c/**", "a"}})
	if len(rows) != 5 || q.Streams() != 2 {
		t.Errorf("of two patterns %q", rows)
	}
	var unknown *query.NoStreamError
	if _, err := query.Open(stores, query.Request{Streams: []string{"a", "d/*"}}); !errors.As(err, &unknown) ||
		unknown.Pattern != "d/*" || !strings.Contains(err.Error(), "of a, b, c/d") {
		t.Errorf("%v", err)
	}
}

// A query reads little for a short time, stops at a limit of rows, and does not begin where it has to read too much.
func TestRun_Bounds(t *testing.T) {
	dir := t.TempDir()
	stores := []*store.Store{fill(t, dir, "a", 1, minutes(0, 2000, 1))}
	all, q := answer(t, stores, query.Request{})
	total, segments := q.Extent()
	if len(all) != 2000 || segments < 10 || total.Segments != segments {
		t.Fatalf("%d rows of %+v, %d segments", len(all), total, segments)
	}
	from := minutes(10, 1, 0)[0]
	minute := store.Window{From: uint64(from.UnixNano()), To: uint64(from.Add(time.Minute).UnixNano())}
	rows, q := answer(t, stores, query.Request{Window: minute})
	if !slices.Equal(rows, all[600:660]) {
		t.Errorf("a minute has %d rows: %q", len(rows), rows)
	}
	planned, _ := q.Extent()
	if read := q.Progress().Bytes; planned.Segments > 4 || read > total.Bytes/3 || planned.Bytes > total.Bytes/3 {
		t.Errorf("a minute: planned %+v, read %d bytes, all is %+v", planned, read, total)
	}
	var cost *query.CostError
	if q, err := query.Open(stores, query.Request{ReadLimit: total.Bytes - 1}); !errors.As(err, &cost) ||
		cost.Bytes != total.Bytes || q != nil {
		t.Errorf("%v, expected that it costs %d bytes, and no query that nobody closes", err, total.Bytes)
	}
	if _, err := query.Open(stores, query.Request{ReadLimit: total.Bytes - 1, Window: minute}); err != nil {
		t.Errorf("a minute: %v", err)
	}
	q, err := query.Open(stores, query.Request{Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	count := 0
	if isLimited, err := q.Run(t.Context(), func(*query.Row) error { count++; return nil }, nil); !isLimited ||
		err != nil || count != 10 {
		t.Errorf("%d rows, limited %v, %v", count, isLimited, err)
	}
}

// Damage in what is read ends a query with its place; so does the end of the caller's patience.
func TestRun_Damage(t *testing.T) {
	dir := t.TempDir()
	stores := []*store.Store{fill(t, dir, "a", 1, minutes(0, 2000, 1))}
	name := filepath.Join(dir, store.SegmentFile("a", 4))
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	raw[len(raw)/2] ^= 1
	if err := errors.Join(os.Chmod(name, 0o600), os.WriteFile(name, raw, 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, isMerged := range []bool{false, true} {
		q, err := query.Open(stores, query.Request{IsMerged: isMerged})
		if err != nil {
			t.Fatal(err)
		}
		count := 0
		_, err = q.Run(t.Context(), func(*query.Row) error { count++; return nil }, nil)
		q.Close()
		if !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), name) || count == 0 || count == 2000 {
			t.Errorf("%d rows, %v", count, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	q, err := query.Open(stores, query.Request{Window: store.Window{From: uint64(minutes(20, 1, 0)[0].UnixNano())}})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	if _, err = q.Run(ctx, func(*query.Row) error { cancel(); return nil }, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, expected that it ends behind the first row", err)
	}
}
