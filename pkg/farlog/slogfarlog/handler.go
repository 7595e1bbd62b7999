// Package slogfarlog is a log/slog handler that appends each event to a ring.
//
// When Handle returns nil the event is in the ring at the writer's level (persistent, unless the writer was opened for
// less), but for PolicyDropAndGap, which says so with a gap record. Events of one goroutine are in the ring in its
// order.
//
// slog.Logger ignores what Handle returns. A program that must not lose an event sets Options.OnError, to FailStop for
// one, or calls Handle itself.
//
// Threads: a Handler and all made from it by WithAttrs and WithGroup may be used by any number of goroutines; they
// format one at a time and append side by side, sharing flushes. Blocking: see Policy; a deadline of the context
// shortens the wait of PolicyBlock, though never below the region's own default deadline (1 ms in memory, 1 s with
// msync), so that what is logged about a deadline that passed is logged. Cancelling a context does not keep an event
// out, as log/slog asks. An append whose outcome is unknown is asked after once, for as long again. Allocations:
// BenchmarkHandler counts them; buffers are pooled, those over 64 KiB are not kept.
package slogfarlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farlog/farlog/pkg/farlog"
)

// Handler implements slog.Handler.
type Handler struct {
	core *core
	slog slog.Handler // formats into core.target
	key  string       // from WithAttrs
}

// core is what a handler shares with those made from it.
type core struct {
	writer  *farlog.Shared
	options Options
	floor   time.Duration // the least that is waited for a flush

	formatting sync.Mutex // guards target
	target     *scratch

	telling      sync.Mutex // held while a gap is told: later events wait
	dropped      atomic.Uint64
	droppedTotal atomic.Uint64
}

// scratch is what one event needs.
type scratch struct {
	text []byte
	key  []byte
}

const scratchLenMax = 64 << 10

var scratches = sync.Pool{New: func() any { return new(scratch) }}

func (s *scratch) release() {
	if cap(s.text) > scratchLenMax {
		s.text = nil
	}
	scratches.Put(s)
}

// New makes a handler on a writer, which stays the caller's to close. The error names the option that is out of range.
func New(writer *farlog.Shared, options Options) (*Handler, error) {
	if writer == nil {
		return nil, errors.New("writer nil: expected an open farlog.Shared")
	}
	if err := options.validate(); err != nil {
		return nil, err
	}
	if options.Class == nil {
		options.Class = ClassOf
	}
	options.GapClass = cmp.Or(options.GapClass, GapClassDefault)
	c := &core{writer: writer, options: options, floor: writer.Contract().DeadlineDefault}
	h := &Handler{core: c, slog: slog.NewJSONHandler(c, &c.options.HandlerOptions)}
	if options.Format == FormatText {
		h.slog = slog.NewTextHandler(c, &c.options.HandlerOptions)
	}
	return h, nil
}

// Dropped is the number of events that were left out since New.
func (h *Handler) Dropped() uint64 { return h.core.droppedTotal.Load() }

// Enabled implements slog.Handler.
func (h *Handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.slog.Enabled(ctx, level)
}

// WithAttrs implements slog.Handler.
func (h *Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	made := *h
	if name := h.core.options.KeyAttr; name != "" {
		for _, attr := range attrs {
			if key, isFound := find(attr, name); isFound {
				made.key = key.String()
			}
		}
	}
	made.slog = h.slog.WithAttrs(attrs)
	return &made
}

// WithGroup implements slog.Handler.
func (h *Handler) WithGroup(name string) slog.Handler {
	made := *h
	made.slog = h.slog.WithGroup(name)
	return &made
}

// Handle implements slog.Handler. Errors: those of farlog.Shared.Append (errors.Is), ErrRecursion, and what formatting
// gives.
func (h *Handler) Handle(ctx context.Context, event slog.Record) error {
	s := scratches.Get().(*scratch)
	defer s.release()
	if err := h.format(ctx, &event, s); err != nil {
		return h.core.reportFailure(ctx, err)
	}
	s.key = append(s.key[:0], h.key...)
	if name := h.core.options.KeyAttr; name != "" {
		event.Attrs(func(attr slog.Attr) bool {
			if key, isFound := find(attr, name); isFound {
				s.key = append(s.key[:0], key.String()...)
			}
			return true
		})
	}
	entry := farlog.Entry{Data: s.text, Key: s.key, Class: h.core.options.Class(event.Level)}
	if err := h.core.appendAfterGap(ctx, entry); err != nil {
		return h.core.reportFailure(ctx, err)
	}
	return nil
}

// Flush tells a gap that no later event has told yet. There is nothing else to flush: what Handle accepted is at its
// level.
func (h *Handler) Flush(ctx context.Context) error {
	return h.core.appendGap(ctx)
}

