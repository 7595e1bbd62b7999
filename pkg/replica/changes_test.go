package replica

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/store"
	"github.com/farlog/farlog/pkg/store/storetest"
)

const idleStreams = 300

// asked counts the requests to a first site.
type asked struct{ changes, records atomic.Int64 }

func (a *asked) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, pathChanges) {
			a.changes.Add(1)
		} else {
			a.records.Add(1)
		}
		next.ServeHTTP(w, r)
	})
}

// site300 is a first site of many streams, with a record each.
func site300(t *testing.T) (*store.Store, []*store.Appender, []*storetest.Ring) {
	t.Helper()
	first, err := store.Open(filepath.Join(t.TempDir(), "first"), store.Options{
		Create: true, SegmentBytes: store.SegmentBytesMin,
	})
	if err != nil {
		t.Fatal(err)
	}
	apps, rings := make([]*store.Appender, idleStreams), make([]*storetest.Ring, idleStreams)
	for i := range apps {
		rings[i] = storetest.NewRing(fmt.Sprintf("desk%d/orders", i), uint64(i))
		if apps[i], err = first.OpenStream(rings[i].Source); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = apps[i].Close() })
		appendAll(t, apps[i], rings[i])
	}
	return first, apps, rings
}

func appendAll(t *testing.T, app *store.Appender, ring *storetest.Ring) {
	t.Helper()
	if _, _, err := app.Append(storetest.Batch(ring.Records)); err != nil {
		t.Fatal(err)
	}
	if err := app.Sync(); err != nil {
		t.Fatal(err)
	}
}

// TestReplica_IdleAsksOnceForAllStreams: while no stream of a first site has anything new, its replica asks for changes
// and for nothing else; when one stream has, it reads that stream. Requests are counted, and nothing is timed.
func TestReplica_IdleAsksOnceForAllStreams(t *testing.T) {
	first, apps, rings := site300(t)
	count, source := new(asked), NewStoreSource(first)
	server := httptest.NewServer(count.wrap(Handler(source, everybody{})))
	defer server.Close()
	second, err := store.Open(filepath.Join(t.TempDir(), "second"), store.Options{
		Create: true, SegmentBytes: store.SegmentBytesMin,
	})
	if err != nil {
		t.Fatal(err)
	}
	r := New(Config{
		Source: NewHTTPSource(server.URL, server.Client()), Store: second, PollInterval: time.Millisecond,
		Logger: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { r.Run(ctx); close(ended) }()
	defer func() { cancel(); <-ended }()

	awaitSettled(t, r, func(Progress) bool { return true })
	began, records := count.changes.Load(), count.records.Load()
	for deadline := time.Now().Add(time.Minute); count.changes.Load() < began+3; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the first site is not asked any more")
		}
	}
	if more := count.records.Load() - records; more != 0 {
		t.Errorf("%d requests for records of %d idle streams, expected none", more, idleStreams)
	}

	rings[7].Release(rings[7].NextLSN())
	rings[7].Append(5, 100)
	appendAll(t, apps[7], rings[7])
	end := apps[7].Last().LSN
	awaitSettled(t, r, func(p Progress) bool { return p.Stream != "desk7/orders" || p.Place.LSN == end })
	if more := count.records.Load() - records; more > 4 {
		t.Errorf("%d requests for records when one of %d streams has some", more, idleStreams)
	}
}

// awaitSettled waits until all streams are copied, as far as is known, and each is as wanted.
func awaitSettled(t *testing.T, r *Replica, isWanted func(Progress) bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		list, failure := r.Progress()
		settled := 0
		for _, p := range list {
			if p.LastError == "" && p.IsLagKnown && p.LagBytes == 0 && p.Place.LSN+uint64(p.Place.Epoch) > 0 &&
				isWanted(p) {
				settled++
			}
		}
		if settled == idleStreams && failure == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d streams, %q", settled, len(list), failure)
		}
	}
}

