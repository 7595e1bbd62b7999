package consume_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/consume"
	"github.com/farlog/farlog/pkg/drain"
	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/store"
)

const waitMax = time.Minute // it is never what a test measures

// site is a ring in a file, its writer, and a store that a real drain fills when it is told to.
type site struct {
	*testing.T
	path, dir string
	ring      string // "": the one in path
	writer    *farlog.Writer
	store     *store.Store
	count     int // records appended
}

func newSite(t *testing.T) *site {
	t.Helper()
	dir := t.TempDir()
	s := &site{T: t, path: filepath.Join(dir, "a.ring"), dir: dir}
	s.must(farlog.Format(s.uri(), farlog.FormatOptions{
		SizeBytes: 0x3000 + 64<<10, RecordLenMax: 4096,
		StreamName: "desk7/orders",
	}))
	var err error
	s.store, err = store.Open(filepath.Join(dir, "store"), store.Options{Create: true, SegmentBytes: 32 << 10})
	s.must(err)
	s.openWriter()
	t.Cleanup(func() { s.writer.Close() })
	return s
}

func (s *site) uri() string {
	if s.ring != "" {
		return s.ring
	}
	return "mem:" + s.path
}

func (s *site) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *site) openWriter() {
	s.Helper()
	if s.writer != nil {
		s.must(s.writer.Close())
	}
	var err error
	s.writer, err = farlog.OpenWriter(s.uri(), farlog.WriterOptions{CountersDir: "none", Level: farlog.LevelPosted})
	s.must(err)
}

func (s *site) append(count int) {
	s.Helper()
	for range count {
		_, err := s.writer.Append(farlog.Entry{
			Data: fmt.Appendf(nil, "order %d", s.count),
			Key:  fmt.Appendf(nil, "K%d", s.count%3), Class: uint16(s.count % 4),
		}, waitMax)
		s.must(err)
		s.count++
	}
}

// drained runs a drain until everything that was appended is stored and released.
func (s *site) drained() {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitMax)
	defer cancel()
	end := s.writer.Cursors().AppendedLSN
	isDone := false
	s.must(drain.Run(ctx, drain.Config{
		RingURI: s.uri(), Store: s.store, Logger: slog.New(slog.DiscardHandler),
		OnProgress: func(p drain.Progress) {
			if p.HeadLSN >= end {
				isDone = true
				cancel()
			}
		},
	}))
	if !isDone {
		s.Fatal("the drain did not come to the end")
	}
}

func (s *site) open(config consume.Config) *consume.Consumer {
	s.Helper()
	config.RingURI, config.Stream = s.uri(), "desk7/orders"
	c, err := consume.Open(config)
	s.must(err)
	s.Cleanup(func() { c.Close() })
	return c
}

// read gives payloads until there is nothing at present, or until max of them.
func (s *site) read(c *consume.Consumer, max int) (payloads []string) {
	s.Helper()
	for len(payloads) < max {
		item, err := c.Next()
		if errors.Is(err, farlog.ErrNotYet) {
			return payloads
		}
		s.must(err)
		payloads = append(payloads, string(item.Payload))
	}
	return payloads
}

func (s *site) expect(got []string, from, to int) {
	s.Helper()
	if len(got) != to-from {
		s.Fatalf("%d records, expected %d to %d: %.100v", len(got), from, to, got)
	}
	for i, payload := range got {
		if payload != fmt.Sprintf("order %d", from+i) {
			s.Fatalf("record %d is %q", from+i, payload)
		}
	}
}

const all = 1 << 30

