package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	api "github.com/farlog/farlog/pkg/api/v1"
)

var sgr = regexp.MustCompile("\x1b\\[[0-9]*m")

// Whatever the numbers and the screen, the table stays within it, and the streams' names and the age of the oldest
// record are the last to go.
func TestTop_FitsTheScreen(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		one := &top{env: &environment{control: "127.0.0.1:7070"}, order: "lag"}
		for range rapid.IntRange(0, 30).Draw(rt, "streams") {
			one.rows = append(one.rows, newStatusRow(drawStatus(rt)))
		}
		size := screenSize{
			columns: rapid.IntRange(10, 240).Draw(rt, "columns"),
			rows:    rapid.IntRange(1, 40).Draw(rt, "rows"),
		}
		lines := one.lines(size, rapid.Bool().Draw(rt, "coloured"))
		if len(lines) > size.rows {
			rt.Fatalf("%d lines on a screen of %d", len(lines), size.rows)
		}
		for _, line := range lines {
			if width := utf8.RuneCountInString(sgr.ReplaceAllString(line, "")); width > size.columns {
				rt.Fatalf("%d of %d columns: %q", width, size.columns, line)
			}
		}
		if shown := len(lines) - 2; size.rows > 3 && size.columns > 20 && shown < len(one.rows) &&
			!strings.Contains(lines[len(lines)-1], "more") {
			rt.Fatalf("%d of %d streams are shown, and nothing says so: %q", shown, len(one.rows), lines)
		}
		if size.columns >= 80 && size.rows > 1 && !strings.Contains(lines[1], "OLDEST") {
			rt.Fatalf("no age in %q", lines[1])
		}
	})
}

// The worst comes first: what fails, what is not made yet or lacks a part, what warns, and only then what is well,
// whatever its lag.
func TestTop_WorstFirst(t *testing.T) {
	rows := []statusRow{
		{Stream: "well", State: "ok", LagSeconds: 9},
		{Stream: "warns", State: "warn"},
		{Stream: "waits", State: "pending"},
		{Stream: "fails", State: "alarm", isFailing: true},
	}
	slices.SortStableFunc(rows, topOrders["lag"])
	var names []string
	for _, row := range rows {
		names = append(names, row.Stream)
	}
	if got := strings.Join(names, " "); got != "fails waits warns well" {
		t.Errorf("got %s", got)
	}
	one := &top{env: &environment{control: "127.0.0.1:7070"}, rows: rows}
	if got := one.headline(); !strings.Contains(got, "4 streams, 1 failing, 1 pending") {
		t.Errorf("got %s", got)
	}
}

// Of a ring whose target is gone nobody knows when it is full.
func TestStatusRow_NoTimeToFullWithoutATarget(t *testing.T) {
	status := &api.StreamStatus{
		Stream: &api.Stream{Spec: &api.StreamSpec{Name: "a"}}, TargetsAlive: []string{"t"},
		Rings: []*api.RingState{{Stream: "a", Target: "t", TimeToFull: durationpb.New(time.Minute)}},
	}
	if row := newStatusRow(status); row.TimeToFullSeconds == nil {
		t.Error("it lives, and nothing is told")
	}
	status.TargetsAlive = nil
	if row := newStatusRow(status); row.TimeToFullSeconds != nil {
		t.Errorf("it is gone, and full in %v s", *row.TimeToFullSeconds)
	}
}
