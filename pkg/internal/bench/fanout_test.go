package main

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// Every reader has every message once, in order; the drain among them gives the space back.
func TestFanout_EveryReaderHasEveryMessage(t *testing.T) {
	run, err := fanoutOnce(20_000, 100*time.Millisecond, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if run.why != nil || run.delays.count != 2_000*fanoutReaders || run.took < run.dueOf(run.count-1) ||
		run.delays.max < run.last || run.last <= 0 {
		t.Errorf("%v: %d receipts, expected %d; the producer took %s, the last message %s", run.why, run.delays.count,
			2_000*fanoutReaders, run.took, run.last)
	}
}

// A rate is held when nothing speaks against it: each thing that does, alone.
func TestFanout_WhatSpeaksAgainstARate(t *testing.T) {
	ask := fanoutAsk{length: time.Second, p99Max: 50 * time.Millisecond}
	good := func() *fanoutRun {
		run := &fanoutRun{rate: 1000, count: 1000, took: time.Second, last: fanoutBehindMax}
		for i := range 1000 {
			run.delays.add(time.Millisecond)
			if i < 9 {
				run.delays.add(time.Second) // fewer than one in a hundred
			}
		}
		return run
	}
	if err := ask.isHeld(good()); err != nil {
		t.Fatalf("a good run: %v", err)
	}
	for name, spoil := range map[string]func(*fanoutRun){
		"late producer": func(run *fanoutRun) { run.took = 1011 * time.Millisecond },
		"reader behind": func(run *fanoutRun) { run.last = fanoutBehindMax + 1 },
		"p99 out of bounds": func(run *fanoutRun) {
			run.delays.add(time.Second)
			run.delays.add(time.Second)
			run.delays.add(time.Second)
		},
		"reader passed by": func(run *fanoutRun) { run.why = fmt.Errorf("%w: passed by", errNotKept) },
	} {
		run := good()
		spoil(run)
		if err := ask.isHeld(run); !errors.Is(err, errNotKept) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFanout_RefusesAnEnvironmentThatSaysNothing(t *testing.T) {
	t.Setenv("FARLOG_BENCH_SECONDS", "0")
	if _, err := fanoutAsked(); err == nil ||
		err.Error() != `FARLOG_BENCH_SECONDS="0": expected seconds for each rate, above 0, such as 3` {
		t.Error(err)
	}
	t.Setenv("FARLOG_BENCH_SECONDS", "0.5")
	t.Setenv("FARLOG_BENCH_P99", "fast")
	if _, err := fanoutAsked(); err == nil ||
		err.Error() != `FARLOG_BENCH_P99="fast": expected the highest p99 that counts as held, such as 50ms` {
		t.Error(err)
	}
	t.Setenv("FARLOG_BENCH_P99", "1ms")
	if ask, err := fanoutAsked(); err != nil || ask.length != 500*time.Millisecond || ask.p99Max != time.Millisecond {
		t.Errorf("%+v, %v", ask, err)
	}
}
