//go:build cgo

package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/merge"
	"github.com/farlog/farlog/pkg/record"
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

const (
	manyRings  = 256
	manyRounds = 8
)

// One thread appends to the rings of 256 streams, to each in its turn and some not at all for a while. Their drain puts
// them into one order by time: that in which the thread appended, but for where the clock was set back. The last ones
// come in when idle writers' heartbeats have passed them; nothing else would, for a minute.
func TestMerging_RingsByTheHundred(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes long: make check runs it")
	}
	address := startDev(t, "--merge-late", "1m", "--store-segment", "1MiB")
	writers := openMany(t, address)
	opened, err := store.Open(address.Store, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	// A stream is waited for from when its drain has begun: then its opening is in the order.
	heartbeats(t, writers)
	awaitOrder(t, opened, "the openings of all", func(found ordered) bool { return len(found.latest) == manyRings })
	random := rand.New(rand.NewPCG(1, 2))
	var want []string
	for round := range manyRounds {
		for _, i := range random.Perm(manyRings)[:manyRings-random.IntN(manyRings/2)] {
			text := fmt.Sprintf("order %d of desk %d", round, i)
			if _, err := writers[i].Append(farlog.Entry{Data: []byte(text)}, 0); err != nil {
				t.Fatal(err)
			}
			want = append(want, text)
		}
	}
	heartbeats(t, writers)
	awaitOrder(t, opened, fmt.Sprintf("the %d records as they were appended", len(want)), func(found ordered) bool {
		if len(found.payloads) != len(want) {
			return false
		}
		slices.SortStableFunc(want, func(a, b string) int { return cmp.Compare(found.times[a], found.times[b]) })
		return slices.Equal(found.payloads, want)
	})
}

func heartbeats(t *testing.T, writers []*farlog.Writer) {
	t.Helper()
	for _, writer := range writers {
		if _, err := writer.Heartbeat(0); err != nil {
			t.Fatal(err)
		}
	}
}

func awaitOrder(t *testing.T, opened *store.Store, what string, isThere func(found ordered) bool) {
	t.Helper()
	for deadline := time.Now().Add(stepTimeout); ; time.Sleep(100 * time.Millisecond) {
		found, err := readOrder(opened)
		if err == nil && isThere(found) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d records of %d streams are in the order, expected %s: %v", len(found.payloads),
				len(found.latest), what, err)
		}
	}
}

// openMany opens writers of many streams, some at a time.
func openMany(t *testing.T, address ready) []*farlog.Writer {
	t.Helper()
	client := dialDev(t, address)
	writers, errs := make([]*farlog.Writer, manyRings), make([]error, manyRings)
	var all sync.WaitGroup
	turn := make(chan struct{}, 16)
	for i := range manyRings {
		all.Go(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			writers[i], errs[i] = openDevStream(t.Context(), client,
				&api.StreamSpec{
					Name: fmt.Sprintf("desk%d/orders", i), RingSizeBytes: 64 << 10, RecordLenMax: 4096,
					Level: api.Level_LEVEL_VISIBLE,
				})
		})
	}
	all.Wait()
	for i, writer := range writers {
		if errs[i] != nil {
			t.Fatal(errs[i])
		}
		t.Cleanup(func() { writer.Close() })
	}
	return writers
}

// ordered is what a merged order holds.
type ordered struct {
	payloads []string          // of all records but a writer's opening
	times    map[string]uint64 // by payload: the latest time stamp of its stream up to it
	latest   map[string]uint64 // by stream: the latest time stamp
}

func readOrder(opened *store.Store) (found ordered, err error) {
	reader, err := merge.OpenReader(opened)
	if err != nil {
		return found, err
	}
	defer reader.Close()
	found.times, found.latest = map[string]uint64{}, map[string]uint64{}
	for {
		item, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return found, err
		}
		found.latest[item.Stream] = max(found.latest[item.Stream], item.TimestampNS)
		if item.RecordFlags&record.FlagEpoch == 0 {
			found.payloads = append(found.payloads, string(item.Record.Payload))
			found.times[string(item.Record.Payload)] = found.latest[item.Stream]
		}
	}
}
