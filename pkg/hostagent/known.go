package hostagent

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
)

const (
	checkInterval = 2 * time.Second  // between two questions for all writers together
	checkTimeout  = 5 * time.Second  // for the answer
	knownMost     = 6 * time.Second  // how old an answer becomes that nothing has confirmed
	askedMost     = 15 * time.Second // a writer that has not asked for so long is none: three times the pause that a writer makes
	writersMost   = 16384            // known at a time; the control plane is asked for each of those beyond
	writersAtOnce = 1024             // in one question: what CheckWriters takes
)

// Known is a writer with the last answer that it was given: no ring has changed, and this is how its stream is declared.
type Known struct {
	ExtendRequest
	Declared Terms
}

// Writers answers writers of this host that ask again and again how their streams are declared, and asks the control plane for all of them together whether anything has changed since it was last
// asked. Only for a writer of which it says so, or that asks something new, it is asked by itself. Without an answer of the control plane no answer given here is older than knownMost.
type Writers struct {
	extend func(context.Context, ExtendRequest) ([]Extension, Terms, error)
	check  func(context.Context, []Known) (changed []int, err error)
	logger *slog.Logger

	mutex sync.Mutex
	known map[writerKey]*knownWriter
}

type writerKey struct {
	stream string
	pid    int32
}

type knownWriter struct {
	Known
	confirmed, asked time.Time
}

// NewWriters takes the two questions to the control plane: what one writer has to be told, and which of many have to be told anything but what they were.
func NewWriters(extend func(context.Context, ExtendRequest) ([]Extension, Terms, error), check func(context.Context, []Known) ([]int, error), logger *slog.Logger) *Writers {
	return &Writers{extend: extend, check: check, logger: logger, known: make(map[writerKey]*knownWriter)}
}

// Extend answers one writer. Any goroutine may call it.
func (w *Writers) Extend(ctx context.Context, request ExtendRequest) ([]Extension, Terms, error) {
	key, now := writerKey{request.Stream, request.PID}, time.Now()
	if declared, isKnown := w.recall(key, request, now); isKnown {
		return nil, declared, nil
	}
	extensions, declared, err := w.extend(ctx, request)
	w.mutex.Lock()
	defer w.mutex.Unlock()
	delete(w.known, key)
	if err == nil && len(extensions) == 0 && len(w.known) < writersMost {
		w.known[key] = &knownWriter{Known: Known{request, declared}, confirmed: now, asked: now}
	}
	return extensions, declared, err
}

// recall finds an answer to the same question that is still good.
func (w *Writers) recall(key writerKey, request ExtendRequest, now time.Time) (Terms, bool) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	found := w.known[key]
	if found == nil || !isSameRequest(found.ExtendRequest, request) || now.Sub(found.confirmed) > knownMost {
		return Terms{}, false
	}
	found.asked = now
	return found.Declared, true
}

func isSameRequest(a, b ExtendRequest) bool {
	isSameRunning := a.Running == b.Running || a.Running != nil && b.Running != nil && *a.Running == *b.Running
	return isSameRunning && a.Stream == b.Stream && a.Transport == b.Transport && a.Epoch == b.Epoch && a.PID == b.PID && slices.EqualFunc(a.RingUUIDs, b.RingUUIDs, bytes.Equal)
}

// Run asks for all of them until ctx is done.
func (w *Writers) Run(ctx context.Context) {
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		for part := range slices.Chunk(w.list(time.Now()), writersAtOnce) {
			w.confirm(ctx, part)
		}
	}
}

// list forgets those that do not ask any more, and gives the others.
func (w *Writers) list(now time.Time) (all []*knownWriter) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	for key, one := range w.known {
		if now.Sub(one.asked) > askedMost {
			delete(w.known, key)
			continue
		}
		all = append(all, one)
	}
	return all
}

// confirm asks for some of them. What was confirmed meanwhile by another answer stays.
func (w *Writers) confirm(ctx context.Context, some []*knownWriter) {
	asked, now := make([]Known, len(some)), time.Now()
	for i, one := range some {
		asked[i] = one.Known
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	changed, err := w.check(ctx, asked)
	if err != nil {
		w.logger.Debug("the control plane was not asked for writers together", "writers", len(some), "error", err)
		return
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	for i, one := range some {
		key := writerKey{one.Stream, one.PID}
		switch {
		case w.known[key] != one: // another answer has been given since
		case slices.Contains(changed, i):
			delete(w.known, key)
		default:
			one.confirmed = now
		}
	}
}
