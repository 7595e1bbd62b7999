package replica

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/farlog/farlog/pkg/store"
	"github.com/farlog/farlog/pkg/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// site is a store in a file system that can lose its power.
type site struct {
	fs    *storetest.CrashFS
	store *store.Store
}

func (s *site) open() (err error) {
	s.store, err = store.Open("/store", store.Options{
		Create: true, FS: s.fs, SegmentBytes: 32 << 10,
		IsSynchronous: true, Now: func() time.Time { return time.Unix(1763700000, 0) },
	})
	return err
}

// pair is two sites: the first with a ring and a drain, the second with a replica of it.
type pair struct {
	rng           *rand.Rand
	first, second site
	ring          *storetest.Ring
	app           *store.Appender
	rings         uint64
	source        *StoreSource
	server        *httptest.Server // nil: the second site sees the first one's files
	follower      *follower
}

func newPair(seed uint64, isFar bool) (*pair, error) {
	p := &pair{
		rng: rand.New(rand.NewPCG(seed, 9)), first: site{fs: storetest.NewCrashFS(seed)},
		second: site{fs: storetest.NewCrashFS(seed + 1)},
	}
	p.ring = storetest.NewRing("desk7/orders", seed)
	if err := errors.Join(p.openFirst(isFar), p.openSecond()); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *pair) openFirst(isFar bool) (err error) {
	if err := p.first.open(); err != nil {
		return err
	}
	if p.app, err = p.first.store.OpenStream(p.ring.Source); err != nil {
		return err
	}
	p.source = NewStoreSource(p.first.store)
	if isFar || p.server != nil {
		if p.server != nil {
			p.server.Close()
		}
		p.server = httptest.NewServer(Handler(p.source, everybody{}))
	}
	if p.follower != nil {
		p.follower.config.Source = p.asked()
	}
	return nil
}

func (p *pair) asked() Source {
	if p.server == nil {
		return p.source
	}
	return NewHTTPSource(p.server.URL, p.server.Client())
}

func (p *pair) openSecond() error {
	if err := p.second.open(); err != nil {
		return err
	}
	p.follower = &follower{stream: "desk7/orders", config: Config{
		Source: p.asked(), Store: p.second.store,
		Logger: slog.New(slog.DiscardHandler), pieceBytes: 16 << 10,
	}}
	return p.follower.findPlace()
}

func (p *pair) close() {
	if p.server != nil {
		p.server.Close()
	}
}

// feed lets the drain of the first site store what it does not have, some of it in vain.
func (p *pair) feed() error {
	p.ring.Append(p.rng.IntN(20), 900)
	if p.rng.IntN(4) == 0 {
		// a power cut of the ring undoes its end
		p.ring.OpenEpochAt(p.ring.Records[p.rng.IntN(len(p.ring.Records))].LSN)
	}
	last := p.app.Last()
	for _, rec := range p.ring.Records {
		if last.OK && (rec.Epoch < last.Epoch || rec.Epoch == last.Epoch && rec.LSN <= last.LSN) {
			continue
		}
		if _, _, err := p.app.Append(rec.Raw); err != nil {
			return err
		}
	}
	if p.rng.IntN(3) == 0 {
		return nil // not synced: the second site must not see it
	}
	return p.app.Sync()
}

// newRing formats the stream's ring again: a generation.
func (p *pair) newRing() error {
	if err := p.app.Close(); err != nil {
		return err
	}
	p.rings++
	p.ring = storetest.NewRing("desk7/orders", p.rng.Uint64())
	var err error
	p.app, err = p.first.store.OpenStream(p.ring.Source)
	return err
}

// copy does one round of the replica.
func (p *pair) copy() (isEnd bool, err error) {
	f := p.follower
	next := f.place
	next.LSN++
	if f.place.Generation == 0 {
		next = store.Place{}
	}
	batch, err := f.config.Source.Read(context.Background(), f.stream, next)
	if errors.Is(err, store.ErrNotFound) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return batch.IsEnd, f.put(batch)
}

