package query

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/farlog/farlog/pkg/record"
	"github.com/farlog/farlog/pkg/store"
)

// rowOf is a record as the store gives it.
func rowOf(class uint16, key, payload string) *Row {
	return &Row{Store: "/data/store", Stream: "desk7/orders", Item: store.Item{
		Generation: 2,
		Record: record.Record{
			Header: record.Header{
				LSN: 4096, Seq: 7, Epoch: 3, Class: class, TimestampNS: 1_763_700_000_000_000_001,
			},
			Key: []byte(key), Payload: []byte(payload),
		},
	}}
}

// What is wrong with an expression is said with its place.
func TestFilter_ErrorsHaveAPlace(t *testing.T) {
	for text, want := range map[string]string{
		"class = 3":                   "line 1, column 7: ",
		"":                            "line 1, column ",
		"lsn":                         "line 1, column 1: it gives int, expected bool",
		"class == 1 &&\n  nope > 2":   "line 2, column 3: undeclared reference to 'nope'",
		"text.contains(3)":            "line 1, column 14: found no matching overload",
		"text.matches('(')":           "column ",
		strings.Repeat(" ", 20<<10):   "expected at most 16384",
		"key == 'a' && key == b'a'":   "line 1, column 19: found no matching overload",
		"nope1 == 1 && nope2 == nope": "(and 2 more)",
	} {
		_, err := NewFilter(text)
		var failed *FilterError
		if !errors.As(err, &failed) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.30q: %v, expected %q", text, err, want)
		}
	}
}

const fill = "8=FIX.4.4\x019=65\x0135=8\x0134=2\x0149=B\x0156=A\x0152=20261120-14:30:00\x0137=X1\x0111=A1\x01" +
	"150=F\x0158=a\x0158=b\x0110=000\x01"

// Each variable has the record's value, and of FIX each field, of one that comes again the first.
func TestFilter_SeesARecord(t *testing.T) {
	text, message := rowOf(3, "A1", "cancel A1"), rowOf(8, "A1", fill)
	for expression, want := range map[string]bool{
		"class == 3 && key == 'A1' && lsn == 4096 && seq == 7 && epoch == 3 && generation == 2 && len == 9": true,
		"stream == 'desk7/orders' && store.endsWith('store')":                                               true,
		"stream.startsWith('desk8/')":                                                                       false,
		"payload == b'cancel A1' && text == 'cancel A1'":                                                    true,
		"text.matches('^cancel [A-Z][0-9]$')":                                                               true,
		"ts_ns == 1763700000000000001 && time > timestamp('2025-11-21T04:40:00Z')":                          true,
		"time < timestamp('2025-11-21T04:40:00Z')":                                                          false,
		"size(fix) == 0": true,
	} {
		expectMatch(t, text, expression, want)
	}
	for expression, want := range map[string]bool{
		"fix['35'] == '8' && fix['150'] == 'F' && fix['11'] == key": true,
		"fix['58'] == 'a'": true,
		"'55' in fix":      false,
		"'55' in fix && fix['55'] == 'x' || class == 8": true,
	} {
		expectMatch(t, message, expression, want)
	}
	expectMatch(
		t,
		rowOf(1, "\xff", "\xff\x00"),
		"key == '\uFFFD' && text.startsWith('\uFFFD') && payload == b'\\xff\\x00'",
		true,
	)
}

func expectMatch(t *testing.T, row *Row, expression string, want bool) {
	t.Helper()
	filter, err := NewFilter(expression)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := filter.Matches(t.Context(), row); err != nil || got != want {
		t.Errorf("%s: %v, %v, expected %v", expression, got, err, want)
	}
}

// An expression that cannot be evaluated, or that costs too much, is an error, and does not leave the record out; so is
// the end of the caller's patience.
func TestFilter_FailsRatherThanLeavesOut(t *testing.T) {
	long := rowOf(1, "A", strings.Repeat("a", 1<<20))
	const digits = "[1,2,3,4,5,6,7,8,9]"
	costly := digits + ".all(a, " + digits + ".all(b, " + digits + ".all(c, !text.contains('b' + key))))"
	for expression, want := range map[string]string{
		"fix['55'] == 'IBM'":  "no such key: 55",
		"1 / (class - 1) > 0": "division by zero",
		costly:                "cost limit exceeded",
	} {
		filter, err := NewFilter(expression)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := filter.Matches(t.Context(), long); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v, expected %q", expression, got, err, want)
		}
	}
	for _, message := range []string{fill[:len(fill)-7], fill[:40], "8=FIX.4.4\x01", "8=FIX"} {
		for _, expression := range []string{"'150' in fix && fix['150'] == 'F'", "size(fix) == 0"} {
			filter, err := NewFilter(expression)
			if err != nil {
				t.Fatal(err)
			}
			row := rowOf(8, "A1", message)
			if got, err := filter.Matches(t.Context(), row); err == nil || !strings.Contains(err.Error(), "8=FIX") {
				t.Errorf("%s of the malformed %q: %v, %v, expected an error", expression, message, got, err)
			}
		}
		expectMatch(t, rowOf(8, "A1", message), "lsn != 4096 && fix['150'] == 'F'", false)
	}
	filter, err := NewFilter(digits + ".all(a, " + digits + ".all(b, " + digits + ".all(c, " + digits +
		".all(d, a + b + c + d > 0))))")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := filter.Matches(ctx, long); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, expected that it ends", err)
	}
}
