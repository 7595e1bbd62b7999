package drain

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/store"
)

const (
	farRingCount = 32
	roundCount   = 10
	judgedMax    = 10 // measurements, until one can be judged
)

// farBench is a target with many rings, in this process, and a drain of each from afar. Their writers are local.
type farBench struct {
	*testing.T
	target  *farlog.Target
	writers []*farlog.Writer
	configs []Config
	unseen  int // steps of a drain whose page did not have its ring: torn, or not believed since it stood still
}

func newFarBench(t *testing.T, count int, tails *Tails) *farBench {
	t.Helper()
	return newFarBenchAt(t, "ofi:tcp://127.0.0.1:0", count, tails)
}

func newFarBenchAt(t *testing.T, listen string, count int, tails *Tails) *farBench {
	t.Helper()
	target, err := farlog.OpenTarget(listen)
	if errors.Is(err, farlog.ErrUnsupported) {
		t.Skipf("no libfabric: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(target.Close)
	opened, err := store.Open(filepath.Join(t.TempDir(), "store"), store.Options{Create: true, SegmentBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	b := &farBench{T: t, target: target}
	for i := range count {
		b.add(opened, i, tails)
	}
	return b
}

// add makes a ring, serves it, and grants a drain.
func (b *farBench) add(opened *store.Store, i int, tails *Tails) {
	b.Helper()
	near := "mem:" + filepath.Join(b.TempDir(), "ring")
	name := fmt.Sprintf("far/%d", i)
	token := [farlog.TokenLen]byte{1, byte(i)}
	if err := farlog.Format(near, farlog.FormatOptions{
		SizeBytes: 0x3000 + 1<<18, RecordLenMax: 4 << 10,
		StreamName: name,
	}); err != nil {
		b.Fatal(err)
	}
	writer, err := farlog.OpenWriter(near, farlog.WriterOptions{CountersDir: "none"})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { writer.Close() })
	if err := b.target.Serve(name, near, "tenant"); err != nil {
		b.Fatal(err)
	}
	if err := b.target.Grant(name, farlog.TargetGrant{Role: farlog.GrantDrain, Token: token}); err != nil {
		b.Fatal(err)
	}
	config := (&bench{T: b.T, uri: b.target.URI() + "/" + name, store: opened}).config()
	config.Token, config.Tails, config.BatchBytes = &token, tails, 64<<10
	b.writers, b.configs = append(b.writers, writer), append(b.configs, config)
}

func (b *farBench) append(i int) {
	b.Helper()
	if _, err := b.writers[i].Append(farlog.Entry{Data: []byte("record"), Class: 1}, 10*time.Second); err != nil {
		b.Fatal(err)
	}
}

// open gives drainers that nobody runs: the test steps them.
func (b *farBench) open() []*drainer {
	b.Helper()
	var drainers []*drainer
	for _, config := range b.configs {
		d, err := open(context.Background(), config)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { d.close() })
		drainers = append(drainers, d)
	}
	return drainers
}

// round steps every drainer once; how many had something.
func (b *farBench) round(drainers []*drainer) (busy int) {
	b.Helper()
	for _, d := range drainers {
		isIdle, err := d.step(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		if !isIdle {
			busy++
		}
		if !isSeen(d) {
			b.unseen++
		}
	}
	return busy
}

func isSeen(d *drainer) bool {
	if d.watch.page == nil {
		return false
	}
	_, isThere := d.watch.page.tails[d.source.RingUUID]
	return isThere
}

// judged measures until every drain has seen its ring on its page all the while. A page that stands still, since the
// thread that keeps it was not run for 200 ms, is rightly not believed, and its rings are looked at themselves.
func (b *farBench) judged(measure func()) {
	b.Helper()
	for range judgedMax {
		before := b.unseen
		measure()
		if b.unseen == before {
			return
		}
	}
	b.Fatalf("%d measurements, and in each a page that could not be believed", judgedMax)
}

// settle steps until all have drained what there is and are quiet by the page.
func (b *farBench) settle(drainers []*drainer) {
	b.Helper()
	deadline := time.Now().Add(waitMax)
	for quiet := 0; quiet < len(drainers); {
		b.round(drainers)
		quiet = 0
		for _, d := range drainers {
			if d.watch.isQuiet {
				quiet++
			}
		}
		if time.Now().After(deadline) {
			b.Fatalf("%d of %d rings are quiet after %s", quiet, len(drainers), waitMax)
		}
	}
}

// drained steps until one of them has come that far.
func (b *farBench) drained(drainers []*drainer, one *drainer, lsn uint64) {
	b.Helper()
	for deadline := time.Now().Add(waitMax); one.progress.HeadLSN < lsn; {
		b.round(drainers)
		if time.Now().After(deadline) {
			b.Fatalf("nothing up to lsn %d was drained in %s", lsn, waitMax)
		}
	}
}

// reads counts all READs: those of the rings and those of the pages.
func reads(tails *Tails, drainers []*drainer) (count uint64) {
	for _, d := range drainers {
		count += d.reader.Reads()
	}
	for _, pages := range tails.pages {
		for _, p := range pages {
			count += p.handle.Reads()
		}
	}
	return count
}

// Idle rounds over 32 rings of one target cost one READ each, in place of one or two for each ring. The page's age and
// the drains' own looks are left out of it here: they go by the clock. A connection that is made again, on a machine
// that stands still for seconds, looks at its ring once as well, and no drain does: what a drain does is there every
// time.
func TestTails_IdleRoundOverManyRingsIsOneRead(t *testing.T) {
	tails := NewTails()
	tails.trust, tails.ageMax = time.Hour, time.Hour
	b := newFarBench(t, farRingCount, tails)
	drainers := b.open()
	b.settle(drainers)
	var got uint64
	for tries := 0; got != roundCount && tries < 3; tries++ {
		b.judged(func() {
			before := reads(tails, drainers)
			for range roundCount {
				if busy := b.round(drainers); busy > 0 {
					t.Fatalf("%d drains of idle rings had something", busy)
				}
			}
			got = reads(tails, drainers) - before
		})
	}
	if got != roundCount {
		t.Errorf("%d idle rounds over %d rings took %d READs, expected %d", roundCount, farRingCount, got, roundCount)
	}
	if pages := tails.pages[b.target.URI()]; len(pages) != 1 || pages[0].users != farRingCount {
		t.Errorf("%d pages for one tenant of one target", len(pages))
	}
}

// What comes into one ring is drained, by its drain alone, and so is what a new writer brings. On a machine that stands
// still for seconds a connection may be made again, which looks at its ring once; what is asked for is that a page with
// something new is no reason to look at the others, and such a reason would be there every time.
func TestTails_RecordInOneRingIsDrained(t *testing.T) {
	tails := NewTails()
	tails.trust, tails.ageMax = time.Hour, time.Hour
	b := newFarBench(t, 4, tails)
	drainers := b.open()
	b.settle(drainers)
	for i := range 20 {
		one := drainers[i%len(drainers)]
		other := drainers[(i+1)%len(drainers)]
		got := uint64(1)
		for tries := 0; got != 0 && tries < 3; tries++ {
			b.judged(func() {
				before := other.reader.Reads()
				b.append(i % len(drainers))
				b.drained(drainers, one, one.progress.HeadLSN+1)
				b.settle(drainers)
				got = other.reader.Reads() - before
			})
		}
		if got != 0 {
			t.Errorf("%d READs of a ring into which nothing came", got)
		}
	}
}

// A page that says nothing has come although something has delays a record, and no more.
func TestTails_PageThatStandsStill(t *testing.T) {
	tails := NewTails()
	b := newFarBench(t, 2, tails)
	drainers := b.open()
	b.settle(drainers)
	p := drainers[0].watch.page
	p.mutex.Lock()
	p.reading, p.readAt = 1<<62, time.Now().Add(time.Hour) // nobody reads it any more
	p.mutex.Unlock()
	b.append(0)
	for deadline := time.Now().Add(waitMax); drainers[0].progress.Records < 2; { // the EPOCH record is the first
		b.round(drainers)
		if time.Now().After(deadline) {
			t.Fatalf("not drained in %s", waitMax)
		}
	}
}

// The page is opened by one ring's grant. When that goes, the other drains find a page by their own.
func TestTails_GrantThatOpenedThePageGoes(t *testing.T) {
	tails := NewTails()
	tails.trust = time.Hour
	b := newFarBench(t, 2, tails)
	drainers := b.open()
	b.settle(drainers)
	first := drainers[0].watch.page
	drainers[0].close()
	if err := b.target.Forget("far/0"); err != nil {
		t.Fatal(err)
	}
	rest := drainers[1:]
	for deadline := time.Now().Add(waitMax); rest[0].watch.page == first || !rest[0].watch.isQuiet; {
		b.round(rest)
		if time.Now().After(deadline) {
			t.Fatalf("no other page in %s", waitMax)
		}
	}
	b.append(1)
	for deadline := time.Now().Add(waitMax); rest[0].progress.Records < 2; {
		b.round(rest)
		if time.Now().After(deadline) {
			t.Fatalf("not drained in %s", waitMax)
		}
	}
}
