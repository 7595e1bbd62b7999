package slogfarlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/farlog"
)

func record2000() slog.Record {
	return slog.NewRecord(time.Now(), slog.LevelInfo, strings.Repeat("f", 2000), 0)
}

// fill logs until an event fails and gives its error.
func fill(t *testing.T, h *Handler) error {
	t.Helper()
	for range 1000 {
		if err := h.Handle(context.Background(), record2000()); err != nil {
			return err
		}
	}
	t.Fatal("a ring of 1 MiB took 1000 events of 2000 bytes")
	return nil
}

func TestPolicyFail_RingFull_IsReturnedAndHeard(t *testing.T) {
	uri := newRing(t, 1<<20, 0)
	d := openDrain(t, uri)
	var received error
	h := newHandler(t, openShared(t, uri, farlog.PolicyReject),
		Options{OnError: func(_ context.Context, err error) { received = err }})
	if err := fill(t, h); !errors.Is(err, farlog.ErrFull) || err != received {
		t.Errorf("error %v, received %v: want ErrFull, twice", err, received)
	}
	d.take()
	slog.New(h).Info("space")
	if events := d.take(); len(events) != 1 || !strings.Contains(events[0].text, "space") {
		t.Errorf("after the drain: %v", events)
	}
}

func TestFailStop_ReachesTheGoroutineThatLogs(t *testing.T) {
	w := openShared(t, newRing(t, 1<<20, 0), farlog.PolicyReject)
	log := slog.New(newHandler(t, w, Options{OnError: FailStop}))
	w.Close()
	defer func() {
		err, _ := recover().(error)
		if !errors.Is(err, farlog.ErrClosed) {
			t.Errorf("recovered %v: want ErrClosed", err)
		}
	}()
	log.Info("too late")
	t.Error("the logging call returned")
}

func TestPolicyBlock_RingFull_WaitsForThePatience(t *testing.T) {
	for _, policy := range []farlog.Policy{farlog.PolicyBlock, farlog.PolicyReject} {
		uri := newRing(t, 1<<20, 0)
		d := openDrain(t, uri)
		w := openShared(t, uri, policy)
		h, patient := newHandler(t, w, Options{Policy: PolicyBlock, Patience: 300 * time.Millisecond}),
			newHandler(t, w, Options{Policy: PolicyBlock, Patience: time.Minute})
		before := time.Now()
		if err := fill(t, h); !errors.Is(err, farlog.ErrFull) || time.Since(before) < 300*time.Millisecond {
			t.Errorf("writer with %s: %v after %s: want ErrFull after 300ms", policy, err, time.Since(before))
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer cancel()
		before = time.Now()
		err := patient.Handle(ctx, record2000())
		if took := time.Since(before); !errors.Is(err, farlog.ErrFull) || took < 9*time.Millisecond ||
			took > 30*time.Second {
			t.Errorf("writer with %s: %v after %s: want ErrFull at the context's deadline", policy, err, took)
		}
		finished := make(chan error, 1)
		go func() { finished <- patient.Handle(context.Background(), record2000()) }()
		time.Sleep(5 * time.Millisecond) // it may be waiting already, or not yet: both must end well
		d.take()
		if err := <-finished; err != nil {
			t.Errorf("writer with %s: %v although the drain made space", policy, err)
		}
	}
}

// An event about a deadline that has passed is logged nevertheless.
func TestHandler_ContextIsOver_EventIsWritten(t *testing.T) {
	dir := t.TempDir()
	uri := "mem:" + dir + "/events.ring"
	if err := farlog.Format(uri, farlog.FormatOptions{SizeBytes: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	options := farlog.WriterOptions{CountersDir: "none"}
	if contract, err := farlog.Probe(uri); err != nil || contract.Level < farlog.LevelPersistent {
		options.Level = farlog.LevelVisible
	}
	w, err := farlog.OpenShared(uri, options)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	ctx, cancel := context.WithTimeout(context.Background(), -time.Second)
	cancel()
	for _, options := range []Options{{}, {Policy: PolicyBlock, Patience: time.Minute}, {Policy: PolicyDropAndGap}} {
		h := newHandler(t, w, options)
		if err := h.Handle(ctx, record2000()); err != nil {
			t.Errorf("policy %d: %v", options.Policy, err)
		}
	}
	if events := openDrain(t, uri).take(); len(events) != 3 {
		t.Errorf("%d events: want 3", len(events))
	}
}

func TestPolicyDropAndGap_GapIsToldBeforeWhatFollows(t *testing.T) {
	uri := newRing(t, 1<<20, 0)
	d := openDrain(t, uri)
	received := 0
	h := newHandler(t, openShared(t, uri, farlog.PolicyReject),
		Options{Policy: PolicyDropAndGap, OnError: func(context.Context, error) { received++ }})
	for h.Dropped() < 5 {
		if err := h.Handle(context.Background(), record2000()); err != nil {
			t.Fatal(err)
		}
	}
	d.take()
	slog.New(h).Info("space")
	events := d.take()
	if len(events) != 2 || events[0].text != "farlog.gap dropped=5" || events[0].class != GapClassDefault ||
		!strings.Contains(events[1].text, "space") {
		t.Errorf("events %v: want the gap of 5, then the event", events)
	}
	slog.New(h).Info(strings.Repeat("x", 1<<19)) // larger than any record of this ring
	if err := h.Flush(context.Background()); err != nil {
		t.Error(err)
	}
	if events := d.take(); len(events) != 1 || events[0].text != "farlog.gap dropped=1" || received != 6 {
		t.Errorf("events %v, received %d: want a gap of 1, and 6", events, received)
	}
}

// Every event of every goroutine is in the ring, or counted by a gap record.
func TestPolicyDropAndGap_GapsAddUp(t *testing.T) {
	uri := newRing(t, 256<<10, 0)
	d := openDrain(t, uri)
	h := newHandler(t, openShared(t, uri, farlog.PolicyReject), Options{Policy: PolicyDropAndGap})
	var group sync.WaitGroup
	const goroutines, each = 4, 3000
	for range goroutines {
		group.Go(func() {
			for range each {
				slog.New(h).Info("event", "fill", strings.Repeat("x", 200))
			}
		})
	}
	finished := make(chan struct{})
	go func() { group.Wait(); close(finished) }()
	var events []event
	for isRunning := true; isRunning; {
		select {
		case <-finished:
			isRunning = false
		case <-time.After(time.Millisecond):
		}
		events = append(events, d.take()...)
	}
	if err := h.Flush(context.Background()); err != nil {
		t.Fatal(err)
	}
	there, told := 0, 0
	for _, one := range append(events, d.take()...) {
		var count int
		if one.class != GapClassDefault {
			there++
		} else if _, err := fmt.Sscanf(one.text, "farlog.gap dropped=%d", &count); err != nil {
			t.Fatal(err)
		}
		told += count
	}
	if there+told != goroutines*each || uint64(told) != h.Dropped() {
		t.Errorf("%d events and gaps of %d: want %d together, and %d dropped", there, told, goroutines*each,
			h.Dropped())
	}
}
