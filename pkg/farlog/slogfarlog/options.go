package slogfarlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Format is how an event is spelt; log/slog's own handlers do the spelling.
type Format int

// The formats: slog.JSONHandler and slog.TextHandler, without the newline, since a record has an end of its own.
const (
	FormatJSON Format = iota
	FormatText
)

// Policy says what Handle does when the event is not at the writer's level.
type Policy int

const (
	// PolicyFail returns the error, after OnError. It waits for space as the writer does: open it with
	// farlog.PolicyReject for none.
	PolicyFail Policy = iota
	// PolicyBlock waits up to Options.Patience for space and for the flush, then does as PolicyFail.
	PolicyBlock
	// PolicyDropAndGap leaves the event out and counts it when the ring is full or the event larger than any record;
	// Handle returns nil. Before the next event that finds space stands a record of Options.GapClass with the text
	// "farlog.gap dropped=N". Other errors (fenced, closed, unknown) are returned.
	PolicyDropAndGap
)

// GapClassDefault is the class of the record that says how many events were left out.
const GapClassDefault = 0xFFFF

// Options configure a handler; the zero value writes JSON from slog.LevelInfo on and returns every failure.
type Options struct {
	slog.HandlerOptions // Level, AddSource, ReplaceAttr
	Format              Format

	// KeyAttr names the attribute whose value becomes the record's key, "ClOrdID" for one; "" = no key. The event's
	// attributes come before those of With, later ones before earlier ones, and groups do not matter: their members are
	// looked at too. ReplaceAttr is not asked.
	KeyAttr string

	// Class gives the record's class; nil = ClassOf.
	Class func(slog.Level) uint16

	Policy   Policy
	Patience time.Duration // of PolicyBlock, and only of it
	GapClass uint16        // 0 = GapClassDefault

	// OnError learns of every failure, dropped events included, on the goroutine that logged, before Handle returns.
	// slog.Logger throws away what Handle returns: a program that must not go on without its log says so here, with
	// FailStop or an exit of its own. It must not log into this handler.
	OnError func(context.Context, error)
}

// ErrRecursion is the failure of an event that was logged while another was being formatted by the same goroutine: by a
// LogValue, MarshalJSON or ReplaceAttr that logs into the handler that called it. The handler itself never logs.
var ErrRecursion = errors.New("a value logs into the handler that is formatting it")

// FailStop is an OnError that panics with the error: the goroutine that logged does not get past an event that is not
// in the ring.
func FailStop(_ context.Context, err error) {
	panic(err)
}

// ClassOf is the default of Options.Class: 1 below Debug, 2 from Debug, 3 from Info, 4 from Warn, 5 from Error, 6 from
// four above.
func ClassOf(level slog.Level) uint16 {
	switch {
	case level < slog.LevelDebug:
		return 1
	case level < slog.LevelInfo:
		return 2
	case level < slog.LevelWarn:
		return 3
	case level < slog.LevelError:
		return 4
	case level < slog.LevelError+4:
		return 5
	}
	return 6
}

func (o *Options) validate() error {
	if o.Format != FormatJSON && o.Format != FormatText {
		return fmt.Errorf("format %d: expected FormatJSON or FormatText", o.Format)
	}
	if o.Policy < PolicyFail || o.Policy > PolicyDropAndGap {
		return fmt.Errorf("policy %d: expected PolicyFail, PolicyBlock or PolicyDropAndGap", o.Policy)
	}
	if (o.Policy == PolicyBlock) != (o.Patience > 0) {
		return fmt.Errorf("patience %s: expected more than 0 with PolicyBlock, and 0 with any other", o.Patience)
	}
	return nil
}
