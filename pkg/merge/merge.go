// Package merge puts the streams of a store into one order, by (time, stream, seq), that is byte for byte the same on
// every rerun.
//
// A record goes out when every stream has come past its time: the watermark. Heartbeats of idle writers move it. A
// stream that is silent for longer than declared is not waited for; if it then brings a record from before the
// watermark, that record's place in the order is decided once, by a clock, and written down. The order is a pure
// function of the records in the store and of these decisions, and nothing else: it is derived and can be made again.
// What a decision was about is marked late. Bytes, and every crash case, are in docs/reference/format.md section 8.
package merge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"path"
	"sort"
	"time"

	"github.com/farlog/farlog/pkg/store"
)

// Defaults of Options.
const (
	LateLimitDefault  = 5 * time.Second
	AheadLimitDefault = time.Minute

	pollInterval   = 20 * time.Millisecond  // of silent streams
	absentInterval = 200 * time.Millisecond // of those that are not waited for
	listInterval   = time.Second            // for streams that are new in the store
	flushInterval  = 100 * time.Millisecond
	stepEntries    = 16 << 10
)

// Options of a merge; the zero value is the product's.
type Options struct {
	LateLimit    time.Duration // how long a silent stream holds up the others; 0 = 5 s
	AheadLimit   time.Duration // a record whose time is further in the future than this is not believed; 0 = 1 min
	SegmentBytes int64         // of a new order; 0 = 64 MiB
	Now          func() time.Time
}

func (o Options) withDefaults() (Options, error) {
	o.LateLimit = cmp.Or(o.LateLimit, LateLimitDefault)
	o.AheadLimit = cmp.Or(o.AheadLimit, AheadLimitDefault)
	o.SegmentBytes = cmp.Or(o.SegmentBytes, SegmentBytesDefault)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.LateLimit < 0 || o.AheadLimit < 0 || o.SegmentBytes < store.SegmentBytesMin ||
		o.SegmentBytes%segmentHeaderBytes != 0 || o.SegmentBytes > math.MaxInt32 {
		return o, fmt.Errorf("%w: late limit %s, ahead limit %s, segments of %d bytes: expected positive limits, and "+
			"segments of a multiple of %d bytes from %d to 2 GiB",
			store.ErrInvalid, o.LateLimit, o.AheadLimit, o.SegmentBytes, segmentHeaderBytes, store.SegmentBytesMin)
	}
	return o, nil
}

// Progress is how far a merge has come. Counts are since it was opened.
type Progress struct {
	Streams   int
	Entries   uint64 // records put into the order
	Late      uint64 // of them those whose stream had not been waited for any longer
	Early     uint64 // of them those whose time was not believed
	NextIndex uint64 // entries in the order altogether
	OrderTime time.Time
	Absent    int    // streams that are not waited for
	WaitsFor  string // the stream that holds the others up; "" = none does, all that is there has gone out
}

// Merger makes the order of one store. One goroutine uses it; one process has it at a time.
type Merger struct {
	core
	log      *log
	store    *store.Store
	options  Options
	listedAt time.Time
	lookedAt time.Time // at absent streams
	flushed  time.Time
	now      time.Time // of this step
	unsynced int
	broken   error
}

// Open goes on with the order of a store, or begins it. Errors: store.ErrLocked (another process merges),
// store.ErrCorrupt, store.ErrInvalid.
func Open(s *store.Store, options Options) (*Merger, error) {
	return openIn(s, options, path.Join(s.Dir(), dirName))
}