// compare: the second store is what the first one begins with.
func (p *pair) compare(isWhole bool) error {
	list, err := store.Compare(context.Background(), p.first.store, p.second.store, "")
	if err != nil {
		return err
	}
	for _, one := range list {
		if one.Difference != "" || one.OnlyThere != 0 || isWhole && (one.OnlyHere != 0 || one.Records == 0) {
			return fmt.Errorf("%+v", one)
		}
	}
	return nil
}

// Both ends lose their power or are killed at any operation, rings are formatted again and undo what was not
// acknowledged. After each crash the second store is a beginning of the first, record for record, and in the end all of
// it, sound by itself.
func testCrashes(t *testing.T, seed uint64, rounds int, isFar bool) error {
	p, err := newPair(seed, isFar)
	if err != nil {
		return err
	}
	defer p.close()
	for range rounds {
		act, err := p.rng.IntN(10), error(nil)
		if p.rng.IntN(3) == 0 {
			[]*site{&p.first, &p.second}[p.rng.IntN(2)].fs.CrashAfter(p.rng.IntN(20))
		}
		switch {
		case act < 5:
			err = p.feed()
		case act == 9 && p.rng.IntN(3) == 0:
			err = p.newRing()
		default:
			_, err = p.copy()
		}
		isDown := p.first.fs.IsCrashed() || p.second.fs.IsCrashed()
		if err != nil && !isDown {
			return err
		}
		if isDown {
			if err := p.comeUp(); err != nil {
				return err
			}
		}
		p.first.fs.CrashAfter(-1)
		p.second.fs.CrashAfter(-1)
	}
	return p.finish()
}

// comeUp restarts whatever lost its power, and sometimes the other site as well.
func (p *pair) comeUp() error {
	if p.first.fs.IsCrashed() {
		p.down(p.first.fs)
		if err := p.openFirst(false); err != nil {
			return err
		}
	}
	if p.second.fs.IsCrashed() || p.rng.IntN(3) == 0 {
		p.down(p.second.fs)
		if err := p.openSecond(); err != nil {
			return err
		}
	}
	return p.compare(false)
}

func (p *pair) down(fs *storetest.CrashFS) {
	if p.rng.IntN(2) == 0 {
		fs.Crash()
	} else {
		fs.Kill()
	}
}

func (p *pair) finish() error {
	p.ring.Append(3, 100)
	if err := p.feed(); err != nil {
		return err
	}
	if err := p.app.Sync(); err != nil {
		return err
	}
	for isEnd := false; !isEnd; {
		var err error
		if isEnd, err = p.copy(); err != nil {
			return err
		}
	}
	if err := p.compare(true); err != nil {
		return err
	}
	if err := p.follower.close(); err != nil {
		return err
	}
	report, err := p.second.store.Verify(context.Background(), store.VerifyOptions{})
	if err != nil {
		return err
	}
	if !report.OK() {
		return errors.New(report.Streams[0].Statement())
	}
	here, err := p.first.store.StreamBytes("desk7/orders")
	if err != nil {
		return err
	}
	if there, err := p.second.store.StreamBytes("desk7/orders"); err != nil || here != there {
		return fmt.Errorf("%d bytes at the first site, %d at the second: %w", here, there, err)
	}
	return nil
}

