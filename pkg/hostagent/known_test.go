package hostagent

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"
)

// oneControl is who answers the agent's two questions.
type oneControl struct {
	extended, checked int
	declared          Terms
	extensions        []Extension
	changed           []int
	failure           error
}

func (c *oneControl) extend(context.Context, ExtendRequest) ([]Extension, Terms, error) {
	c.extended++
	return c.extensions, c.declared, c.failure
}

func (c *oneControl) check(_ context.Context, writers []Known) ([]int, error) {
	c.checked += len(writers)
	return c.changed, c.failure
}

// ask asks for a writer and demands what it is told, and whether the control plane was asked for it alone.
func (c *oneControl) ask(t *testing.T, w *Writers, request ExtendRequest, want Terms, isAlone bool) {
	t.Helper()
	before := c.extended
	if _, got, err := w.Extend(t.Context(), request); !errors.Is(err, c.failure) && isAlone || got != want ||
		(c.extended > before) != isAlone {
		t.Errorf("%+v: told %+v, %v, asked for it alone %v; expected %+v, %v", request, got, err, c.extended > before,
			want, isAlone)
	}
}

// A writer that asks the same again is answered without the control plane, which is asked for all of them; when that
// says that something has changed, when the writer asks something else, and when nothing has confirmed its answer for
// too long, it is asked for the writer alone, and what it says then is what the writer is told.
func TestWriters_AnswerWhatIsConfirmed(t *testing.T) {
	c := &oneControl{declared: Terms{Level: 2}}
	w := NewWriters(Questions{Extend: c.extend, Check: c.check}, slog.New(slog.DiscardHandler))
	first := ExtendRequest{
		Stream: "desk7/orders", Epoch: 3, PID: 7, RingUUIDs: [][]byte{make([]byte, 16)},
		Running: &Terms{Level: 2},
	}
	c.ask(t, w, first, Terms{Level: 2}, true)
	c.ask(t, w, first, Terms{Level: 2}, false)
	for _, differs := range []func(*ExtendRequest){
		func(r *ExtendRequest) { r.Epoch++ }, func(r *ExtendRequest) { r.PID++ },
		func(r *ExtendRequest) { r.Stream += "2" }, func(r *ExtendRequest) { r.Transport = "ofi" },
		func(r *ExtendRequest) { r.RingUUIDs = [][]byte{[]byte("another one here")} },
		func(r *ExtendRequest) { r.Running = &Terms{Level: 3} }, func(r *ExtendRequest) { r.Running = nil },
	} {
		other := first
		differs(&other)
		c.ask(t, w, other, Terms{Level: 2}, true)
		c.ask(t, w, first, Terms{Level: 2}, other.PID == first.PID && other.Stream == first.Stream)
	}

	c.declared = Terms{Level: 3}
	c.ask(t, w, first, Terms{Level: 2}, false)
	w.confirm(t.Context(), w.list(time.Now())[:1])
	c.changed = []int{0, 1, 2}
	w.confirm(t.Context(), w.list(time.Now()))
	c.ask(t, w, first, Terms{Level: 3}, true)
	c.ask(t, w, first, Terms{Level: 3}, false)

	c.changed, c.failure = nil, errors.New("the control plane is away")
	w.confirm(t.Context(), w.list(time.Now()))
	c.ask(t, w, first, Terms{Level: 3}, false)
	w.known[writerKey{first.Stream, first.PID}].confirmed = time.Now().Add(-knownMost - time.Second)
	c.ask(t, w, first, Terms{Level: 3}, true)
	c.ask(t, w, first, Terms{Level: 3}, true) // what failed is not kept
}

// That a writer has ended is said to the control plane each time, whatever is known of it, and it is forgotten.
func TestWriters_OneThatEnds(t *testing.T) {
	c := &oneControl{declared: Terms{Level: 2}}
	w := NewWriters(Questions{Extend: c.extend, Check: c.check}, slog.New(slog.DiscardHandler))
	request := ExtendRequest{Stream: "desk7/orders", Epoch: 3, PID: 7}
	c.ask(t, w, request, Terms{Level: 2}, true)
	c.ask(t, w, request, Terms{Level: 2}, false)
	request.IsClosed = true
	c.ask(t, w, request, Terms{Level: 2}, true)
	if len(w.list(time.Now())) != 0 {
		t.Error("a writer that has ended is asked for")
	}
	c.ask(t, w, request, Terms{Level: 2}, true)
}