func openIn(s *store.Store, options Options, dir string) (*Merger, error) {
	options, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	l, err := openLog(s, dir, options.SegmentBytes)
	if err != nil {
		return nil, err
	}
	m := &Merger{log: l, store: s, options: options, flushed: options.Now()}
	m.core = core{tree: newTree(0), late: m.decideLate, believe: m.believe}
	m.lastNS, m.lastName = l.orderNS, l.stream
	if err := m.list(); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// Close flushes and gives the lock back.
func (m *Merger) Close() error {
	err := m.broken
	if err == nil {
		err = m.log.flush()
	}
	return errors.Join(err, m.core.close(), m.log.close())
}

// Progress tells how far the merge is.
func (m *Merger) Progress() Progress {
	p := m.progress
	p.Streams, p.NextIndex, p.OrderTime = len(m.sources), m.log.nextIndex, time.Unix(0, int64(m.log.orderNS)).UTC()
	if m.log.nextIndex == 0 {
		p.OrderTime = time.Time{}
	}
	for _, s := range m.sources {
		if s.state == stateAbsent {
			p.Absent++
		}
	}
	return p
}

// list takes in the streams that are new in the store.
func (m *Merger) list() error {
	m.listedAt = m.options.Now()
	names, err := m.store.Streams()
	if err != nil {
		return err
	}
	known, before := make(map[string]bool, len(m.sources)), len(m.sources)
	for _, s := range m.sources {
		known[s.name] = true
	}
	for _, name := range names {
		if known[name] {
			continue
		}
		s, err := openSource(m.store, m.log.info(name), m.log.decisions.of(name))
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		s.silentSince = m.listedAt
		m.sources = append(m.sources, s)
	}
	if len(m.sources) > before {
		m.seed()
	}
	return nil
}

// Step puts into the order what can go out now, up to a few thousand records. False: nothing could. It never waits.
func (m *Merger) Step() (bool, error) {
	if m.broken != nil {
		return false, m.broken
	}
	moved, err := m.step()
	if err != nil {
		m.broken = err
	}
	return moved > 0, err
}

func (m *Merger) step() (int, error) {
	m.now = m.options.Now()
	now := m.now
	if now.Sub(m.listedAt) >= listInterval {
		if err := m.list(); err != nil {
			return 0, err
		}
	}
	if err := m.pollSilent(now); err != nil {
		return 0, err
	}
	moved := 0
	for ; moved < stepEntries; moved++ {
		s, err := m.next()
		if err != nil {
			return moved, err
		}
		if s == nil {
			break
		}
		if err := m.addEntry(s); err != nil {
			return moved, err
		}
		if err := m.refill(s); err != nil {
			return moved, err
		}
		if s.state == stateSilent {
			s.silentSince = now // until now it had something, however long ago it was last asked
		}
	}
	m.unsynced += moved
	if m.unsynced > 0 && (moved == 0 || now.Sub(m.flushed) >= flushInterval) {
		m.unsynced, m.flushed = 0, now
		return moved, m.log.flush()
	}
	return moved, nil
}

func (m *Merger) addEntry(s *source) error {
	m.progress.Entries++
	if s.head.Flags&FlagLate != 0 {
		m.progress.Late++
	}
	if s.head.Flags&FlagEarly != 0 {
		m.progress.Early++
	}
	return m.log.add(&s.head, s.info)
}

// pollSilent asks silent streams for news and gives up those that have been silent too long.
func (m *Merger) pollSilent(now time.Time) error {
	isAbsentDue := now.Sub(m.lookedAt) >= absentInterval
	if isAbsentDue {
		m.lookedAt = now
	}
	m.progress.WaitsFor = ""
	for _, s := range m.sources {
		if s.state == stateReady || s.state == stateAbsent && !isAbsentDue {
			continue
		}
		before := s.orderNS
		if err := m.refill(s); err != nil {
			return err
		}
		if s.orderNS != before || s.state == stateReady {
			s.silentSince = now
		}
		if s.state == stateSilent && (mutant == MutantIdleNotWaited || now.Sub(s.silentSince) >= m.options.LateLimit ||
			m.isLeftBehind(s, now)) {
			s.state = stateAbsent
			m.tree.set(s.rank, s.key())
		}
	}
	if blocking := m.top(); blocking != nil && blocking.state == stateSilent && m.isReady() {
		m.progress.WaitsFor = blocking.name
	}
	return nil
}

// isLeftBehind tells of a stream that does bring something, but of times so long past that the others have waited for
// it long enough: the backlog of a drain that stood. It is waited for again when it has come near the clock.
func (m *Merger) isLeftBehind(s *source, now time.Time) bool {
	if s.lastTS == 0 || int64(s.lastTS) >= now.Add(-m.options.LateLimit).UnixNano() {
		s.behindSince = time.Time{}
		return false
	}
	if s.behindSince.IsZero() {
		s.behindSince = now
	}
	return now.Sub(s.behindSince) >= m.options.LateLimit
}

// decideLate is called for a head that would come before what has gone out, or whose time is not to be believed.
func (m *Merger) decideLate(s *source) {
	now := uint64(m.now.UnixNano())
	isEarly := m.isAhead(s.head.TimestampNS)
	isLate := m.isBehind(s.key())
	if !isEarly && !isLate {
		return
	}
	to := m.lastNS + 1
	if isEarly && !isLate {
		to = max(to, s.floorNS, now)
	}
	m.log.decisions.add(decision{stream: s.name, Place: s.head.Place, orderNS: to, isEarly: isEarly && !isLate})
	s.decide(to)
}

// isAhead tells a time that is further in the future than was declared.
func (m *Merger) isAhead(ts uint64) bool {
	return ts > uint64(m.now.UnixNano())+uint64(m.options.AheadLimit)
}

// believe decides about a heartbeat: one from the future would let nothing of its stream out until then, so it moves
// nothing.
func (m *Merger) believe(s *source, place store.Place, ts uint64) bool {
	if !m.isAhead(ts) {
		return true
	}
	m.log.decisions.add(decision{stream: s.name, Place: place, orderNS: s.orderNS, isEarly: true})
	return false
}

// Run merges until ctx is done. OnProgress, which may be nil, is called after every round.
func (m *Merger) Run(ctx context.Context, onProgress func(Progress)) error {
	for ctx.Err() == nil {
		isMoved, err := m.Step()
		if err != nil {
			return err
		}
		if onProgress != nil {
			onProgress(m.Progress())
		}
		if isMoved {
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(pollInterval):
		}
	}
	return nil
}

// Now puts into the order what can go out without waiting, and flushes. A stream that has never brought a record is not
// waited for.
func (m *Merger) Now(ctx context.Context) error {
	for ctx.Err() == nil {
		isMoved, err := m.Step()
		if err != nil {
			return err
		}
		if !isMoved && !m.passEmpty() {
			return nil
		}
	}
	return ctx.Err()
}

// passEmpty gives up the streams that have brought nothing yet. False: none holds the others up.
func (m *Merger) passEmpty() bool {
	isOne := false
	for _, s := range m.sources {
		if s.state == stateSilent && s.lastTS == 0 && s.info.last.Generation == 0 {
			s.state, isOne = stateAbsent, true
			m.tree.set(s.rank, s.key())
		}
	}
	return isOne && m.isReady()
}

// Finish puts everything that the store holds now into the order, as if each stream ended there, and flushes: at the
// end of a day. What comes later than that with an earlier time is late.
func (m *Merger) Finish(ctx context.Context) error {
	if m.broken == nil {
		m.broken = m.list() // a stream may have begun since the last look
	}
	m.lookedAt = time.Time{} // one that was not waited for may have something by now
	for ctx.Err() == nil {
		isMoved, err := m.Step()
		if err != nil {
			return err
		}
		if isMoved {
			continue
		}
		if !m.isReady() {
			return m.log.flush()
		}
		for _, s := range m.sources {
			if s.state == stateSilent {
				s.state = stateAbsent
				m.tree.set(s.rank, s.key())
			}
		}
	}
	return ctx.Err()
}

// seed ranks the streams by name and fills the tree.
func (c *core) seed() {
	if mutant != MutantTieByArrival {
		sort.Slice(c.sources, func(i, k int) bool { return c.sources[i].name < c.sources[k].name })
	}
	c.tree = newTree(len(c.sources))
	c.lastRank = sort.Search(len(c.sources), func(i int) bool { return c.sources[i].name >= c.lastName })
	for rank, s := range c.sources {
		s.rank = rank
		c.tree.keys[rank] = s.key()
	}
	c.tree.build()
}
