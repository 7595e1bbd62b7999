package retention

import (
	"fmt"
	"time"

	"github.com/farlog/farlog/pkg/store"
)

// clockDoubt is how far a clock may be ahead of what is proved before a result says so.
const clockDoubt = time.Hour

// Clock says how late it is at least. A host's clock that jumps ahead must make nothing old, and what is removed does
// not come back when the clock does: so time passes by a clock that no step changes, from the newest record of the
// store on, whose time another host's clock gave it. Where no drain ran for a while, segments are kept so much longer,
// until the next start behind newer records. One goroutine uses it.
type Clock struct {
	Now     func() time.Time     // the host's clock
	Elapsed func() time.Duration // since any moment, not changed by steps of Now
	// IsChecked: somebody says that Now is right.
	IsChecked bool

	begun   time.Time // zero: not yet
	elapsed time.Duration
}

// NewClock is that of this host.
func NewClock() *Clock {
	start := time.Now()
	return &Clock{Now: time.Now, Elapsed: func() time.Duration { return time.Since(start) }}
}

// Begin says how late it surely is now: it is the time of the newest record, or what Now says when that is earlier.
func (c *Clock) Begin(newest time.Time) {
	if now := c.Now(); newest.After(now) {
		newest = now
	}
	c.begun, c.elapsed = newest, c.Elapsed()
}

// sure is how late it is at least.
func (c *Clock) sure(opened *store.Store) (time.Time, error) {
	if c.IsChecked {
		return c.Now(), nil
	}
	if c.begun.IsZero() {
		newest, err := newestRecord(opened, c.Now().Add(clockDoubt))
		if err != nil {
			return time.Time{}, err
		}
		c.Begin(newest)
	}
	sure := c.begun.Add(c.Elapsed() - c.elapsed)
	if now := c.Now(); sure.After(now) {
		return now, nil
	}
	return sure, nil
}

// newestRecord is the time of the newest record of a store that is known without reading them all. A stream with one of
// later than latest proves nothing: its clock was wrong, or somebody wants that of this host to be believed.
func newestRecord(opened *store.Store, latest time.Time) (newest time.Time, err error) {
	streams, err := opened.Streams()
	if err != nil {
		return newest, err
	}
	for _, stream := range streams {
		history, err := opened.History(stream)
		if err != nil {
			return newest, err
		}
		if history.Newest.After(newest) && !history.Newest.After(latest) {
			newest = history.Newest
		}
	}
	return newest, nil
}

// doubt says why nothing more is taken for old.
func (c *Clock) doubt(sure time.Time) string {
	ahead := c.Now().Sub(sure)
	if ahead <= clockDoubt {
		return ""
	}
	return fmt.Sprintf("the clock is %d hours ahead of the newest record of the store, with the time since the drain "+
		"started added: nothing is old by that clock; check it (chronyc tracking), then start the drain again, or "+
		"farlog store retention apply --clock-checked", ahead.Round(time.Hour)/time.Hour)
}
