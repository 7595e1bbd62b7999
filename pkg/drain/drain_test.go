package drain

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/store"
	"github.com/farlog/farlog/pkg/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const waitMax = time.Minute // it is never what a test measures

// bench is a ring in a plain file and a store beside it.
type bench struct {
	*testing.T
	uri    string
	path   string
	writer *farlog.Writer
	store  *store.Store
}

func newBench(t *testing.T, options store.Options) *bench {
	t.Helper()
	dir := t.TempDir()
	b := &bench{T: t, path: filepath.Join(dir, "orders.ring")}
	b.uri = "mem:" + b.path
	if err := farlog.Format(b.uri, farlog.FormatOptions{
		SizeBytes: 0x3000 + 1<<20, RecordLenMax: 64 << 10,
		StreamName: "test/orders", StreamID: 3,
	}); err != nil {
		t.Fatal(err)
	}
	b.openWriter()
	options.Create = true
	storeDir := filepath.Join(dir, "store")
	if options.FS != nil {
		storeDir = "/store"
	}
	opened, err := store.Open(storeDir, options)
	if err != nil {
		t.Fatal(err)
	}
	b.store = opened
	return b
}

func (b *bench) openWriter() {
	b.Helper()
	writer, err := farlog.OpenWriter(b.uri, farlog.WriterOptions{CountersDir: "none"})
	if err != nil {
		b.Fatal(err)
	}
	b.writer = writer
	b.Cleanup(func() { writer.Close() })
}

func (b *bench) append(payloads ...string) {
	b.Helper()
	for _, payload := range payloads {
		if _, err := b.writer.Append(farlog.Entry{Data: []byte(payload), Class: 1}, 10*time.Second); err != nil {
			b.Fatalf("append %.20q: %v", payload, err)
		}
	}
}

func (b *bench) config() Config {
	return Config{RingURI: b.uri, Store: b.store, Logger: slog.New(slog.DiscardHandler)}
}

// run drains in the background until stopped; progress comes out of the channel, the newest only.
func (b *bench) run(config Config) (progress chan Progress, stop func() error) {
	progress = make(chan Progress, 1)
	config.OnProgress = func(p Progress) {
		select {
		case <-progress:
		default:
		}
		progress <- p
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, config) }()
	return progress, func() error {
		cancel()
		return <-ended
	}
}

func (b *bench) await(progress chan Progress, what string, isMet func(Progress) bool) Progress {
	b.Helper()
	timeout := time.After(waitMax)
	for {
		select {
		case p := <-progress:
			if isMet(p) {
				return p
			}
		case <-timeout:
			b.Fatalf("waited %s until %s", waitMax, what)
		}
	}
}

func (b *bench) isDrained(p Progress) bool {
	return p.HeadLSN == b.writer.Cursors().AppendedLSN
}

func (b *bench) stored() []string {
	b.Helper()
	reader, err := b.store.OpenReader("test/orders", store.ReaderOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer reader.Close()
	var payloads []string
	for {
		item, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return payloads
		}
		if err != nil {
			b.Fatal(err)
		}
		payloads = append(payloads, string(item.Payload))
	}
}

func (b *bench) expectStored(want ...string) {
	b.Helper()
	if got := b.stored(); strings.Join(got, "\n") != strings.Join(want, "\n") {
		b.Errorf("the store has %.60q, expected %.60q", got, want)
	}
}

func TestRun_StoresInOrderAndReleases(t *testing.T) {
	b := newBench(t, store.Options{})
	progress, stop := b.run(b.config())
	b.append("one", "two", "three")
	p := b.await(progress, "drained", b.isDrained)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if p.StoredLSN != p.HeadLSN || p.LagBytes != 0 || p.Records != 4 || p.Stream != "test/orders" || p.LastEpoch != 1 {
		t.Errorf("progress %+v: expected 3 records and the EPOCH record, no lag", p)
	}
	if cursors := b.writer.Cursors(); cursors.HeadLSN != cursors.AppendedLSN {
		t.Errorf("the writer's credit is %d, expected %d", cursors.HeadLSN, cursors.AppendedLSN)
	}
	b.expectStored("one", "two", "three")
}

func TestRun_RecordLargerThanTheBatchGrowsTheBuffer(t *testing.T) {
	b := newBench(t, store.Options{})
	config := b.config()
	config.BatchBytes = 4096
	large := strings.Repeat("x", 40<<10)
	b.append("small", large, "small again")
	progress, stop := b.run(config)
	b.await(progress, "drained", b.isDrained)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	b.expectStored("small", large, "small again")
}

