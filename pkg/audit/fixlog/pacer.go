package fixlog

import (
	"math/rand/v2"
	"time"
)

// The shape of the published capture: an order flow of 1,724 messages a second on average whose busiest milliseconds
// run at 186,000 a second.
const (
	MeanPerSecond      = 1724
	PeakPerMillisecond = 186
)

const (
	slotNS          = int64(time.Millisecond)
	periodSeconds   = 10
	slotsPerPeriod  = periodSeconds * 1000
	countPerPeriod  = periodSeconds * MeanPerSecond
	burstMax        = PeakPerMillisecond - 1
	burstTailFactor = 1 - 1.0/PeakPerMillisecond
)

// Pacer is a schedule of send times in the published capture's shape, made from a seed alone.
//
// Time is cut into periods of 10 s, and these into slots of 1 ms. A period holds exactly 17,240 messages (10 × 1,724):
// one slot of 186, and bursts that are thrown at free slots until the rest is used up. The size of a burst is a bounded
// Pareto variable with exponent 1,
//
//	size = ⌊1 / (1 − u·(1 − 1/186))⌋, u uniform in [0, 1): 1 … 185, on average about 4.8,
//
// so that half of the bursts are single messages and about one in 200 is of 100 or more; two slots of three stay empty.
// The messages of a slot are spread evenly over it, and so no millisecond, wherever it begins, holds more than 186.
type Pacer struct {
	seed   uint64
	period uint64
	counts [slotsPerPeriod]uint8
	slot   int
	sent   int // messages of the slot already given out
}

// NewPacer returns the schedule of a seed, at its start.
func NewPacer(seed uint64) *Pacer {
	pacer := &Pacer{seed: seed}
	pacer.fillPeriod()
	return pacer
}

// Next returns when the next message is due, from the start of the schedule. Times never go back; there is no end.
func (p *Pacer) Next() time.Duration {
	for p.sent == int(p.counts[p.slot]) {
		p.sent = 0
		p.slot++
		if p.slot == slotsPerPeriod {
			p.slot = 0
			p.period++
			p.fillPeriod()
		}
	}
	slotStart := (int64(p.period)*slotsPerPeriod + int64(p.slot)) * slotNS
	within := (2*int64(p.sent) + 1) * slotNS / (2 * int64(p.counts[p.slot]))
	p.sent++
	return time.Duration(slotStart + within)
}

func (p *Pacer) fillPeriod() {
	//lint:ignore G404 the pace of messages of an exercise, the same by the same seed
	random := rand.New(rand.NewPCG(p.seed, p.period))
	clear(p.counts[:])
	p.counts[random.IntN(slotsPerPeriod)] = PeakPerMillisecond
	for left := countPerPeriod - PeakPerMillisecond; left > 0; {
		slot := random.IntN(slotsPerPeriod)
		if p.counts[slot] != 0 {
			continue
		}
		burst := min(int(1/(1-random.Float64()*burstTailFactor)), burstMax, left)
		p.counts[slot] = uint8(burst)
		left -= burst
	}
}