func TestReplica_CrashesOfBothSitesLoseNothing(t *testing.T) {
	// a segment that was left empty became another ring's under the reader
	for _, seed := range []uint64{1795368518680603898, 1795368518681695217} {
		if err := testCrashes(t, seed, 60, false); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	base := uint64(time.Now().UnixNano())
	for i := range uint64(150) {
		if err := testCrashes(t, base+i, 60, i%5 == 0); err != nil {
			t.Fatalf("seed %d: %v", base+i, err)
		}
	}
}

// liar gives the records of a store with one bit of them changed, once.
type liar struct {
	Source
	at int
}

func (l *liar) Read(ctx context.Context, stream string, from store.Place) (Batch, error) {
	batch, err := l.Source.Read(ctx, stream, from)
	if err == nil && l.at < len(batch.Records) {
		batch.Records[l.at] ^= 4
		l.at = 1 << 30
	}
	return batch, err
}

// A record that is altered on its way is not stored: the next attempt gets it whole.
func TestReplica_AlteredRecordIsRefused(t *testing.T) {
	p, err := newPair(5, false)
	if err != nil {
		t.Fatal(err)
	}
	p.ring.Append(10, 500)
	if _, _, err := p.app.Append(storetest.Batch(p.ring.Records)); err != nil {
		t.Fatal(err)
	}
	if err := p.app.Sync(); err != nil {
		t.Fatal(err)
	}
	for _, at := range []int{8, 40, 200, 300} {
		p.follower.config.Source = &liar{p.source, at}
		if _, err := p.copy(); err == nil || !strings.Contains(err.Error(), "from the first site") {
			t.Fatalf("byte %d is another: error is %v", at, err)
		}
	}
	if _, err := p.copy(); err != nil {
		t.Fatal(err)
	}
	if err := p.compare(true); err != nil {
		t.Fatal(err)
	}
}

// Run follows what comes, says how far it is behind, and ends when it is told to.
func TestReplica_RunFollows(t *testing.T) {
	p, err := newPair(6, true)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	r := New(Config{
		Source: p.asked(), Store: p.second.store, PollInterval: time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	r.config.pieceBytes = 16 << 10
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { r.Run(ctx); close(ended) }()
	for range 5 {
		p.ring.Append(20, 500)
		last := p.app.Last()
		for _, rec := range p.ring.Records {
			if !last.OK || rec.LSN > last.LSN {
				if _, _, err := p.app.Append(rec.Raw); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := p.app.Sync(); err != nil {
			t.Fatal(err)
		}
		end := p.app.Last().LSN
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
			list, failure := r.Progress()
			if len(list) == 1 && list[0].Place.LSN == end && list[0].LagBytes == 0 && list[0].LastError == "" &&
				failure == "" {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%+v, %q: does not come to lsn %d", list, failure, end)
			}
		}
	}
	cancel()
	<-ended
	if err := p.compare(true); err != nil {
		t.Fatal(err)
	}
}

// A replica that is started while the first site does not answer tells of each stream that it has, that nobody knows
// how far it is behind; and goes on when that site is back.
func TestReplica_StartedWhileTheFirstSiteIsAway(t *testing.T) {
	p, err := newPair(8, false)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	if err := errors.Join(p.feed(), p.app.Sync(), p.finish()); err != nil {
		t.Fatal(err)
	}
	var isUp atomic.Bool
	r := New(Config{
		Source: &switched{Source: p.source, isUp: &isUp}, Store: p.second.store,
		PollInterval: time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { r.Run(ctx); close(ended) }()
	defer func() { cancel(); <-ended }()
	until := func(what string, isSo func(list []Progress, failure string) bool) {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
			list, failure := r.Progress()
			if isSo(list, failure) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: %+v, %q", what, list, failure)
			}
		}
	}
	until("it stands and the lag is not known", func(list []Progress, failure string) bool {
		return failure != "" && len(list) == 1 && list[0].Stream == "desk7/orders" && list[0].LastError != "" &&
			!list[0].IsLagKnown && list[0].LagAge > 0
	})
	isUp.Store(true)
	until("it goes on", func(list []Progress, failure string) bool {
		return failure == "" && len(list) == 1 && list[0].LastError == "" && list[0].IsLagKnown && list[0].LagBytes == 0
	})
}

// switched is a first site that answers or does not.
type switched struct {
	Source
	isUp *atomic.Bool
}

func (s *switched) Changed(ctx context.Context, since string) (Changes, error) {
	if !s.isUp.Load() {
		return Changes{}, errors.New("nobody answers")
	}
	return s.Source.Changed(ctx, since)
}