// The first record that is wanted may lie in the store, in the ring, or in both: from each of them on every record
// comes once.
func TestConsumer_HistoryIsJoinedToTheRingAtEachPlace(t *testing.T) {
	s := newSite(t)
	s.append(60)
	s.drained()
	s.append(40)
	s.openWriter() // another epoch
	s.append(20)
	var places []store.Place
	first := s.open(consume.Config{Store: s.store, Start: consume.StartOldest})
	for {
		item, err := first.Next()
		if errors.Is(err, farlog.ErrNotYet) {
			break
		}
		s.must(err)
		if isLive := len(places) >= 60; item.IsLive != isLive {
			t.Fatalf("record %d: live %v", len(places), item.IsLive)
		}
		places = append(places, item.Place)
	}
	if len(places) != s.count {
		t.Fatalf("%d records, expected %d", len(places), s.count)
	}
	for i, place := range places {
		c := s.open(consume.Config{Store: s.store, Start: consume.StartPlace, Place: place})
		s.expect(s.read(c, all), i, s.count)
		s.must(c.Close())
	}
	s.expect(s.read(s.open(consume.Config{Store: s.store, Start: consume.StartHead}), all), 60, 120)
	end := s.open(consume.Config{Store: s.store, Start: consume.StartEnd})
	s.expect(s.read(end, all), 120, 120)
	s.append(5)
	s.expect(s.read(end, all), 120, 125)
	s.expect(s.read(first, all), 120, 125)
}

// A consumer that reads less than writer and drain move is overtaken again and again. It learns what it is told from
// the store, in order and each record once.
func TestConsumer_OvertakenCatchesUpFromTheStore(t *testing.T) {
	s := newSite(t)
	rng := rand.New(rand.NewPCG(1, 2))
	var notices []consume.Notice
	c := s.open(consume.Config{
		Store: s.store, BufferBytes: 4096,
		OnNotice: func(n consume.Notice) { notices = append(notices, n) },
	})
	var got []string
	for range 24 {
		s.append(1 + rng.IntN(200))
		if rng.IntN(6) == 0 {
			got = append(got, s.read(c, all)...)
		}
		if rng.IntN(3) > 0 {
			s.drained()
		}
		if rng.IntN(10) == 0 {
			s.openWriter()
		}
		if s.writer.Cursors().AppendedLSN-s.writer.Cursors().HeadLSN > 16<<10 {
			s.drained()
		}
	}
	got = append(got, s.read(c, all)...)
	s.expect(got, 0, s.count)
	stats := c.Stats()
	if stats.Overruns < 1 || stats.Lost != 0 || len(notices) < 1 || !stats.IsLive || stats.LagBytes != 0 {
		t.Fatalf("%+v, %v", stats, notices)
	}
	if n := notices[0]; n.Kind != consume.NoticeOverrun || n.FromLSN >= n.ToLSN {
		t.Fatalf("%+v", n)
	}
}

// Overtaken before it has read anything, a consumer gets what lay behind the head when it came, and nothing from
// before.
func TestConsumer_OvertakenAtOnceBeginsWhereItCame(t *testing.T) {
	s := newSite(t)
	s.append(30)
	s.drained()
	s.append(10)
	c := s.open(consume.Config{Store: s.store})
	s.drained()
	for range 5 {
		s.append(200)
		s.drained()
	}
	s.expect(s.read(c, all), 30, s.count)
}

// Without a store nothing can be had again: the consumer is told what it missed, to the byte, and goes on.
func TestConsumer_WithoutAStoreIsToldWhatItMissed(t *testing.T) {
	s := newSite(t)
	var notices []consume.Notice
	c := s.open(consume.Config{BufferBytes: 4096, OnNotice: func(n consume.Notice) { notices = append(notices, n) }})
	s.append(10)
	s.expect(s.read(c, all), 0, 10)
	missedFrom := s.writer.Cursors().AppendedLSN
	for range 5 {
		s.append(200)
		s.drained()
	}
	head := s.writer.Cursors().AppendedLSN
	s.expect(s.read(c, all), 0, 0) // nothing follows, and it is told all the same
	told := len(notices)
	s.append(7)
	s.expect(s.read(c, all), 1010, 1017)
	if told != 1 || len(notices) != 1 || notices[0].Kind != consume.NoticeLost || notices[0].FromLSN != missedFrom ||
		notices[0].ToLSN != head {
		t.Fatalf("%+v, %d of them before the next record; expected one before, of lsn %d to %d", notices, told,
			missedFrom, head)
	}
	if stats := c.Stats(); stats.Lost != head-missedFrom {
		t.Fatalf("%+v", stats)
	}
}