func TestRun_BatchLargerThanASegmentIsCut(t *testing.T) {
	b := newBench(t, store.Options{SegmentBytes: 128 << 10})
	var want []string
	for i := range 15 {
		want = append(want, fmt.Sprint(i)+strings.Repeat("x", 50<<10))
	}
	b.append(want...)
	progress, stop := b.run(b.config())
	p := b.await(progress, "drained", b.isDrained)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	// How much is read grows with the batches: the third one is of 14 records, more than a segment takes.
	if p.Batches != 3 || p.Duplicates != 0 {
		t.Errorf("%d batches, %d duplicates: expected 3 and 0", p.Batches, p.Duplicates)
	}
	b.expectStored(want...)
}

// A drain that died between sync and release: the next one finds the records in the store and moves the head alone.
func TestRun_StoredButNotReleasedIsNotStoredTwice(t *testing.T) {
	b := newBench(t, store.Options{})
	b.append("one", "two")
	d, err := open(context.Background(), b.config())
	if err != nil {
		t.Fatal(err)
	}
	batch, err := d.read()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.persist(batch); err != nil {
		t.Fatal(err)
	}
	d.close()
	b.append("three")
	progress, stop := b.run(b.config())
	p := b.await(progress, "drained", b.isDrained)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if p.Duplicates != 3 || p.Records != 1 {
		t.Errorf("%d duplicates and %d records, expected 3 (one EPOCH) and 1", p.Duplicates, p.Records)
	}
	b.expectStored("one", "two", "three")
}

