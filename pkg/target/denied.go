package target

import (
	"log/slog"
	"time"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/farlog"
)

// deniedShown is how long a ring shows that the device refused operations of a client.
const deniedShown = 10 * time.Minute

const deniedText = "a client of a ring wrote or read where its key does not let it: the RDMA device refused it and " +
	"ended its connection; expected accesses within the ring. farlog grant list names who has the grant; farlog " +
	"stream takeover makes its key useless"

// denials remembers how many operations of a ring's clients the RDMA device refused. It is of the goroutine that looks
// at the rings.
type denials struct {
	seen map[string]denied // by stream
}

type denied struct {
	count uint64
	at    time.Time // of the last one; zero: none
}

// describe has a ring warn of operations that were refused, and logs those since the last look: whoever has a grant of
// the ring has written or read where its key does not let it, as no client of farlog does.
func (d *denials) describe(state *api.RingState, counters []farlog.Counter, logger *slog.Logger, now time.Time) {
	one, count := d.seen[state.Stream], numberOf(counters, "denied_count")
	if count > one.count {
		one.at = now
		logger.Error(deniedText, "stream", state.Stream, "ring", state.Uri, "operations", count-one.count)
	}
	one.count = count
	if d.seen == nil {
		d.seen = make(map[string]denied)
	}
	d.seen[state.Stream] = one
	if !one.at.IsZero() && now.Sub(one.at) <= deniedShown {
		state.Warning = deniedText
	}
}

// counters are a ring's at all listeners together.
func (d *remoteServer) counters(stream string) []farlog.Counter {
	var sum ServedRing
	for _, listener := range d.listeners {
		counters, err := listener.Counters(stream)
		switch {
		case err != nil: // it is not served there
		case sum.Counters == nil:
			sum.Counters = counters.All()
		default:
			sum.add(counters.All())
		}
	}
	return sum.Counters
}