// One that is overtaken before it has read anything learns of that gap too, and of the same one from the store when it
// has one.
func TestConsumer_OvertakenBeforeItsFirstRecord(t *testing.T) {
	s := newSite(t)
	var lost, caught []consume.Notice
	without := s.open(consume.Config{OnNotice: func(n consume.Notice) { lost = append(lost, n) }})
	with := s.open(consume.Config{Store: s.store, OnNotice: func(n consume.Notice) { caught = append(caught, n) }})
	for range 5 {
		s.append(200)
		s.drained()
	}
	head := s.writer.Cursors().AppendedLSN
	s.append(7)
	s.expect(s.read(without, all), 1000, 1007)
	s.expect(s.read(with, all), 0, 1007)
	if len(lost) != 1 || lost[0].Kind != consume.NoticeLost || lost[0].FromLSN != 0 || lost[0].ToLSN != head {
		t.Errorf("without a store %+v, expected that lsn 0 to %d are lost", lost, head)
	}
	if len(caught) != 1 || caught[0].Kind != consume.NoticeOverrun || caught[0].ToLSN != head {
		t.Errorf("with a store %+v, expected one overrun up to lsn %d", caught, head)
	}
}

// The store's disk is away when a consumer is overtaken: each call says so, and when it is back nothing is missing.
func TestConsumer_OvertakenWhileTheStoreIsAway(t *testing.T) {
	s := newSite(t)
	s.append(10)
	c := s.open(consume.Config{Store: s.store})
	s.expect(s.read(c, all), 0, 10)
	for range 5 {
		s.append(200)
		s.drained()
	}
	streams := filepath.Join(s.dir, "store", "streams")
	s.must(os.Rename(streams, streams+".away"))
	for range 2 {
		if _, err := c.Next(); !errors.Is(err, store.ErrNotFound) {
			t.Fatalf("error is %v", err)
		}
	}
	s.must(os.Rename(streams+".away", streams))
	s.expect(s.read(c, all), 10, 1010)
}

// A named consumer that is killed goes on behind what it committed.
func TestConsumer_KilledGoesOnWhereItCommitted(t *testing.T) {
	s := newSite(t)
	rng := rand.New(rand.NewPCG(3, 4))
	positions := filepath.Join(s.dir, "positions")
	committed := 0
	for round := range 16 {
		s.append(rng.IntN(150))
		if round%2 == 0 || s.writer.Cursors().AppendedLSN-s.writer.Cursors().HeadLSN > 16<<10 {
			s.drained()
		}
		if rng.IntN(5) == 0 {
			s.openWriter()
		}
		position, err := consume.OpenPosition(positions, "desk-risk", "desk7/orders")
		s.must(err)
		if _, err := consume.OpenPosition(positions, "desk-risk", "desk7/orders"); !errors.Is(err, store.ErrLocked) {
			t.Fatalf("a second consumer of the name: %v", err)
		}
		c := s.open(consume.Config{Store: s.store, Start: consume.StartOldest, Position: position})
		for range 1 + rng.IntN(3) {
			got := s.read(c, rng.IntN(100))
			s.expect(got, committed, committed+len(got))
			if rng.IntN(3) == 0 {
				s.must(c.Close()) // killed before it commits
				break
			}
			s.must(c.Commit())
			committed += len(got)
		}
		s.must(c.Close())
		s.must(position.Close())
	}
	if _, err := consume.OpenPosition(positions, "desk-risk", "desk8/orders"); err == nil ||
		!strings.Contains(err.Error(), "give another name") {
		t.Fatalf("a position of another stream: %v", err)
	}
	if _, err := consume.OpenPosition(positions, "../x", "desk8/orders"); !errors.Is(err, store.ErrInvalid) {
		t.Fatalf("a name with a slash: %v", err)
	}
}

