package query

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"

	"github.com/farlog/farlog/pkg/audit/fix"
)

// Bounds of an expression.
const (
	filterLenMax  = 16 << 10
	filterCostMax = 10_000_000 // CEL's units, for one record: a walk over 10 MB of text has 1,000,000
)

// Filter is an expression of CEL over the fields of a record.
type Filter struct {
	text    string
	program cel.Program
	names   map[string]bool // that it refers to
}

// FilterError says what is wrong with an expression, and where.
type FilterError struct {
	Text         string
	Line, Column int // from 1
	Reason       string
	More         int // further errors
}

func (e *FilterError) Error() string {
	more := ""
	if e.More > 0 {
		more = fmt.Sprintf(" (and %d more)", e.More)
	}
	return fmt.Sprintf("filter %q: line %d, column %d: %s%s", e.Text, e.Line, e.Column, e.Reason, more)
}

// variables are what an expression knows of a record.
var variables = []struct {
	name  string
	kind  *cel.Type
	value func(*Row) any
}{
	{"store", cel.StringType, func(r *Row) any { return r.Store }},
	{"stream", cel.StringType, func(r *Row) any { return r.Stream }},
	{"generation", cel.IntType, func(r *Row) any { return clamp(r.Generation) }},
	{"epoch", cel.IntType, func(r *Row) any { return int64(r.Epoch) }},
	{"lsn", cel.IntType, func(r *Row) any { return clamp(r.LSN) }},
	{"seq", cel.IntType, func(r *Row) any { return clamp(r.Seq) }},
	{"time", cel.TimestampType, func(r *Row) any { return r.Time() }},
	{"ts_ns", cel.IntType, func(r *Row) any { return clamp(r.TimestampNS) }},
	{"class", cel.IntType, func(r *Row) any { return int64(r.Class) }},
	{"key", cel.StringType, func(r *Row) any { return strings.ToValidUTF8(string(r.Key), "\uFFFD") }},
	{"len", cel.IntType, func(r *Row) any { return int64(len(r.Payload)) }},
	{"payload", cel.BytesType, func(r *Row) any { return r.Payload }},
	{"text", cel.StringType, func(r *Row) any { return strings.ToValidUTF8(string(r.Payload), "\uFFFD") }},
	{"fix", cel.MapType(cel.StringType, cel.StringType), func(r *Row) any { return fixFields(r.Payload) }},
}

func clamp(n uint64) int64 { return int64(min(n, math.MaxInt64)) }

// fixFields are the fields of a FIX message by tag, of a tag that comes again the first; none of other payloads. A
// message that is cut off or otherwise malformed is an error to the expression: nobody knows which tags it had.
func fixFields(payload []byte) any {
	var message fix.Message
	fields := map[string]string{}
	switch err := fix.Parse(payload, &message); {
	case err != nil && bytes.HasPrefix(payload, []byte("8=FIX")):
		return types.WrapErr(fmt.Errorf("fix: the payload begins with 8=FIX, expected a whole FIX message: %w; a "+
			"condition that is false of it, such as lsn != 4096 && ..., leaves it out", err))
	case err != nil:
		return fields
	}
	for _, field := range message.Fields {
		tag := fmt.Sprint(field.Tag)
		if _, isThere := fields[tag]; !isThere {
			fields[tag] = strings.ToValidUTF8(string(field.Value), "\uFFFD")
		}
	}
	return fields
}

// NewFilter compiles an expression. Errors: *FilterError.
func NewFilter(text string) (*Filter, error) {
	if len(text) > filterLenMax {
		return nil, &FilterError{
			Text: text[:20] + "...", Line: 1, Column: 1,
			Reason: fmt.Sprintf("%d bytes, expected at most %d", len(text), filterLenMax),
		}
	}
	options := []cel.EnvOption{cel.CrossTypeNumericComparisons(true), cel.DefaultUTCTimeZone(true)}
	for _, one := range variables {
		options = append(options, cel.Variable(one.name, one.kind))
	}
	env, err := cel.NewEnv(options...)
	if err != nil {
		return nil, fmt.Errorf("make the environment of a filter: %w", err)
	}
	ast, issues := env.Compile(text)
	if err := issues.Err(); err != nil {
		list := issues.Errors()
		first := list[0]
		return nil, &FilterError{
			Text: text, Line: first.Location.Line(), Column: first.Location.Column() + 1, Reason: first.Message,
			More: len(list) - 1,
		}
	}
	if ast.OutputType() != cel.BoolType {
		return nil, &FilterError{
			Text: text, Line: 1, Column: 1,
			Reason: fmt.Sprintf("it gives %s, expected bool", ast.OutputType()),
		}
	}
	program, err := env.Program(ast, cel.EvalOptions(cel.OptOptimize), cel.CostLimit(filterCostMax),
		cel.InterruptCheckFrequency(1000))
	if err != nil {
		return nil, &FilterError{Text: text, Line: 1, Column: 1, Reason: err.Error()}
	}
	names := map[string]bool{}
	for _, reference := range ast.NativeRep().ReferenceMap() {
		names[reference.Name] = true
	}
	return &Filter{text, program, names}, nil
}

// Uses reports whether the expression asks for a field of a record.
func (f *Filter) Uses(name string) bool { return f.names[name] }

// Matches evaluates the expression. What cannot be evaluated is an error, and never a record that is left out.
func (f *Filter) Matches(ctx context.Context, row *Row) (bool, error) {
	value, _, err := f.program.ContextEval(ctx, (*activation)(row))
	if err == nil {
		if isMatch, isBool := value.Value().(bool); isBool {
			return isMatch, nil
		}
		err = fmt.Errorf("it gives %s, expected bool", value.Type().TypeName())
	}
	if ctx.Err() != nil {
		return false, errors.Join(ctx.Err())
	}
	return false, fmt.Errorf("filter %q: %w", f.text, err)
}

// activation gives an expression the fields that it asks for.
type activation Row

// ResolveName implements cel.Activation.
func (a *activation) ResolveName(name string) (any, bool) {
	for _, one := range variables {
		if one.name == name {
			return one.value((*Row)(a)), true
		}
	}
	return nil, false
}

// Parent implements cel.Activation.
func (a *activation) Parent() cel.Activation { return nil }
