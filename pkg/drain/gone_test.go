package drain

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/store"
	"github.com/farlog/farlog/pkg/store/storetest"
)

// theft is a way to take a store's directory, or a part of it, from under a drain.
type theft struct {
	take func(*bench)
	back func(*bench) // nil: it is gone for good
	want error        // of the next run while it is away; nil: none is tried
}

func thefts() map[string]theft {
	const streamDir = "streams/test%2Forders"
	aside := func(b *bench) string { return b.store.Dir() + ".aside" }
	moveAside := func(b *bench) { b.must(os.Rename(b.store.Dir(), aside(b))) }
	bringBack := func(b *bench) {
		b.must(os.RemoveAll(b.store.Dir()))
		b.must(os.Rename(aside(b), b.store.Dir()))
	}
	return map[string]theft{
		"removed": {func(b *bench) { b.must(os.RemoveAll(b.store.Dir())) }, nil, store.ErrGone},
		"renamed": {moveAside, bringBack, store.ErrGone},
		"another store in its place": {func(b *bench) {
			moveAside(b)
			_, err := store.Open(b.store.Dir(), store.Options{Create: true})
			b.must(err)
		}, bringBack, store.ErrGone},
		"an older copy in its place": {func(b *bench) {
			moveAside(b)
			b.must(exec.Command("cp", "-a", b.store.Dir()+".copy", b.store.Dir()).Run())
		}, bringBack, ErrStoreBehind},
		"its stream removed": {
			func(b *bench) { b.must(os.RemoveAll(filepath.Join(b.store.Dir(), streamDir))) }, nil,
			ErrStoreBehind,
		},
		"its lock removed": {
			func(b *bench) { b.must(os.Remove(filepath.Join(b.store.Dir(), streamDir, "lock"))) },
			func(*bench) {}, nil,
		},
		"its segment removed": {func(b *bench) {
			b.must(os.Remove(filepath.Join(b.store.Dir(), streamDir,
				"0000000001.seg")))
		}, nil, nil},
	}
}

// What this proves, and how. A store's directory is taken from under a running drain, in each way that a hand on the
// machine has. The files that the drain has open can be written and synced as before, but nobody finds them: it must
// say so and release nothing more. What was appended since is then drained from the ring as soon as the store is back,
// and is in it once.
func TestRun_StoreIsTakenAway(t *testing.T) {
	for name, c := range thefts() {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, store.Options{})
			b.drainOne("one")
			b.must(exec.Command("cp", "-a", b.store.Dir(), b.store.Dir()+".copy").Run())
			ctx, cancel := context.WithTimeout(t.Context(), waitMax)
			defer cancel()
			config, progress := b.config(), make(chan Progress, 1)
			config.OnProgress = func(p Progress) {
				if b.isDrained(p) {
					select {
					case progress <- p:
					default:
					}
				}
			}
			ended := make(chan error, 1)
			b.append("two")
			go func() { ended <- Run(ctx, config) }()
			head := (<-progress).HeadLSN
			c.take(b)
			b.append("three")
			if err := <-ended; !errors.Is(err, store.ErrGone) || !strings.Contains(err.Error(), b.store.Dir()) {
				t.Fatalf("ended with %v, expected ErrGone that names the place", err)
			}
			b.expectHead(head)
			if c.want != nil {
				b.append("four")
				if err := Run(ctx, b.config()); !errors.Is(err, c.want) {
					t.Errorf("begun again: %v, expected %v", err, c.want)
				}
				b.expectHead(head)
			}
			if c.back != nil {
				c.back(b)
				b.drainOne("last")
				want := []string{"one", "two", "three", "four", "last"}
				if c.want == nil {
					want = slices.Delete(want, 3, 4)
				}
				b.expectStored(want...)
			}
		})
	}
}