// TestChanges_PauseIsBounded: however long it takes to measure all streams, those of other processes are measured again
// soon, and an answer says how old it is.
func TestChanges_PauseIsBounded(t *testing.T) {
	first, err := store.Open(filepath.Join(t.TempDir(), "first"), store.Options{
		Create: true, SegmentBytes: store.SegmentBytesMin,
	})
	if err != nil {
		t.Fatal(err)
	}
	c, now := newChanges(first), time.Unix(1763700000, 0)
	step := 10 * time.Second
	c.now = func() time.Time { now = now.Add(step); return now }
	pause := func() time.Duration {
		found, next, _, err := c.since("")
		if err != nil || found.Age < step {
			t.Fatalf("age %s, %v", found.Age, err)
		}
		return next.Sub(now) + step // now is that of Age
	}
	if got := pause(); got <= 0 || got > pauseMax {
		t.Errorf("pause of %s when nobody appends here, expected at most %s", got, pauseMax)
	}
	c.notes.add("desk7/orders")
	now = now.Add(time.Hour)
	if got := pause(); got <= pauseMax || got > pauseMaxAppending {
		t.Errorf("pause of %s when somebody appends here, expected at most %s", got, pauseMaxAppending)
	}
}

// oldAnswer is a source that has not measured its streams for an hour.
type oldAnswer struct{ twoStreams }

func (*oldAnswer) Changed(context.Context, string) (Changes, error) {
	return Changes{Mark: "mark", Age: time.Hour}, nil
}

// TestReplica_LagOfAnOldAnswer: an answer without changes proves that a stream is copied only up to when the first site
// measured its streams.
func TestReplica_LagOfAnOldAnswer(t *testing.T) {
	second, err := store.Open(filepath.Join(t.TempDir(), "second"), store.Options{
		Create: true, SegmentBytes: store.SegmentBytesMin,
	})
	if err != nil {
		t.Fatal(err)
	}
	r := New(Config{Source: new(oldAnswer), Store: second})
	f := r.follower("desk7/orders")
	f.isRunning, f.isSettled, f.caughtUp = true, true, time.Now().Add(-2*time.Hour)
	if !r.ask(t.Context(), new(sync.WaitGroup)) {
		t.Fatal(r.failure)
	}
	list, _ := r.Progress()
	if len(list) != 1 || list[0].LagAge < time.Hour || list[0].LagAge > 90*time.Minute {
		t.Errorf("%+v, expected a lag of an hour", list)
	}
}

// TestChanges_OfAnotherProcess: what an appender of another process stores, and streams that it makes, are seen, too. A
// mark of another process is answered with all streams.
func TestChanges_OfAnotherProcess(t *testing.T) {
	disk := storetest.NewCrashFS(1)
	open := func() *store.Store {
		s, err := store.Open("/store", store.Options{
			Create: true, FS: disk, SegmentBytes: store.SegmentBytesMin,
			IsSynchronous: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	here, there := open(), open()
	source := NewStoreSource(here)
	ask := func(mark string) Changes {
		found, err := source.Changed(t.Context(), mark)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	mark := ask("").Mark
	ring := storetest.NewRing("desk7/orders", 1)
	app, err := there.OpenStream(ring.Source)
	if err != nil {
		t.Fatal(err)
	}
	var last int64
	for range 3 {
		appendAll(t, app, ring)
		for found := (Changes{}); ; {
			if found = ask(mark); len(found.Streams) == 1 && found.Streams[0].Bytes > last {
				last, mark = found.Streams[0].Bytes, found.Mark
				break
			}
			mark = found.Mark
		}
		ring.Release(ring.NextLSN())
		ring.Append(3, 100)
	}
	if found := ask("another-7"); len(found.Streams) != 1 || found.Streams[0].Bytes != last {
		t.Errorf("a mark of another process: %+v", found)
	}
	if found := ask(mark); len(found.Streams) != 0 || found.Mark != mark {
		t.Errorf("nothing has changed: %+v, mark %s", found, mark)
	}
}
