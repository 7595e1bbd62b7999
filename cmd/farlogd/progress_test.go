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
	want := "target: hangs: its loop has not gone round for 3m0s, expected at least once a minute; its disk may not " +
		"answer (dmesg): a SIGQUIT prints where it waits, and ends it"
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
