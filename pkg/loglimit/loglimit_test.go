package loglimit

import (
	"strconv"
	"testing"
	"time"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestAllow_OnePartyIsCutOffAndOthersAreNot(t *testing.T) {
	var limiter Limiter
	allowed := 0
	for range 10_000 {
		if _, ok := limiter.Allow("mallory", start); ok {
			allowed++
		}
	}
	if allowed != burst {
		t.Fatalf("%d lines of 10000, expected %d", allowed, burst)
	}
	if suppressed, ok := limiter.Allow("ada", start); !ok || suppressed != 0 {
		t.Fatalf("another party: %d, %v", suppressed, ok)
	}
	if suppressed, ok := limiter.Allow("mallory", start.Add(interval)); !ok || suppressed != 10_000-burst {
		t.Fatalf("%d suppressed, %v; expected %d to be told with the next line", suppressed, ok, 10_000-burst)
	}
}

func TestAllow_ManyNamesAreOneParty(t *testing.T) {
	var limiter Limiter
	allowed := 0
	for i := range 100 * partiesMax {
		if _, ok := limiter.Allow(strconv.Itoa(i), start); ok {
			allowed++
		}
	}
	if allowed > partiesMax+burst || len(limiter.parties) > partiesMax {
		t.Fatalf("%d lines, %d parties; expected at most %d", allowed, len(limiter.parties), partiesMax+burst)
	}
	if _, ok := limiter.Allow("later", start.Add(burst*interval)); !ok || len(limiter.parties) != 1 {
		t.Fatalf("%d parties are kept when all were idle", len(limiter.parties))
	}
}