func TestRun_SecondDrainIsRefused(t *testing.T) {
	b := newBench(t, store.Options{})
	progress, stop := b.run(b.config())
	b.await(progress, "the first runs", func(Progress) bool { return true })
	if err := Run(context.Background(), b.config()); !errors.Is(err, farlog.ErrHeld) {
		t.Errorf("second drain: %v, expected ErrHeld", err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}

func TestRun_OtherRingIsRefused(t *testing.T) {
	b := newBench(t, store.Options{})
	config := b.config()
	config.RingUUID = [16]byte{1}
	if err := Run(context.Background(), config); !errors.Is(err, farlog.ErrNotARing) {
		t.Errorf("%v, expected ErrNotARing", err)
	}
}

func TestRun_StoreBehindTheHeadIsRefused(t *testing.T) {
	b := newBench(t, store.Options{})
	b.append("one")
	progress, stop := b.run(b.config())
	b.await(progress, "drained", b.isDrained)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	other, err := store.Open(filepath.Join(t.TempDir(), "other"), store.Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	status, err := farlog.Inspect(b.config().RingURI)
	if err != nil || status.HeadLSN == 0 {
		t.Fatal(status.HeadLSN, err)
	}
	// what was given up ends before the head: more is missing than anybody has said
	for _, lost := range []uint64{0, status.HeadLSN - 1} {
		config := b.config()
		config.Store, config.LostLSN = other, lost
		if err := Run(context.Background(), config); !errors.Is(err, ErrStoreBehind) ||
			!strings.Contains(err.Error(), other.Dir()) {
			t.Errorf("lost up to %d: %v, expected ErrStoreBehind that names the store", lost, err)
		}
	}
	b.drainsInto(other, status.HeadLSN)
	third, err := store.Open(filepath.Join(t.TempDir(), "third"), store.Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	b.drainsInto(third, 1<<40)
	config := b.config()
	config.Store, config.LostLSN = other, 1<<40
	// it has a part of the ring: there would be a hole in it
	if err := Run(context.Background(), config); !errors.Is(err, ErrStoreBehind) {
		t.Errorf("%v, expected ErrStoreBehind", err)
	}
}

// drainsInto appends a record, drains it into a store that is told of a loss, and looks that it is the first one there.
func (b *bench) drainsInto(into *store.Store, lost uint64) {
	b.Helper()
	before, err := farlog.Inspect(b.config().RingURI)
	if err != nil {
		b.Fatal(err)
	}
	b.append("behind the loss")
	config := b.config()
	config.Store, config.LostLSN = into, lost
	progress, stop := b.run(config)
	b.await(progress, "drained", b.isDrained)
	if err := stop(); err != nil {
		b.Fatal(err)
	}
	report, err := into.Verify(b.Context(), store.VerifyOptions{})
	if err != nil || len(report.Streams) != 1 || len(report.Streams[0].Generations) != 1 {
		b.Fatal(report, err)
	}
	begin := fmt.Sprintf("; this store begins at lsn %d, seq ", before.HeadLSN)
	if one := report.Streams[0]; one.Generations[0].FirstLSN != before.HeadLSN || one.Records != 1 || !report.OK() ||
		!strings.Contains(one.Statement(), begin) {
		b.Errorf("%s; expected %q, one record", one.Statement(), begin)
	}
}

func TestRun_FullDiskIsWaitedFor(t *testing.T) {
	for _, batchBytes := range []int{BatchBytesDefault, 64 << 10} { // the next batch is not read ahead, and is
		t.Run(fmt.Sprint(batchBytes), func(t *testing.T) { drainOntoFullDisk(t, batchBytes) })
	}
}

func drainOntoFullDisk(t *testing.T, batchBytes int) {
	disk := storetest.NewCrashFS(1)
	b := newBench(t, store.Options{FS: disk, SegmentBytes: 128 << 10})
	config := b.config()
	config.BatchBytes = batchBytes
	progress, stop := b.run(config)
	b.append("before")
	b.await(progress, "drained", b.isDrained)
	disk.LimitSpace(0)
	var want []string
	for i := range 8 { // more than the segment in use and the one that is prepared take
		want = append(want, fmt.Sprint(i)+strings.Repeat("x", 60<<10))
	}
	b.append(want...)
	p := b.await(progress, "the drain is stuck", func(p Progress) bool { return p.Retries > 2 })
	if !strings.Contains(p.LastError, store.ErrNoSpace.Error()) {
		t.Errorf("last error %q, expected %q in it", p.LastError, store.ErrNoSpace)
	}
	disk.LimitSpace(-1)
	p = b.await(progress, "drained", b.isDrained)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if p.LastError != "" {
		t.Errorf("last error %q after there was space again", p.LastError)
	}
	b.expectStored(append([]string{"before"}, want...)...)
}

func TestRun_StopsWhileTheDiskIsFull(t *testing.T) {
	disk := storetest.NewCrashFS(1)
	b := newBench(t, store.Options{FS: disk})
	disk.LimitSpace(0)
	b.append("one")
	progress, stop := b.run(b.config())
	b.await(progress, "the drain is stuck", func(p Progress) bool { return p.LastError != "" })
	if err := stop(); err != nil {
		t.Error(err)
	}
	if head := b.writer.Cursors().HeadLSN; head != 0 {
		t.Errorf("head %d was released without a store", head)
	}
}

// The media lost a record that was acknowledged: the drain names ring and lsn, and does not go past it.
func TestRun_UnreadableRecordIsNotSkipped(t *testing.T) {
	b := newBench(t, store.Options{})
	b.append("one")
	damagedLSN := b.writer.Cursors().AppendedLSN
	b.append("damaged", "three")
	if err := b.writer.Close(); err != nil { // its last words are the hints
		t.Fatal(err)
	}
	raw, err := os.ReadFile(b.path)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(raw, []byte("damaged"))
	raw[at] ^= 0x20
	if err := os.WriteFile(b.path, raw, 0); err != nil {
		t.Fatal(err)
	}
	err = Run(context.Background(), b.config())
	if !errors.Is(err, farlog.ErrCorrupt) || !strings.Contains(err.Error(), b.uri) ||
		!strings.Contains(err.Error(), fmt.Sprintf("lsn %d", damagedLSN)) {
		t.Errorf("%v, expected ErrCorrupt that names ring %s and lsn %d", err, b.uri, damagedLSN)
	}
	b.expectStored("one")
	expectQuietRetry(t, b)
}

// expectQuietRetry: who tries again for as long as the ring is damaged does not log each time that the drain has
// started.
func expectQuietRetry(t *testing.T, b *bench) {
	t.Helper()
	var log bytes.Buffer
	config := b.config()
	config.Logger = slog.New(slog.NewTextHandler(&log, nil))
	for _, config.IsRetry = range []bool{false, true, true} {
		if err := Run(context.Background(), config); !errors.Is(err, farlog.ErrCorrupt) {
			t.Fatal(err)
		}
	}
	if count := strings.Count(log.String(), "drain started"); count != 1 {
		t.Errorf("%d times, expected once, of a run and two retries that ended the same way:\n%s", count, log.String())
	}
	raw, err := os.ReadFile(b.path)
	if err != nil {
		t.Fatal(err)
	}
	raw[bytes.Index(raw, []byte("Damaged"))] ^= 0x20
	if err := os.WriteFile(b.path, raw, 0); err != nil {
		t.Fatal(err)
	}
	log.Reset()
	progress, stop := b.run(config)
	b.await(progress, "all is stored", func(p Progress) bool { return p.Batches > 0 })
	if err := stop(); err != nil {
		t.Error(err)
	}
	if count := strings.Count(log.String(), "drain started"); count != 1 {
		t.Errorf("%d times, expected once, of a retry that went on:\n%s", count, log.String())
	}
}

func TestRun_FollowsTheNextWriter(t *testing.T) {
	b := newBench(t, store.Options{})
	progress, stop := b.run(b.config())
	for i := range 3 {
		b.append(fmt.Sprint("epoch ", i))
		if err := b.writer.Close(); err != nil {
			t.Fatal(err)
		}
		b.openWriter()
	}
	p := b.await(progress, "drained", b.isDrained)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if p.LastEpoch != 4 {
		t.Errorf("last epoch %d, expected 4", p.LastEpoch)
	}
	b.expectStored("epoch 0", "epoch 1", "epoch 2")
}
