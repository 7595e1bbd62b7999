package target

import (
	"log/slog"

	"github.com/farlog/farlog/pkg/farlog"
)

// denials remembers how many operations of a ring's clients the RDMA device refused. It is of the goroutine that looks
// at the rings.
type denials struct {
	seen map[string]uint64 // by stream
}

// logNew logs operations that were refused since the last look: whoever has a grant of the ring has written or read
// where its key does not let it, as no client of farlog does.
func (d *denials) logNew(stream, ring string, counters []farlog.Counter, logger *slog.Logger) {
	denied, before := numberOf(counters, "denied_count"), d.seen[stream]
	if d.seen == nil {
		d.seen = map[string]uint64{}
	}
	if d.seen[stream] = denied; denied <= before {
		return
	}
	logger.Error("a client of a ring wrote or read where its key does not let it: the RDMA device refused it and "+
		"ended its connection; expected accesses within the ring. farlog grant list names who has the grant; farlog "+
		"stream takeover makes its key useless", "stream", stream, "ring", ring, "operations", denied-before)
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
