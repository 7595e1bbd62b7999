package merge

import (
	"errors"
	"fmt"

	"github.com/farlog/farlog/pkg/store"
)

// core is the merge itself, without files: it gives heads in their order. What makes the order and what checks it use
// it alike.
type core struct {
	sources  []*source // by rank
	tree     *tree
	late     func(*source)                           // may decide about a fresh head; nil: everything is decided
	believe  func(*source, store.Place, uint64) bool // of a heartbeat's time; nil: everything is decided
	progress Progress

	lastNS   uint64 // of what went out last
	lastName string
	lastRank int
}

// top is the source that is next to go out, or to be waited for; nil: there is none.
func (c *core) top() *source {
	at := c.tree.top()
	if at >= len(c.sources) || c.tree.keys[at] == never {
		return nil
	}
	return c.sources[at]
}

// next gives the source whose head is next, or nil when it must be waited for. The head has gone out then: refill it.
func (c *core) next() (*source, error) {
	s := c.top()
	if s == nil || s.state != stateReady {
		return nil, nil
	}
	if c.isBehind(s.key()) {
		return nil, fmt.Errorf("merged order goes back with stream %s at %s: what was decided does not go with the "+
			"order that is there: farlog verify", s.name, s.head.Place)
	}
	c.lastNS, c.lastName, c.lastRank = s.orderNS, s.name, s.rank
	return s, nil
}

// isBehind reports whether a key comes before what has gone out.
func (c *core) isBehind(k key) bool {
	return k.orderNS < c.lastNS || k.orderNS == c.lastNS && k.rank < c.lastRank
}

// isReady reports whether any stream has a record.
func (c *core) isReady() bool {
	for _, s := range c.sources {
		if s.state == stateReady {
			return true
		}
	}
	return false
}

// refill gets a source's next head.
func (c *core) refill(s *source) error {
	wasAbsent, before := s.state == stateAbsent, s.orderNS
	isThere, err := s.pull(c.believe)
	if err != nil {
		return err
	}
	switch {
	case isThere:
		s.state = stateReady
		if c.late != nil && !s.isDecided {
			c.late(s)
		}
	case !wasAbsent || s.orderNS != before:
		s.state = stateSilent
	}
	c.tree.set(s.rank, s.key())
	return nil
}

func (c *core) close() error {
	var errs []error
	for _, s := range c.sources {
		errs = append(errs, s.reader.Close())
	}
	return errors.Join(errs...)
}