// A sealed segment is removed under a running drain, which never writes to it again: what was appended since stays in
// the ring, and is drained when the file is back.
func TestRun_SealedSegmentIsRemoved(t *testing.T) {
	b := newBench(t, store.Options{SegmentBytes: 128 << 10})
	for range 4 {
		b.append(strings.Repeat("x", 60<<10))
	}
	appenders := make(chan *store.Appender, 1)
	config := b.config()
	config.OnOpen = func(appender *store.Appender) { appenders <- appender }
	progress, stop := b.run(config)
	head := b.await(progress, "drained", b.isDrained).HeadLSN
	path := filepath.Join(b.store.Dir(), "streams/test%2Forders/0000000001.seg")
	b.must(os.Rename(path, path+".aside"))
	if err := (<-appenders).CheckSegments(); !errors.Is(err, store.ErrMissing) {
		t.Fatalf("%v, expected ErrMissing", err)
	}
	b.append("last")
	for range 2 {
		if err := stop(); !errors.Is(err, store.ErrMissing) || !strings.Contains(err.Error(), path) {
			t.Fatalf("ended with %v, expected ErrMissing that names the file", err)
		}
		b.expectHead(head)
		ended := make(chan error, 1)
		go func() { ended <- Run(t.Context(), b.config()) }()
		stop = func() error { return <-ended }
	}
	_ = stop()
	b.must(os.Rename(path+".aside", path))
	b.drainOne("after")
}

// A drain that opens its stream again, after a failure that the store could not undo, finds a directory that lacks what
// the ring has released: it stops before that.
func TestRun_StreamIsGoneWhenItIsOpenedAnew(t *testing.T) {
	disk := storetest.NewCrashFS(1)
	b := newBench(t, store.Options{FS: disk, SegmentBytes: 128 << 10})
	b.drainOne("one")
	status, err := farlog.Inspect(b.uri)
	b.must(err)
	b.append("two")
	d, err := open(t.Context(), b.config())
	b.must(err)
	defer d.close()
	batch, err := d.next()
	b.must(err)
	d.appender.Close()
	d.appender = nil
	for _, name := range []string{"0000000001.seg", "lock"} {
		b.must(disk.Remove("/store/streams/test%2Forders/" + name))
	}
	if err := d.persist(batch); !errors.Is(err, ErrStoreBehind) {
		t.Errorf("%v, expected ErrStoreBehind", err)
	}
	b.expectHead(status.HeadLSN)
}

// One byte rots of the records whose sync was the last one, and whose mark no power cut has left: the sound ones behind
// it are in this store alone.
func TestRun_StoreThatLostWhatWasReleasedKeepsTheRest(t *testing.T) {
	disk := storetest.NewCrashFS(1)
	b := newBench(t, store.Options{FS: disk, SegmentBytes: 128 << 10})
	b.append("one")
	b.append("two")
	b.drainOne("three")
	status, err := farlog.Inspect(b.uri)
	b.must(err)
	const name, first = "/store/streams/test%2Forders/0000000001.seg", 4096 + 128 // behind the EPOCH record
	var behind []byte
	b.must(disk.Change(name, func(data []byte) []byte {
		clear(data[512:1056]) // both marks
		data[first+57] ^= 1
		behind = bytes.Clone(data[first:])
		return data
	}))
	b.append("four")
	for range 2 {
		if err := Run(t.Context(), b.config()); !errors.Is(err, ErrStoreBehind) {
			t.Fatalf("%v, expected ErrStoreBehind", err)
		}
		b.expectHead(status.HeadLSN)
		if data, err := disk.Bytes(name); err != nil || !bytes.Equal(data[first:], behind) {
			t.Fatal("the bytes behind the damaged one were changed", err)
		}
	}
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// drainOne appends a record and drains all, with a drain that then ends.
func (b *bench) drainOne(payload string) {
	b.Helper()
	b.append(payload)
	progress, stop := b.run(b.config())
	b.await(progress, "drained", b.isDrained)
	b.must(stop())
}

// expectHead wants the ring to have released nothing beyond, and to have something.
func (b *bench) expectHead(head uint64) {
	b.Helper()
	status, err := farlog.Inspect(b.uri)
	b.must(err)
	if status.HeadLSN != head || status.AppendedLSN <= head {
		b.Errorf("the ring holds lsn %d to %d, expected it to keep all from %d on", status.HeadLSN, status.AppendedLSN,
			head)
	}
}
