package farlog

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ringSize = 1 << 20

// newRing formats a ring in a plain file (persistent by msync) or on tmpfs, which gives visible.
func newRing(t *testing.T, onTmpfs bool) string {
	t.Helper()
	dir := t.TempDir()
	if onTmpfs {
		var err error
		if dir, err = os.MkdirTemp("/dev/shm", "farlog-test-"); err != nil {
			t.Skipf("no tmpfs at /dev/shm: %v", err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
	}
	uri := "mem:" + filepath.Join(dir, "orders.ring")
	if err := Format(uri, FormatOptions{SizeBytes: ringSize, StreamName: "test/orders", StreamID: 7}); err != nil {
		t.Fatal(err)
	}
	return uri
}

func openWriter(t *testing.T, uri string, options WriterOptions) *Writer {
	t.Helper()
	options.CountersDir = "none"
	w, err := OpenWriter(uri, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

// readAll drains what is there, without releasing it, and returns the bytes.
func readAll(t *testing.T, r *Reader) ([]byte, Batch) {
	t.Helper()
	var all []byte
	var last Batch
	buf := make([]byte, 64<<10)
	for {
		batch, err := r.Read(buf)
		if errors.Is(err, ErrNotYet) {
			return all, last
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, batch.Bytes...)
		last = batch
	}
}

func TestAppend_ReachesTheContractsLevel(t *testing.T) {
	for _, c := range []struct {
		name    string
		onTmpfs bool
		level   Level
	}{{"file", false, LevelPersistent}, {"tmpfs", true, LevelVisible}} {
		t.Run(c.name, func(t *testing.T) {
			uri := newRing(t, c.onTmpfs)
			w := openWriter(t, uri, WriterOptions{Level: c.level})
			position, err := w.Append(Entry{Data: []byte("new order"), Key: []byte("ID1"), Class: 3}, 0)
			if err != nil {
				t.Fatal(err)
			}
			if position.Level != c.level || position.Epoch != 1 || position.Seq != 1 {
				t.Errorf("position %+v: want level %s, epoch 1, seq 1 (0 is the EPOCH record)", position, c.level)
			}
			cursors := w.Cursors()
			if cursors.DurableLSN != cursors.AppendedLSN || cursors.AppendedLSN != position.EndLSN {
				t.Errorf("cursors %+v after acknowledgement of %+v", cursors, position)
			}
		})
	}
}

func TestOpenWriter_LevelAboveContract_NamesBoth(t *testing.T) {
	_, err := OpenWriter(newRing(t, true), WriterOptions{CountersDir: "none"})
	if !errors.Is(err, ErrLevel) || !strings.Contains(err.Error(), "persistent") ||
		!strings.Contains(err.Error(), "visible") {
		t.Fatalf("error %q: want ErrLevel naming persistent and visible", err)
	}
}

func TestOpenWriter_SecondWriter_IsToldWhoHoldsIt(t *testing.T) {
	uri := newRing(t, false)
	openWriter(t, uri, WriterOptions{Name: "first"})
	_, err := OpenWriter(uri, WriterOptions{CountersDir: "none"})
	want := fmt.Sprintf("pid=%d name=first", os.Getpid())
	if !errors.Is(err, ErrHeld) || !strings.Contains(err.Error(), want) {
		t.Fatalf("error %q: want ErrHeld naming %q", err, want)
	}
}

func TestOpenWriter_BlankRegion_NamesTheCommandThatFormats(t *testing.T) {
	path := filepath.Join(t.TempDir(), "blank")
	if err := os.WriteFile(path, make([]byte, ringSize), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := OpenWriter("mem:"+path, WriterOptions{})
	if !errors.Is(err, ErrNotARing) || !strings.Contains(err.Error(), "farlog ring format") {
		t.Fatalf("error %q: want ErrNotARing naming the command", err)
	}
}

func TestFormat_RefusesWhatItWouldDestroy(t *testing.T) {
	uri := newRing(t, false)
	if err := Format(uri, FormatOptions{}); !errors.Is(err, ErrExists) {
		t.Errorf("format over a ring: %v, want ErrExists", err)
	}
	foreign := filepath.Join(t.TempDir(), "foreign")
	if err := os.WriteFile(foreign, bytes.Repeat([]byte("x"), ringSize), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Format("mem:"+foreign, FormatOptions{}); !errors.Is(err, ErrExists) {
		t.Errorf("format over foreign data: %v, want ErrExists", err)
	}
	w := openWriter(t, uri, WriterOptions{})
	if err := Format(uri, FormatOptions{Force: true}); !errors.Is(err, ErrHeld) {
		t.Errorf("forced format under a writer: %v, want ErrHeld", err)
	}
	w.Close()
	if err := Format(uri, FormatOptions{Force: true}); err != nil {
		t.Errorf("forced format: %v", err)
	}
}

func TestBadInput_NamesThingValueAndExpectation(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		name string
		err  error
		want []string
	}{
		{"scheme", Format("nosuch:/x", FormatOptions{SizeBytes: ringSize}), []string{"nosuch", "mem:/path"}},
		{"no scheme", Format("/x", FormatOptions{SizeBytes: ringSize}), []string{"no scheme"}},
		{"option", Format("mem:/x?colour=red", FormatOptions{SizeBytes: ringSize}), []string{"colour"}},
		{"flush", Format("mem:"+dir+"/r?flush=hope", FormatOptions{SizeBytes: ringSize}), []string{"hope", "clwb"}},
		{"size", Format("mem:"+dir+"/r", FormatOptions{SizeBytes: 5000}), []string{"5000", "4096"}},
		{"no size", Format("mem:"+dir+"/r", FormatOptions{}), []string{"does not exist"}},
		{
			"align", Format("mem:"+dir+"/r", FormatOptions{SizeBytes: ringSize, Align: 100}),
			[]string{"100", "power of two"},
		},
		{
			"record", Format("mem:"+dir+"/r", FormatOptions{SizeBytes: ringSize, RecordLenMax: 1 << 20}),
			[]string{"1048576", "quarter"},
		},
		{"directory", Format("mem:"+dir, FormatOptions{SizeBytes: ringSize}), []string{dir}},
	} {
		if c.err == nil {
			t.Errorf("%s: no error", c.name)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(c.err.Error(), want) {
				t.Errorf("%s: error %q does not contain %q", c.name, c.err, want)
			}
		}
		if strings.Contains(c.err.Error(), "\n") {
			t.Errorf("%s: error %q has more than one line", c.name, c.err)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("refused formats left %v behind (%v)", entries, err)
	}
}

func TestReopen_ContinuesTheLog(t *testing.T) {
	uri := newRing(t, false)
	for epoch := uint32(1); epoch <= 3; epoch++ {
		w := openWriter(t, uri, WriterOptions{})
		if got := w.Recovery(); got.Epoch != epoch || got.NextSeq != uint64(epoch-1)*11 {
			t.Errorf("recovery %+v: want epoch %d and seq %d", got, epoch, (epoch-1)*11)
		}
		for i := range 10 {
			if _, err := w.Append(Entry{Data: fmt.Appendf(nil, "order %d of epoch %d", i, epoch)}, 0); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	r, err := OpenReader(uri, ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	all, last := readAll(t, r)
	if last.NextSeq != 33 || last.LastEpoch != 3 {
		t.Errorf("last batch %+v: want next seq 33 of epoch 3", last)
	}
	for epoch := 1; epoch <= 3; epoch++ {
		if !bytes.Contains(all, fmt.Appendf(nil, "order 9 of epoch %d", epoch)) {
			t.Errorf("order 9 of epoch %d is not in the log", epoch)
		}
	}
}

func TestAppend_RingFull_IsFullUntilTheDrainReleases(t *testing.T) {
	uri := newRing(t, true)
	w := openWriter(t, uri, WriterOptions{Level: LevelVisible, Policy: PolicyReject})
	record := Entry{Data: make([]byte, 4000)}
	var err error
	count := 0
	for ; err == nil; count++ {
		_, err = w.Append(record, 0)
	}
	if !errors.Is(err, ErrFull) || count < 200 {
		t.Fatalf("after %d records: %v, want ErrFull once the ring is", count, err)
	}
	if cursors := w.Cursors(); cursors.Pressure != 2 || cursors.AppendedLSN-cursors.HeadLSN > cursors.CapacityBytes {
		t.Errorf("cursors of a full ring: %+v", cursors)
	}
	r, err := OpenReader(uri, ReaderOptions{Drain: true})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	batch, err := r.Read(make([]byte, 256<<10))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Release(batch.NextLSN, batch.NextSeq, batch.LastEpoch); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Append(record, 0); err != nil {
		t.Errorf("after the release: %v", err)
	}
	if err := r.Release(0, 0, 0); !errors.Is(err, ErrInvalid) {
		t.Errorf("release backwards: %v, want ErrInvalid", err)
	}
}

func TestAppend_RingFull_BlockWaitsForTheDeadlineOnly(t *testing.T) {
	uri := newRing(t, true)
	w := openWriter(t, uri, WriterOptions{Level: LevelVisible})
	entries := make([]Entry, 1000)
	for i := range entries {
		entries[i].Data = make([]byte, 4000)
	}
	positions := make([]Position, len(entries))
	done, submitted, err := w.AppendBatch(entries, 20*time.Millisecond, positions)
	if !errors.Is(err, ErrFull) || done != submitted || done == 0 || done == len(entries) {
		t.Fatalf("batch into a small ring: done %d, submitted %d, %v; want some of both and ErrFull", done, submitted,
			err)
	}
	if _, err := w.Append(Entry{Data: make([]byte, 4000)}, time.Millisecond); !errors.Is(err, ErrFull) {
		t.Errorf("append to a full ring: %v, want ErrFull at its deadline", err)
	}
}

func TestAppend_TooLarge_WritesNothing(t *testing.T) {
	w := openWriter(t, newRing(t, true), WriterOptions{Level: LevelVisible})
	before := w.Cursors()
	if _, err := w.Append(Entry{Data: make([]byte, 1<<19)}, 0); !errors.Is(err, ErrTooLarge) {
		t.Errorf("append: %v, want ErrTooLarge", err)
	}
	if after := w.Cursors(); after.AppendedLSN != before.AppendedLSN {
		t.Errorf("appended moved from %d to %d", before.AppendedLSN, after.AppendedLSN)
	}
}

func TestFence_StopsTheWriterAndRaisesTheNextEpoch(t *testing.T) {
	uri := newRing(t, false)
	w := openWriter(t, uri, WriterOptions{})
	if err := Fence(uri, 9); err != nil {
		t.Fatal(err)
	}
	if position, err := w.Append(Entry{Data: []byte("zombie")}, 0); !errors.Is(err, ErrFenced) || position.Epoch != 9 {
		t.Errorf("append of a fenced writer: %+v, %v; want ErrFenced by epoch 9", position, err)
	}
	w.Close()
	if _, err := OpenWriter(uri, WriterOptions{Epoch: 5, CountersDir: "none"}); !errors.Is(err, ErrFenced) {
		t.Errorf("open with epoch 5: %v, want ErrFenced", err)
	}
	if got := openWriter(t, uri, WriterOptions{}).Recovery().Epoch; got != 9 {
		t.Errorf("next epoch %d, want 9", got)
	}
}

func TestSubmit_IsDurableAfterWait(t *testing.T) {
	w := openWriter(t, newRing(t, false), WriterOptions{})
	var last Position
	for range 100 {
		position, err := w.Submit(Entry{Data: []byte("burst")})
		if err != nil {
			t.Fatal(err)
		}
		if position.Level != LevelPosted {
			t.Fatalf("submitted record claims level %s", position.Level)
		}
		last = position
	}
	if err := w.Wait(last.EndLSN, 0); err != nil {
		t.Fatal(err)
	}
	if durable, err := w.Poll(); err != nil || durable != last.EndLSN {
		t.Errorf("durable %d, %v; want %d", durable, err, last.EndLSN)
	}
	if err := w.Wait(last.EndLSN+64, 0); !errors.Is(err, ErrInvalid) {
		t.Errorf("wait beyond what was appended: %v, want ErrInvalid", err)
	}
	if position, err := w.Resolve(last.LSN, 0); err != nil || position.Seq != last.Seq ||
		position.Level != LevelPersistent {
		t.Errorf("resolve: %+v, %v", position, err)
	}
	if _, err := w.Resolve(last.EndLSN, 0); !errors.Is(err, ErrNotFound) {
		t.Errorf("resolve of what was never appended: %v, want ErrNotFound", err)
	}
}

func TestShared_ManyGoroutines_EveryRecordOnceAndInOrder(t *testing.T) {
	for _, onTmpfs := range []bool{true, false} {
		uri := newRing(t, onTmpfs)
		options := WriterOptions{CountersDir: "none"}
		if onTmpfs {
			options.Level = LevelVisible
		}
		s, err := OpenShared(uri, options)
		if err != nil {
			t.Fatal(err)
		}
		const writers, each = 8, 100
		var group sync.WaitGroup
		var mutex sync.Mutex
		seen := make(map[uint64]string)
		for g := range writers {
			group.Go(func() {
				previous := uint64(0)
				for i := range each {
					text := fmt.Sprintf("g%d-%d", g, i)
					position, err := s.Append(Entry{Data: []byte(text)}, 30*time.Second)
					if err != nil || position.Seq <= previous {
						t.Errorf("append %s: %+v, %v (previous seq %d)", text, position, err, previous)
						return
					}
					previous = position.Seq
					mutex.Lock()
					seen[position.Seq] = text
					mutex.Unlock()
				}
			})
		}
		group.Wait()
		if len(seen) != writers*each {
			t.Fatalf("%d distinct seqs for %d appends", len(seen), writers*each)
		}
		r, err := OpenReader(uri, ReaderOptions{})
		if err != nil {
			t.Fatal(err)
		}
		all, last := readAll(t, r)
		if last.NextSeq != writers*each+1 {
			t.Errorf("log holds %d records, want %d and the EPOCH record", last.NextSeq, writers*each)
		}
		for seq, text := range seen {
			if !bytes.Contains(all, []byte(text)) {
				t.Errorf("record %d (%s) was acknowledged and is not in the log", seq, text)
			}
		}
		r.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if _, err := s.Append(Entry{}, 0); !errors.Is(err, ErrClosed) {
			t.Errorf("append after close: %v, want ErrClosed", err)
		}
	}
}

func TestReader_FollowsAcrossManyLaps(t *testing.T) {
	uri := newRing(t, true)
	w := openWriter(t, uri, WriterOptions{Level: LevelVisible})
	r, err := OpenReader(uri, ReaderOptions{Drain: true})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := OpenReader(uri, ReaderOptions{Drain: true}); !errors.Is(err, ErrHeld) {
		t.Errorf("second drain: %v, want ErrHeld", err)
	}
	const count = 20000
	finished := make(chan error, 1)
	go func() {
		data := make([]byte, 3000)
		for i := range count {
			if _, err := w.Append(Entry{Data: data[:i%len(data)]}, 30*time.Second); err != nil {
				finished <- err
				return
			}
		}
		finished <- nil
	}()
	buf := make([]byte, 64<<10)
	records, next := uint64(0), uint64(0)
	for records < count+1 {
		batch, err := r.Read(buf)
		if errors.Is(err, ErrNotYet) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if batch.FirstLSN != next {
			t.Fatalf("batch begins at %d, want %d", batch.FirstLSN, next)
		}
		records, next = records+batch.RecordCount, batch.NextLSN
		if err := r.Release(batch.NextLSN, batch.NextSeq, batch.LastEpoch); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-finished; err != nil {
		t.Fatal(err)
	}
	if next < 10*ringSize {
		t.Errorf("only %d bytes went through the ring: not ten laps", next)
	}
}

func TestInspect_ShowsLagAndHolder(t *testing.T) {
	uri := newRing(t, false)
	w, err := OpenWriter(uri, WriterOptions{Name: "inspected", CountersDir: ""})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for range 5 {
		if _, err := w.Append(Entry{Data: []byte("x")}, 0); err != nil {
			t.Fatal(err)
		}
	}
	status, err := Inspect(uri)
	if err != nil {
		t.Fatal(err)
	}
	if !status.WriterHeld || status.DrainHeld || status.WriterEpoch != 1 || status.LagRecords != 6 ||
		status.StreamName != "test/orders" || status.OldestRecord.IsZero() ||
		!strings.Contains(status.WriterID, "name=inspected") {
		t.Errorf("status %+v", status)
	}
	counters, err := ReadCounters("", status.RingUUID)
	if err != nil {
		t.Fatal(err)
	}
	if counters.RecordCount() != 5 || counters.Quantile(0.5) <= 0 || counters.Quantile(1) < counters.Quantile(0.5) {
		t.Errorf("counters: %d records, p50 %s, max %s", counters.RecordCount(), counters.Quantile(0.5),
			counters.Quantile(1))
	}
	os.Remove(fmt.Sprintf("/dev/shm/farlog/%x.counters", status.RingUUID))
}

// A small batch after a large one: the pointers of the large one are no longer pinned.
func TestAppendBatch_SmallerAfterLarger(t *testing.T) {
	w := openWriter(t, newRing(t, true), WriterOptions{Level: LevelVisible})
	for count := 6; count > 0; count-- {
		entries := make([]Entry, count)
		for i := range entries {
			entries[i] = Entry{Data: fmt.Appendf(nil, "record %d of %d", i, count), Key: fmt.Appendf(nil, "K%d", i)}
		}
		if done, _, err := w.AppendBatch(entries, 30*time.Second, make([]Position, count)); err != nil ||
			done != count {
			t.Fatalf("batch of %d: done %d, %v", count, done, err)
		}
	}
}
