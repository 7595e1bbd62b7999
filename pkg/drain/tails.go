package drain

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/farlog/farlog/pkg/farlog"
)

const (
	tailsTrust  = 100 * time.Millisecond // a ring is looked at itself that often, whatever the page says
	tailsAgeMax = quietPauseMax          // of what another drain has read
	// a page that cannot be read for so long may have gone with the grant by which it was opened
	tailsGoneAfter = time.Second
	tailsJoinPause = 10 * time.Second // between two attempts to find a page
)

// Tails lets the drains of a process look at the pages of tails of their targets: one READ a round for all rings of a
// tenant at one target, in place of one or two a ring. A page is a hint. It says which rings are worth a look; what is
// in them only the ring says, and every ring is looked at itself ten times a second. The zero value is not usable:
// NewTails. All goroutines may share it.
type Tails struct {
	trust  time.Duration
	ageMax time.Duration

	mutex sync.Mutex
	pages map[string][]*page // by target; several where it serves several tenants
}

// NewTails gives pages for Config.Tails.
func NewTails() *Tails {
	return &Tails{trust: tailsTrust, ageMax: tailsAgeMax, pages: make(map[string][]*page)}
}

// page is one connection, opened by the token of one of its rings.
type page struct {
	users int // under the mutex of Tails

	mutex   sync.Mutex
	handle  *farlog.Tails
	reading uint64 // number of the last READ
	readAt  time.Time
	wholeAt time.Time // when it could be read last
	tails   map[[16]byte]farlog.Tail
}

// read is called with the mutex. After an error there are no tails.
func (p *page) read() {
	p.reading++
	p.readAt = time.Now()
	err := p.handle.Read(p.tails)
	if err == nil || errors.Is(err, farlog.ErrNotYet) {
		p.wholeAt = p.readAt
	}
}

// look gives a ring's tail as it was after the reading that the caller has seen. A round of many drains takes one READ:
// the first of them reads, the others have not seen it.
func (p *page) look(uuid [16]byte, seen uint64, ageMax time.Duration) (tail farlog.Tail, reading uint64, isThere bool) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.reading <= seen || time.Since(p.readAt) > ageMax {
		p.read()
	}
	tail, isThere = p.tails[uuid]
	return tail, p.reading, isThere
}

func (p *page) isGone() bool {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.readAt.Sub(p.wholeAt) > tailsGoneAfter
}

// targetOf cuts the ring's name off a far URI.
func targetOf(uri string) string {
	scheme, rest, _ := strings.Cut(uri, "://")
	address, _, _ := strings.Cut(rest, "/")
	return scheme + "://" + address
}

// join finds the page that has the ring, or opens it by the ring's own token; nil: there is none.
func (t *Tails) join(uri string, token [farlog.TokenLen]byte, uuid [16]byte) *page {
	target := targetOf(uri)
	t.mutex.Lock()
	defer t.mutex.Unlock()
	for _, p := range t.pages[target] {
		if _, _, isThere := p.look(uuid, 0, t.ageMax); isThere {
			p.users++
			return p
		}
	}
	handle, err := farlog.OpenTails(uri, token)
	if err != nil {
		return nil
	}
	p := &page{users: 1, handle: handle, tails: make(map[[16]byte]farlog.Tail), wholeAt: time.Now()}
	if _, _, isThere := p.look(uuid, 0, t.ageMax); !isThere {
		_ = handle.Close()
		return nil
	}
	t.pages[target] = append(t.pages[target], p)
	return p
}

// leave closes a page behind its last user. One that is gone is joined by nobody any more.
func (t *Tails) leave(uri string, p *page) {
	target := targetOf(uri)
	isGone := p.isGone()
	t.mutex.Lock()
	defer t.mutex.Unlock()
	p.users--
	if p.users == 0 || isGone {
		t.pages[target] = slices.DeleteFunc(t.pages[target], func(other *page) bool { return other == p })
	}
	if p.users == 0 {
		_ = p.handle.Close()
	}
}

// watch is what one drain knows of its ring by the page.
type watch struct {
	page     *page
	joinAt   time.Time // not before
	reading  uint64    // the last one that was used
	mark     uint32    // of the superblocks when the ring was looked at last
	isIdle   bool      // nothing was in the ring when it was looked at last
	isQuiet  bool      // and nothing has come since, as the page says
	lookedAt time.Time
	nextLSN  uint64 // where the reader is
}

// looked is called after each look at the ring itself.
func (w *watch) looked(batch farlog.Batch, err error) {
	w.lookedAt = time.Now()
	w.isIdle, w.isQuiet = errors.Is(err, farlog.ErrNotYet), false
	if err == nil {
		w.nextLSN = batch.NextLSN
	}
}

// isQuiet tells that a look at the ring is not worth a READ: it was empty, and the page of its target says that nothing
// has come since.
func (d *drainer) isQuiet() bool {
	t, w := d.config.Tails, &d.watch
	if t == nil || d.config.Token == nil || d.ahead != nil || !w.isIdle || time.Since(w.lookedAt) >= t.trust {
		return false
	}
	if w.page == nil {
		if time.Now().Before(w.joinAt) {
			return false
		}
		w.reading, w.joinAt = 0, time.Now().Add(tailsJoinPause)
		w.page = t.join(d.config.RingURI, *d.config.Token, d.source.RingUUID)
	}
	if w.page == nil {
		return false
	}
	tail, reading, isThere := w.page.look(d.source.RingUUID, w.reading, t.ageMax)
	w.reading = reading
	if !isThere {
		d.leaveGonePage()
		return false
	}
	w.isQuiet = tail.TailLSN <= w.nextLSN && tail.Mark == w.mark
	w.mark = tail.Mark
	return w.isQuiet
}

// leaveGonePage lets the next look join another: that of this ring's own grant.
func (d *drainer) leaveGonePage() {
	if d.watch.page.isGone() {
		d.leavePage()
		d.watch.joinAt = time.Now()
	}
}

func (d *drainer) leavePage() {
	if d.watch.page != nil {
		d.config.Tails.leave(d.config.RingURI, d.watch.page)
	}
	d.watch.page = nil
}
