package replica

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/farlog/farlog/pkg/store"
)

const (
	holdMax   = 2 * time.Second // how long Changed waits for a change
	scanPause = 200 * time.Millisecond
	scanRests = 199 // times as long as a look at all streams takes: their number decides how often there is one
	// pauseMax: what another process appends is seen after that at the latest. Longer in a process with appenders of
	// this store, which are seen at once.
	pauseMax, pauseMaxAppending = 2 * time.Second, 30 * time.Second
)

// Changes are the streams that have other records than at a mark.
type Changes struct {
	Streams []StreamInfo `json:"streams"`
	Mark    string       `json:"mark"` // of now, for the next question
	// Age is how long ago all streams were measured: a stream of another process may have more records since then.
	Age time.Duration `json:"age_ns"`
}

// changes knows how much of each stream is synced, and in which order that was found to change. What an appender of
// this process syncs is measured at once. All streams are measured now and then: what other processes append, and
// streams that have come or gone, are seen by that.
type changes struct {
	store *store.Store
	id    string // of this process: its marks begin with it
	notes notes

	mutex   sync.Mutex
	streams map[string]*measured
	count   uint64    // of changes
	scanned time.Time // the last scan's begin
	scanAt  time.Time // not before
	now     func() time.Time
}

type measured struct {
	meter  *store.Meter
	bytes  int64
	change uint64 // the last one of this stream
	isGone bool   // that was: who reads the stream is to get the error
}

func newChanges(s *store.Store) *changes {
	c := &changes{store: s, id: rand.Text(), streams: map[string]*measured{}, now: time.Now}
	c.notes.wakeup = make(chan struct{})
	s.OnSynced(c.notes.add)
	return c
}

// since measures what is due, and gives the streams that have changed since a mark; all of them since one that is not
// known. More can have changed at next, and when wakeup is closed.
func (c *changes) since(mark string) (found Changes, next time.Time, wakeup <-chan struct{}, err error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	noted, wakeup := c.notes.take()
	for _, stream := range noted {
		c.measure(stream)
	}
	if began := c.now(); !began.Before(c.scanAt) {
		if err := c.scan(); err != nil {
			return found, next, nil, err
		}
		now, most := c.now(), pauseMax
		if c.notes.isUsed() {
			most = pauseMaxAppending
		}
		c.scanned, c.scanAt = began, now.Add(min(max(scanPause, scanRests*now.Sub(began)), most))
	}
	last := uint64(0)
	if text, isOurs := strings.CutPrefix(mark, c.id+"-"); isOurs {
		last, _ = strconv.ParseUint(text, 10, 64) // 0 = all
	}
	for name, one := range c.streams {
		if one.change > last && !(last == 0 && one.isGone) {
			found.Streams = append(found.Streams, StreamInfo{name, one.bytes})
		}
	}
	found.Mark, found.Age = fmt.Sprintf("%s-%d", c.id, c.count), c.now().Sub(c.scanned)
	return found, c.scanAt, wakeup, nil
}

// scan measures all streams.
func (c *changes) scan() error {
	names, err := c.store.Streams()
	if err != nil {
		return err
	}
	for _, name := range names {
		c.measure(name)
	}
	for name := range c.streams {
		if _, isThere := slices.BinarySearch(names, name); !isThere {
			c.measure(name)
		}
	}
	return nil
}

// measure looks whether a stream has changed. One that cannot be measured counts as changed when it is seen first: who
// reads it gets the error.
func (c *changes) measure(stream string) {
	one := c.streams[stream]
	isKnown := one != nil
	if !isKnown {
		one = &measured{meter: c.store.NewMeter(stream)}
	}
	bytes, err := one.meter.Bytes()
	isGone := errors.Is(err, store.ErrNotFound)
	switch {
	case isKnown && err != nil && isGone == one.isGone, isKnown && err == nil && bytes == one.bytes && !one.isGone:
		return
	case !isKnown && isGone:
		return
	}
	c.count++
	one.bytes, one.change, one.isGone = bytes, c.count, isGone
	c.streams[stream] = one
}

// notes are of streams that were synced in this process.
type notes struct {
	mutex   sync.Mutex
	streams map[string]bool
	wakeup  chan struct{}
	isAwait bool // somebody waits for wakeup
	hasAny  bool // was noted
}

// isUsed reports whether an appender of this process has synced something.
func (n *notes) isUsed() bool {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	return n.hasAny
}

// add is called behind each sync, by its goroutine.
func (n *notes) add(stream string) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	if n.streams == nil {
		n.streams = map[string]bool{}
	}
	n.streams[stream], n.hasAny = true, true
	if n.isAwait {
		close(n.wakeup)
		n.wakeup, n.isAwait = make(chan struct{}), false
	}
}

// take gives the streams that were noted since the last call; wakeup is closed when another one is.
func (n *notes) take() (streams []string, wakeup <-chan struct{}) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	for stream := range n.streams {
		streams = append(streams, stream)
	}
	n.streams, n.isAwait = nil, true
	return streams, n.wakeup
}

// Changed implements Source.
func (s *StoreSource) Changed(ctx context.Context, since string) (Changes, error) {
	hold := time.Now().Add(holdMax)
	for {
		found, next, wakeup, err := s.changes.since(since)
		if err != nil || len(found.Streams) > 0 || found.Mark != since || !time.Now().Before(hold) {
			return found, err
		}
		if next.After(hold) {
			next = hold
		}
		timer := time.NewTimer(time.Until(next))
		select {
		case <-ctx.Done():
			return found, ctx.Err()
		case <-wakeup:
		case <-timer.C:
		}
	}
}
