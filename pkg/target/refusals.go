package target

import (
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/farlog/farlog/pkg/farlog"
)

const (
	// refusalInterval is how long the same refusal is not logged again: who is refused tries again ten times a second.
	refusalInterval = time.Minute
	// refusalKinds is how many different ones are told apart in that time; more of them are counted alone.
	refusalKinds = 32
)

// refusals writes down whom a listener did not let in.
type refusals struct {
	listener string
	read     func(after uint64) ([]farlog.TargetRefusal, uint64)
	after    uint64
	missed   uint64 // that the listener no longer had when it was asked, or that were of too many kinds
	told     map[refusalKind]*refusalTold
}

// refusalKind is what makes two refusals the same: the port of the peer, which changes with each attempt, does not
// count.
type refusalKind struct{ host, ring, text string }

type refusalTold struct {
	at    time.Time
	since int // not logged since then
}

func newRefusals(listener string, read func(uint64) ([]farlog.TargetRefusal, uint64)) *refusals {
	return &refusals{listener: listener, read: read, told: make(map[refusalKind]*refusalTold)}
}

// logNew logs what was refused since the last time: each kind at once, and then once a minute while it goes on.
func (r *refusals) logNew(logger *slog.Logger, now time.Time) {
	list, _ := r.read(r.after)
	for _, one := range list {
		r.missed += one.Sequence - r.after - 1
		r.after = one.Sequence
		r.add(logger, now, one)
	}
	for kind, told := range r.told {
		if now.Sub(told.at) >= refusalInterval && told.since == 0 {
			delete(r.told, kind)
		}
	}
}

func (r *refusals) add(logger *slog.Logger, now time.Time, one farlog.TargetRefusal) {
	host, _, err := net.SplitHostPort(one.Peer)
	if err != nil {
		host = one.Peer
	}
	kind := refusalKind{host, one.Ring, one.Text}
	told := r.told[kind]
	if told == nil {
		if len(r.told) >= refusalKinds {
			r.missed++
			return
		}
		told = &refusalTold{at: now.Add(-refusalInterval)}
		r.told[kind] = told
	}
	if now.Sub(told.at) < refusalInterval {
		told.since++
		return
	}
	logger.Warn("client rejected", "listener", r.listener, "peer", one.Peer, "ring", one.Ring, "result",
		one.Result.String(), "reason", one.Text, "repeated", told.since, "suppressed", r.missed)
	*told, r.missed = refusalTold{at: now}, 0
}

func (d *remoteServer) logRefusals(logger *slog.Logger, now time.Time) {
	for _, one := range d.refusals {
		one.logNew(logger, now)
	}
}

// Unauthenticated are connections to the listeners of one transport by no grant that is known here.
type Unauthenticated struct {
	Refused uint64 // of all there ever were
	farlog.Unauthenticated
}

// Unauthenticated counts, by transport, the connections that came by no grant that is known here, or by none.
func (t *Target) Unauthenticated() map[string]Unauthenticated {
	counts := make(map[string]Unauthenticated)
	for _, listener := range t.remote.listeners {
		transport, _, _ := strings.Cut(listener.URI(), ":")
		_, refused := listener.Refusals(^uint64(0))
		now, sum := listener.Unauthenticated(), counts[transport]
		for reason, count := range sum.Closed {
			now.Closed[reason] += count
		}
		counts[transport] = Unauthenticated{
			Refused:         sum.Refused + refused,
			Unauthenticated: farlog.Unauthenticated{Open: sum.Open + now.Open, Closed: now.Closed},
		}
	}
	return counts
}
