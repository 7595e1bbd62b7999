package farlog

import "time"

// Stall finds out from a writer's counters for how long no acknowledgement has come while records wait for one.
// Latencies tell of it only afterwards. The zero value has seen nothing. It is not for several goroutines.
type Stall struct {
	epoch, durableLSN uint64
	since             time.Time // zero: nothing waited at the last look
}

// Update gives that time as far as it was seen by the looks so far, 0 while nothing waits. The first look at records
// that wait gives 0 too: when the last acknowledgement came is not known.
func (s *Stall) Update(counters *Counters, now time.Time) time.Duration {
	appended, durable, epoch := counters.AppendedLSN(), counters.DurableLSN(), counters.Epoch()
	if appended <= durable {
		*s = Stall{}
		return 0
	}
	if s.since.IsZero() || s.epoch != epoch || s.durableLSN != durable {
		*s = Stall{epoch: epoch, durableLSN: durable, since: now}
	}
	return max(0, now.Sub(s.since))
}