// A ring that is another one is told by the control plane alone, each time: there is a token with it. Who does not ask
// any more is forgotten.
func TestWriters_KeepNoTokenAndNoDead(t *testing.T) {
	c := &oneControl{extensions: []Extension{{Token: make([]byte, 16)}}}
	w := NewWriters(Questions{Extend: c.extend, Check: c.check}, slog.New(slog.DiscardHandler))
	request := ExtendRequest{Stream: "desk7/orders", Epoch: 3, PID: 7}
	c.ask(t, w, request, Terms{}, true)
	c.ask(t, w, request, Terms{}, true)
	c.extensions = nil
	c.ask(t, w, request, Terms{}, true)
	c.ask(t, w, request, Terms{}, false)
	if all := w.list(time.Now().Add(askedMost - time.Second)); len(all) != 1 {
		t.Errorf("%d writers, expected the one that asked", len(all))
	}
	if all := w.list(time.Now().Add(askedMost + time.Second)); len(all) != 0 || len(w.known) != 0 {
		t.Errorf("%d writers that do not ask any more", len(all))
	}
}

// An answer that is given while the control plane is asked for all is not confirmed by what it says of the one before.
func TestWriters_ANewerAnswerIsNotConfirmedByAnOlderQuestion(t *testing.T) {
	c := &oneControl{declared: Terms{Level: 2}}
	var w *Writers
	request := ExtendRequest{Stream: "desk7/orders", Epoch: 3, PID: 7}
	w = NewWriters(Questions{Extend: c.extend, Check: func(context.Context, []Known) ([]int, error) {
		request.Epoch++
		c.ask(t, w, request, Terms{Level: 2}, true)
		return []int{0}, nil
	}}, slog.New(slog.DiscardHandler))
	c.ask(t, w, request, Terms{Level: 2}, true)
	w.confirm(t.Context(), w.list(time.Now()))
	c.ask(t, w, request, Terms{Level: 2}, false)
}

// While the control plane tells of the writers, one that was told what is so is answered without it, however long ago
// that was; one of which anything else is told than it was, or nothing, is asked for alone, until the two agree. When
// the watch breaks, what it had confirmed is good as long as any other answer, and what it had not is not good any
// more.
func TestWriters_AnswerWhatTheWatchTells(t *testing.T) {
	c := &oneControl{declared: Terms{Level: 2}}
	w := NewWriters(Questions{Extend: c.extend, Check: c.check}, slog.New(slog.DiscardHandler))
	uuid := []byte("a ring's uuid ..")
	request := ExtendRequest{
		Stream: "desk7/orders", Epoch: 3, PID: 7, RingUUIDs: [][]byte{make([]byte, 16)},
		Running: &Terms{Level: 2},
	}
	told := Told{Stream: request.Stream, Epoch: 3, PID: 7, Declared: Terms{Level: 2}, Running: Terms{Level: 2}}
	aged := func() {
		w.known[writerKey{request.Stream, request.PID}].confirmed = time.Now().Add(-knownMost - time.Second)
	}
	w.take([]Told{told}, nil, true)
	c.ask(t, w, request, Terms{Level: 2}, true)
	aged()
	c.ask(t, w, request, Terms{Level: 2}, false)
	for what, change := range map[string]func(*Told){
		"another epoch": func(o *Told) { o.Epoch = 4 }, "another process": func(o *Told) { o.PID = 8 },
		"another level":                  func(o *Told) { o.Declared.Level = 3 },
		"another deadline":               func(o *Told) { o.Declared.Deadline = time.Second },
		"it is thought to run otherwise": func(o *Told) { o.Running.Policy = 2 },
		"another ring":                   func(o *Told) { o.RingUUIDs = [][]byte{uuid} },
		"a second ring":                  func(o *Told) { o.RingUUIDs = [][]byte{nil, uuid} },
	} {
		other := told
		change(&other)
		w.take([]Told{other}, nil, false)
		t.Log(what)
		c.ask(t, w, request, Terms{Level: 2}, true)
		c.ask(t, w, request, Terms{Level: 2}, true)
		w.take([]Told{told}, nil, false)
		c.ask(t, w, request, Terms{Level: 2}, false)
	}
	w.take([]Told{{
		Stream: request.Stream, Epoch: 3, PID: 7, Declared: Terms{Level: 2}, Running: Terms{Level: 2},
		RingUUIDs: [][]byte{make([]byte, 16)},
	}}, nil, false)
	c.ask(t, w, request, Terms{Level: 2}, false) // it has that ring
	w.take(nil, []string{request.Stream}, false)
	c.ask(t, w, request, Terms{Level: 2}, true)
	w.take([]Told{told}, nil, false)
	w.take(nil, nil, true)
	c.ask(t, w, request, Terms{Level: 2}, true)
	w.take([]Told{told}, nil, false)
	if all := w.unconfirmed(time.Now()); len(all) != 0 {
		t.Errorf("%d writers are asked for beside the watch", len(all))
	}

	aged()
	w.lose()
	c.ask(t, w, request, Terms{Level: 2}, false)
	if all := w.unconfirmed(time.Now()); len(all) != 1 {
		t.Errorf("%d writers are asked for without a watch, expected 1", len(all))
	}
	aged()
	w.lose()
	c.ask(t, w, request, Terms{Level: 2}, true)
	other := told
	other.Declared.Level = 3
	w.take([]Told{other}, nil, true)
	w.lose()
	c.ask(t, w, request, Terms{Level: 2}, true)
}
