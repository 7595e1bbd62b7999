package slogfarlog

import (
	"bufio"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/farlog"
)

// What TestKill proves, and how. A child, which is this test program, logs from three goroutines; each writes one line
// to a pipe when its logging call has returned. It gets SIGKILL at a random moment. Then the ring must have, for each
// goroutine and in its order, every event whose line came, and at most one more: that which was under way.
const (
	childRing       = "FARLOG_SLOG_CHILD_RING"
	childRound      = "FARLOG_SLOG_CHILD_ROUND"
	childGoroutines = 3
)

func logUntilKilled(uri string) {
	w, err := farlog.OpenShared(uri, farlog.WriterOptions{Level: farlog.LevelVisible, CountersDir: "none"})
	if err != nil {
		panic(err)
	}
	h, err := New(w, Options{Format: FormatText, Policy: PolicyBlock, Patience: 20 * time.Second, OnError: FailStop})
	if err != nil {
		panic(err)
	}
	for g := range childGoroutines {
		log := slog.New(h).With("round", os.Getenv(childRound), "g", g)
		go func() {
			for n := 1; ; n++ {
				log.Info("event", "n", n, "fill", strings.Repeat("x", n%200))
				if _, err := os.Stdout.Write(fmt.Appendf(nil, "%d %d\n", g, n)); err != nil {
					panic(err)
				}
			}
		}()
	}
	select {}
}

// round starts a child, kills it and gives what it said had returned.
func round(t *testing.T, d *drain, uri string, number int, life time.Duration) (events []event,
	returned [childGoroutines]int,
) {
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childRing+"="+uri, childRound+"="+strconv.Itoa(number))
	child.Stderr = os.Stderr
	pipe, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	killed := time.AfterFunc(life, func() { _ = child.Process.Kill() })
	defer killed.Stop()
	lines := make(chan [childGoroutines]int, 1)
	go func() {
		var seen [childGoroutines]int
		for scanner := bufio.NewScanner(pipe); scanner.Scan(); {
			var g, n int
			if _, err := fmt.Sscanf(scanner.Text(), "%d %d", &g, &n); err == nil {
				seen[g] = n
			}
		}
		lines <- seen
	}()
	for isRunning := true; isRunning; {
		select {
		case returned = <-lines: // the pipe is closed: it is dead
			isRunning = false
		case <-time.After(time.Millisecond):
		}
		events = append(events, d.take()...)
	}
	if err := child.Wait(); err == nil || child.ProcessState.ExitCode() != -1 {
		t.Fatalf("round %d: child ended by itself: %v", number, err)
	}
	return append(events, d.take()...), returned
}

func TestKill_WhatReturnedIsInTheRing(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("FARLOG_TEST_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("FARLOG_TEST_SEED %q: expected a number", text)
		}
	}
	t.Logf("seed %d (FARLOG_TEST_SEED repeats the choices)", seed)
	random := rand.New(rand.NewPCG(seed, 7))
	uri := newRing(t, 1<<20, 0)
	d := openDrain(t, uri)
	began, total := time.Now(), 0
	rounds := 120
	if testing.Short() {
		rounds = 20
	}
	for number := range rounds {
		events, returned := round(t, d, uri, number, time.Duration(random.IntN(100_000))*time.Microsecond)
		var last [childGoroutines]int
		for _, one := range events {
			var of, g, n int
			_, text, _ := strings.Cut(one.text, "round=")
			if _, err := fmt.Sscanf(text, "%d g=%d n=%d", &of, &g, &n); err != nil || of != number || n != last[g]+1 {
				t.Fatalf("round %d: %q after event %d: %v", number, one.text, last[g], err)
			}
			last[g] = n
		}
		for g := range last {
			if last[g] < returned[g] || last[g] > returned[g]+1 {
				t.Fatalf("round %d: goroutine %d logged %d events, the ring has %d", number, g, returned[g], last[g])
			}
		}
		total += len(events)
	}
	if total < rounds {
		t.Errorf("%d events in %d rounds: the children were killed before they could log", total, rounds)
	}
	t.Logf("%d kills, %d events, %s", rounds, total, time.Since(began))
}
