// Package loglimit bounds how many lines one party can cause in a log.
package loglimit

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	burst      = 10              // lines that a party may cause at once
	interval   = 6 * time.Second // for one more
	partiesMax = 1024            // whose lines are counted apart; beyond them all others are one party
)

// Limiter counts lines by party: a user, an address, an identity. The zero value is ready. Any goroutine may use it.
type Limiter struct {
	mutex   sync.Mutex
	parties map[string]*party
	swept   time.Time
	others  party // beyond partiesMax
}

type party struct {
	lines      *rate.Limiter
	suppressed int
	last       time.Time
}

// Allow reports whether a line of the party is to be logged now, and how many of its lines were not since the last one
// that was.
func (l *Limiter) Allow(name string, now time.Time) (suppressed int, isAllowed bool) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	one := l.of(name, now)
	one.last = now
	if !one.lines.AllowN(now, 1) {
		one.suppressed++
		return 0, false
	}
	suppressed, one.suppressed = one.suppressed, 0
	return suppressed, true
}

// of finds a party; the caller holds the mutex.
func (l *Limiter) of(name string, now time.Time) *party {
	if one := l.parties[name]; one != nil {
		return one
	}
	if len(l.parties) >= partiesMax && now.Sub(l.swept) >= interval {
		l.forgetIdle(now)
		l.swept = now
	}
	one := &l.others
	if len(l.parties) < partiesMax {
		one = new(party)
		if l.parties == nil {
			l.parties = map[string]*party{}
		}
		l.parties[name] = one
	}
	if one.lines == nil {
		one.lines = rate.NewLimiter(rate.Every(interval), burst)
	}
	return one
}

// forgetIdle forgets those whose limit is what it was at first.
func (l *Limiter) forgetIdle(now time.Time) {
	for name, one := range l.parties {
		if now.Sub(one.last) >= burst*interval {
			delete(l.parties, name)
		}
	}
}
