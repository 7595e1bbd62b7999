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
	checkInterval = 2 * time.Second // between two questions for all writers together, while there is no watch
	checkTimeout  = 5 * time.Second // for the answer
	knownMost     = 6 * time.Second // how old an answer becomes that nothing has confirmed
	// a writer that has not asked for so long is none: three times the pause that a writer makes
	askedMost     = 15 * time.Second
	writersMost   = 16384 // known at a time; the control plane is asked for each of those beyond
	writersAtOnce = 1024  // in one question: what CheckWriters takes
)

// Known is a writer with the last answer that it was given: no ring has changed, and this is how its stream is
// declared.
type Known struct {
	ExtendRequest
	Declared Terms
}

// Told is what the control plane would say now to the writer of a stream, as a watch tells it.
type Told struct {
	Stream            string
	Epoch             uint32
	PID               int32
	Declared, Running Terms
	RingUUIDs         [][]byte // that have come in the place of others, one a member; empty: none has
}

// Watch keeps a watch of this host's writers open until ctx is done, and tells what it hears: first of all writers,
// then of those that change; gone are streams that nobody here writes any more. onDown is called when it breaks. All of
// it is called from one goroutine.
type Watch func(ctx context.Context, onTold func(told []Told, gone []string, isAll bool), onDown func())

// Questions are how the control plane is asked: what one writer has to be told; which of many have to be told anything
// but what they were; and to tell by itself, nil: it is only asked.
type Questions struct {
	Extend func(context.Context, ExtendRequest) ([]Extension, Terms, error)
	Check  func(context.Context, []Known) (changed []int, err error)
	Watch  Watch
}

// Writers answers writers of this host that ask again and again how their streams are declared. While the control plane
// tells of them by a watch, it is asked only for a writer of which that says another thing than the writer was told, or
// that asks something new. Without the watch it is asked for all of them together whether anything has changed, and no
// answer given here is older than knownMost.
type Writers struct {
	ask    Questions
	logger *slog.Logger

	mutex     sync.Mutex
	known     map[writerKey]*knownWriter
	told      map[string]Told // by stream
	isWatched bool            // told is what is so
}

type writerKey struct {
	stream string
	pid    int32
}

type knownWriter struct {
	Known
	confirmed, asked time.Time
}

// NewWriters knows of no writer yet. Run keeps it in touch with the control plane.
func NewWriters(ask Questions, logger *slog.Logger) *Writers {
	return &Writers{ask: ask, logger: logger, known: make(map[writerKey]*knownWriter), told: make(map[string]Told)}
}

// Extend answers one writer. Any goroutine may call it.
func (w *Writers) Extend(ctx context.Context, request ExtendRequest) ([]Extension, Terms, error) {
	key, now := writerKey{request.Stream, request.PID}, time.Now()
	if declared, isKnown := w.recall(key, request, now); isKnown && !request.IsClosed {
		return nil, declared, nil
	}
	extensions, declared, err := w.ask.Extend(ctx, request)
	w.mutex.Lock()
	defer w.mutex.Unlock()
	delete(w.known, key)
	if err == nil && !request.IsClosed && len(extensions) == 0 && len(w.known) < writersMost {
		w.known[key] = &knownWriter{Known: Known{request, declared}, confirmed: now, asked: now}
	}
	return extensions, declared, err
}

// recall finds an answer to the same question that is still good.
func (w *Writers) recall(key writerKey, request ExtendRequest, now time.Time) (Terms, bool) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	found := w.known[key]
	if found == nil || !isSameRequest(found.ExtendRequest, request) {
		return Terms{}, false
	}
	if w.isWatched && !w.told[request.Stream].isStill(found.Known) || !w.isWatched &&
		now.Sub(found.confirmed) > knownMost {
		return Terms{}, false
	}
	found.asked = now
	return found.Declared, true
}

// isStill reports whether a writer was told what it would be told now. No epoch is 0: that is a stream that is not told
// of.
func (t Told) isStill(known Known) bool {
	if t.Epoch == 0 || t.Epoch != known.Epoch || t.PID != known.PID || t.Declared != known.Declared ||
		known.Running != nil && t.Running != *known.Running {
		return false
	}
	for i, uuid := range t.RingUUIDs {
		if len(uuid) > 0 && (i >= len(known.RingUUIDs) || !bytes.Equal(known.RingUUIDs[i], uuid)) {
			return false
		}
	}
	return true
}

// take is what the watch tells.
func (w *Writers) take(told []Told, gone []string, isAll bool) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if isAll {
		clear(w.told)
		w.isWatched = true
	}
	for _, one := range told {
		w.told[one.Stream] = one
	}
	for _, stream := range gone {
		delete(w.told, stream)
	}
}

// lose ends the watch: what it has confirmed is as old as that.
func (w *Writers) lose() {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if !w.isWatched {
		return
	}
	for key, one := range w.known {
		if one.confirmed = time.Now(); !w.told[one.Stream].isStill(one.Known) {
			delete(w.known, key)
		}
	}
	clear(w.told)
	w.isWatched = false
}

func isSameRequest(a, b ExtendRequest) bool {
	isSameRunning := a.Running == b.Running || a.Running != nil && b.Running != nil && *a.Running == *b.Running
	return isSameRunning && a.Stream == b.Stream && a.Transport == b.Transport && a.Epoch == b.Epoch &&
		a.PID == b.PID && slices.EqualFunc(a.RingUUIDs, b.RingUUIDs, bytes.Equal)
}

// Run hears of all of them, or asks, until ctx is done.
func (w *Writers) Run(ctx context.Context) {
	var watching sync.WaitGroup
	defer watching.Wait()
	if w.ask.Watch != nil {
		watching.Go(func() { w.ask.Watch(ctx, w.take, w.lose) })
	}
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		for part := range slices.Chunk(w.unconfirmed(time.Now()), writersAtOnce) {
			w.confirm(ctx, part)
		}
	}
}

// unconfirmed lists those for which to ask: none, while there is a watch.
func (w *Writers) unconfirmed(now time.Time) []*knownWriter {
	all := w.list(now)
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if w.isWatched {
		return nil
	}
	return all
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
	changed, err := w.ask.Check(ctx, asked)
	if err != nil {
		w.logger.Debug("the control plane could not be asked for all writers in one "+
			"call", "writers", len(some), "error", err)
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
