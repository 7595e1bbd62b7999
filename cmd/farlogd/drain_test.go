//go:build cgo

package main

import (
	"bytes"
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/drain"
	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/metrics"
	"github.com/farlog/farlog/pkg/store"
)

// lockedLog is a log that goroutines write.
type lockedLog struct {
	mutex  sync.Mutex
	buffer bytes.Buffer
}

func (l *lockedLog) Write(raw []byte) (int, error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.buffer.Write(raw)
}

func (l *lockedLog) String() string {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.buffer.String()
}

// What this proves, and how. Somebody else writes the stream in the drain's store, as a replica does that was given the
// same directory. The drain tries again for ever: its health, its state for the control plane and its metric say so for
// as long, with who holds it, and its log not only once. When the other one has gone, it drains, and says that it is
// well.
func TestDrain_StoreIsHeldByAnother(t *testing.T) {
	dir := t.TempDir()
	uri := "mem:" + filepath.Join(dir, "a.ring")
	if err := farlog.Format(uri, farlog.FormatOptions{SizeBytes: 1 << 20, StreamName: "a"}); err != nil {
		t.Fatal(err)
	}
	ring, err := farlog.Inspect(uri)
	if err != nil {
		t.Fatal(err)
	}
	open := func() *store.Store {
		t.Helper()
		opened, err := store.Open(filepath.Join(dir, "store"), store.Options{Create: true})
		if err != nil {
			t.Fatal(err)
		}
		return opened
	}
	holder, err := open().OpenStream(store.Source{
		StreamName: "a", StreamID: ring.StreamID, RingUUID: ring.RingUUID,
		Salt: ring.Salt, Align: ring.Align, RecordLenMax: ring.RecordLenMax,
	})
	if err != nil {
		t.Fatal(err)
	}
	var log lockedLog
	role := &drainRole{
		link:     newControlLink(roleDrain),
		settings: &settings{batchBytes: 1 << 20, pollInterval: time.Millisecond}, agent: new(api.Agent), store: open(),
		tails: drain.NewTails(), sayAgain: time.Millisecond, clockJump: func() string { return "" },
		logger: slog.New(slog.NewTextHandler(&log, nil)), workers: map[string]*drainWorker{},
		ending: map[string]<-chan struct{}{},
	}
	role.link.note(nil) // it has reported
	role.metrics = metrics.NewDrain(prometheus.NewRegistry(), role.samples)
	role.merging = &merging{store: role.store, logger: role.logger}
	ctx, cancel := context.WithCancel(t.Context())
	role.apply(ctx, []*api.Assignment{{Stream: "a", Uri: uri, RingUuid: ring.RingUUID[:]}})
	defer func() { cancel(); role.running.Wait() }()
	until := func(what string, is func() bool) {
		t.Helper()
		for deadline := time.Now().Add(stepTimeout); !is(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("waited until %s; health %v, state %v, log:\n%s", what, role.healthy(), role.state(),
					log.String())
			}
		}
	}
	const why = "stream is held by another appender: "
	until("the log says so three times", func() bool { return strings.Count(log.String(), why) >= 3 })
	if err := role.healthy(); err == nil || !strings.Contains(err.Error(), "drain of stream a: ") ||
		!strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), "pid=") {
		t.Errorf("health: %v", err)
	}
	if state := role.state().Progress[0]; !strings.Contains(state.LastError, why) {
		t.Errorf("state: %v", state)
	}
	if sample := role.samples()[0]; !sample.IsFailing || sample.IsGap {
		t.Errorf("metric: %+v", sample)
	}
	if err := holder.Close(); err != nil {
		t.Fatal(err)
	}
	until("it drains", func() bool { return role.healthy() == nil && !role.samples()[0].IsFailing })
}

// A failure that stays is told again now and then, and not at each attempt; another one at once.
func TestFailureSaid(t *testing.T) {
	said, now := failureSaid{again: drainSayAgain}, time.Unix(1000, 0)
	for _, step := range []struct {
		after time.Duration
		text  string
		want  bool
	}{
		{0, "held", true},
		{time.Second, "held", false},
		{time.Second, "gone", true},
		{drainSayAgain - 1, "gone", false},
		{1, "gone", true},
		{drainRetryMost, "gone", false},
	} {
		if now = now.Add(step.after); said.isDue(step.text, now) != step.want {
			t.Errorf("%s: %q: expected %t", now.Sub(time.Unix(1000, 0)), step.text, step.want)
		}
	}
	if said.age() != drainSayAgain+2*time.Second {
		t.Errorf("fails for %s", said.age())
	}
}
