package main

import (
	"strings"
	"testing"
	"time"
)

// A daemon is unhealthy while the loop of one of its roles hangs, and names the role.
func TestDaemon_StalledWhileALoopHangs(t *testing.T) {
	var d daemon
	first, second := d.newProgress("drain"), d.newProgress("target")
	if err := d.stalled(time.Now().Add(time.Hour)); err != nil {
		t.Errorf("before the first round: %v", err)
	}
	first.note()
	second.note()
	began := *first.began.Load()
	if err := d.stalled(began.Add(roundMax)); err != nil {
		t.Errorf("within a round: %v", err)
	}
	later := time.Now().Add(2 * roundMax)
	first.began.Store(&later) // it goes on
	want := "target: hangs: its main loop has not turned for 3m0s, expected at least once a minute: look whether its " +
		"disk answers (dmesg)"
	if err := d.stalled(second.began.Load().Add(3 * roundMax)); err == nil || err.Error() != want {
		t.Errorf("%v, expected %q", err, want)
	}
	if err := d.healthy(); err != nil {
		t.Errorf("/healthz of a daemon whose loops go round: %v", err)
	}
	before := time.Now().Add(-2 * roundMax)
	second.began.Store(&before)
	if err := d.healthy(); err == nil || !strings.HasPrefix(err.Error(), "target: hangs: ") {
		t.Errorf("/healthz of a daemon whose target hangs: %v", err)
	}
}

// A loop that never begins hangs from when the daemon is ready; one that has begun counts from its last round.
func TestProgress_ExpectedAndNeverBegun(t *testing.T) {
	var d daemon
	never, begun := d.newProgress("drain"), d.newProgress("target")
	begun.note()
	last := *begun.began.Load()
	never.expect()
	begun.expect()
	if got := *begun.began.Load(); got != last {
		t.Errorf("counts from %v, its last round was at %v", got, last)
	}
	if err := never.stalled(never.began.Load().Add(roundMax)); err != nil {
		t.Errorf("within the first round: %v", err)
	}
	if err := never.stalled(never.began.Load().Add(2 * roundMax)); err == nil {
		t.Error("a loop that never begins does not count as one that hangs")
	}
}