// format has log/slog spell the event into s.
func (h *Handler) format(ctx context.Context, event *slog.Record, s *scratch) error {
	c := h.core
	if !c.formatting.TryLock() {
		if isFormatting() {
			return ErrRecursion
		}
		c.formatting.Lock()
	}
	defer c.formatting.Unlock() // also when a value panics
	s.text = s.text[:0]
	c.target = s
	if err := h.slog.Handle(ctx, *event); err != nil {
		return fmt.Errorf("format event: %w", err)
	}
	if end := len(s.text) - 1; end >= 0 && s.text[end] == '\n' {
		s.text = s.text[:end]
	}
	return nil
}

// Write takes what slog's handler spelt.
func (c *core) Write(text []byte) (int, error) {
	c.target.text = append(c.target.text, text...)
	return len(text), nil
}

// isFormatting reports whether this goroutine is inside format already. Only asked when the lock is taken, since it
// walks the stack.
func isFormatting() bool {
	var pcs [128]uintptr
	for skip := 3; ; skip += len(pcs) { // 3: beyond the format that asks
		count := runtime.Callers(skip, pcs[:])
		if count == 0 {
			return false
		}
		frames := runtime.CallersFrames(pcs[:count])
		for more := true; more; {
			var frame runtime.Frame
			if frame, more = frames.Next(); strings.HasSuffix(frame.Function, "slogfarlog.(*Handler).format") {
				return true
			}
		}
	}
}

// find looks for the last attribute of that name, in groups too.
func find(attr slog.Attr, name string) (slog.Value, bool) {
	value := attr.Value
	if attr.Key == name {
		return value.Resolve(), true
	}
	if value.Kind() != slog.KindGroup {
		return slog.Value{}, false
	}
	for _, member := range slices.Backward(value.Group()) {
		if found, isFound := find(member, name); isFound {
			return found, true
		}
	}
	return slog.Value{}, false
}

// patience is how long an append may take; 0 = the writer's default.
func (c *core) patience(ctx context.Context) time.Duration {
	patience := c.options.Patience
	if patience == 0 || ctx == nil {
		return patience
	}
	if deadline, isSet := ctx.Deadline(); isSet {
		patience = min(patience, max(time.Until(deadline), c.floor))
	}
	return patience
}

// append waits for space as long as the policy says, also on a writer that rejects at once.
func (c *core) append(ctx context.Context, entry farlog.Entry) error {
	patience := c.patience(ctx)
	position, err := c.writer.Append(entry, patience)
	if patience > 0 && err == farlog.ErrFull {
		until := time.Now().Add(patience)
		for left := patience; err == farlog.ErrFull && left > 0; left = time.Until(until) {
			time.Sleep(50 * time.Microsecond)
			position, err = c.writer.Append(entry, left)
		}
	}
	if err == farlog.ErrUnknown {
		if _, resolved := c.writer.Resolve(position.LSN, patience); resolved == nil {
			return nil
		}
	}
	return err
}

// appendAfterGap: a gap is told before anything that comes after it, or not even that is written.
func (c *core) appendAfterGap(ctx context.Context, entry farlog.Entry) error {
	if c.dropped.Load() != 0 {
		if !c.hasSpaceFor(len(entry.Data) + len(entry.Key)) {
			return farlog.ErrFull
		}
		if err := c.appendGap(ctx); err != nil {
			return err
		}
	}
	return c.append(ctx, entry)
}

// hasSpaceFor: without it the gap record would take the last space, before an event that does not fit; a gap record for
// each event.
func (c *core) hasSpaceFor(size int) bool {
	cursors := c.writer.Cursors()
	return cursors.CapacityBytes == 0 || // closed
		cursors.CapacityBytes-(cursors.AppendedLSN-cursors.HeadLSN) >= uint64(size)+4*64
}

func (c *core) appendGap(ctx context.Context) error {
	c.telling.Lock()
	defer c.telling.Unlock()
	count := c.dropped.Load()
	if count == 0 {
		return nil
	}
	text := strconv.AppendUint([]byte("farlog.gap dropped="), count, 10)
	if err := c.append(ctx, farlog.Entry{Data: text, Class: c.options.GapClass}); err != nil {
		return err
	}
	c.dropped.Add(-count)
	return nil
}

// reportFailure does what the policy says about an event that is not in the ring.
func (c *core) reportFailure(ctx context.Context, err error) error {
	isDropped := c.options.Policy == PolicyDropAndGap &&
		(errors.Is(err, farlog.ErrFull) || errors.Is(err, farlog.ErrTooLarge))
	if isDropped {
		c.droppedTotal.Add(1)
		c.dropped.Add(1)
	}
	err = fmt.Errorf("log event: %w", err)
	if c.options.OnError != nil {
		c.options.OnError(ctx, err)
	}
	if isDropped {
		return nil
	}
	return err
}
