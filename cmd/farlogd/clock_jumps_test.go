package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// A clock that is set an hour back, or ten years ahead, is seen at the next look; one that is slewed, a look that comes
// late, and a host that slept are no jumps.
func TestClockJumps_AreSeenAndNothingElse(t *testing.T) {
	var log bytes.Buffer
	start := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	wall, elapsed := start, 5*time.Hour
	jumps := newClockJumps(slog.New(slog.NewTextHandler(&log, nil)))
	jumps.read = func() (time.Time, time.Duration) { return wall, elapsed }
	pass := func(by, jump time.Duration) {
		wall, elapsed = wall.Add(by+jump), elapsed+by
		jumps.look()
	}
	jumps.look()
	for range 50 {
		pass(time.Second, 100*time.Millisecond) // chrony slews by no more
	}
	pass(9*time.Hour, 0)
	if count, last := jumps.sample(); count != 0 || last != 0 || jumps.recent() != "" || log.Len() > 0 {
		t.Fatalf("%d jumps, the last by %s: %q, %s", count, last, jumps.recent(), log.String())
	}
	for i, jump := range []time.Duration{-time.Hour, 10 * 365 * 24 * time.Hour} {
		log.Reset()
		before := wall
		pass(time.Second, jump)
		pass(time.Second, 0)
		if count, last := jumps.sample(); count != uint64(i+1) || last != jump {
			t.Errorf("%d jumps, the last by %s, expected %s", count, last, jump)
		}
		for _, text := range []string{
			"by=" + signed(jump), "from=" + before.Format(time.RFC3339), "expected steps below 500ms", "farlog doctor",
		} {
			if strings.Count(log.String(), text) != 1 {
				t.Errorf("%s: log has not %q once: %s", jump, text, log.String())
			}
		}
		if text := jumps.recent(); !strings.Contains(text, "the clock jumped by "+signed(jump)+" to ") {
			t.Errorf("%s: %q", jump, text)
		}
	}
	pass(clockToldFor+time.Second, 0)
	if text := jumps.recent(); text != "" {
		t.Errorf("an hour later: %q", text)
	}
}

// The clocks of this machine do not jump from one look to the next.
func TestReadClocks(t *testing.T) {
	wall, elapsed := readClocks()
	later, then := readClocks()
	if elapsed <= 0 || (later.Sub(wall)-(then-elapsed)).Abs() > clockJumpMost {
		t.Errorf("%s at %s, %s at %s", wall, elapsed, later, then)
	}
}