func TestConsumer_FilterTakesClassAndKey(t *testing.T) {
	s := newSite(t)
	s.append(60)
	c := s.open(consume.Config{Store: s.store, Filter: consume.Filter{Classes: []uint16{1, 2}, Keys: []string{"K0"}}})
	got := s.read(c, all)
	if len(got) != 10 || got[0] != "order 6" || got[1] != "order 9" {
		t.Fatalf("%v", got)
	}
	if stats := c.Stats(); stats.Records != 10 || stats.Skipped != 51 {
		t.Fatalf("%+v", stats)
	}
}

// A power cut undoes records that were never acknowledged and that store and consumer have seen: the consumer is told,
// and goes on with the epoch that replaces them, whether it was in the ring or in the store when that happened.
func TestConsumer_UndoneRecordsAreReplaced(t *testing.T) {
	for _, isDrained := range []bool{false, true} {
		s := newSite(t)
		s.append(20)
		before, err := os.ReadFile(s.path)
		s.must(err)
		s.append(10)
		var notices []consume.Notice
		c := s.open(consume.Config{
			Store: s.store, Start: consume.StartOldest,
			OnNotice: func(n consume.Notice) { notices = append(notices, n) },
		})
		s.expect(s.read(c, all), 0, 30)
		s.must(s.writer.Close())
		s.writer = nil
		file, err := os.OpenFile(s.path, os.O_WRONLY, 0)
		s.must(err)
		_, err = file.WriteAt(before, 0)
		s.must(err)
		s.must(file.Close())
		s.openWriter()
		s.count = 100
		s.append(5)
		if isDrained {
			s.drained()
			for range 4 {
				s.append(200)
				s.drained()
			}
		}
		s.expect(s.read(c, all), 100, s.count)
		notices = slices.DeleteFunc(notices, func(n consume.Notice) bool {
			return isDrained &&
				n.Kind == consume.NoticeOverrun
		})
		if len(notices) != 1 || notices[0].Kind != consume.NoticeRewound || notices[0].Epoch != 2 {
			t.Fatalf("drained %v: %+v", isDrained, notices)
		}
	}
}

// Between the end of the store and the ring the drain goes on: what it takes away there is in the store by now.
func TestConsumer_DrainMovesWhileItGoesFromTheStoreToTheRing(t *testing.T) {
	s := newSite(t)
	s.append(30)
	s.drained()
	joins := 0
	c := s.open(consume.BeforeJoin(consume.Config{Store: s.store, Start: consume.StartOldest}, func() {
		if joins++; joins <= 3 {
			s.append(50)
			s.drained()
		}
	}))
	s.append(20)
	s.expect(s.read(c, all), 0, 200)
	if joins != 4 {
		t.Fatalf("%d joins, expected one more than the times that the drain moved", joins)
	}
}

// A ring that is drained into another store than the one given is no reason to leave records out unsaid.
func TestConsumer_StoreOfAnotherDrainIsRefused(t *testing.T) {
	s := newSite(t)
	s.append(30)
	s.drained()
	other, err := store.Open(filepath.Join(s.dir, "other"), store.Options{Create: true, SegmentBytes: 32 << 10})
	s.must(err)
	source := store.Source{StreamName: "desk7/orders", Salt: 1, Align: 64, RecordLenMax: 4096}
	status, err := farlog.Inspect(s.uri())
	s.must(err)
	source.RingUUID, source.Salt = status.RingUUID, status.Salt
	appender, err := other.OpenStream(source)
	s.must(err)
	s.must(appender.Close())
	c := s.open(consume.Config{Store: other, Start: consume.StartOldest})
	if _, err := c.Next(); !errors.Is(err, store.ErrNotFound) ||
		!strings.Contains(err.Error(), "it is drained into another store") {
		t.Fatalf("error is %v", err)
	}
}
