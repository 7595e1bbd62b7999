package main

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

var sgr = regexp.MustCompile("\x1b\\[[0-9]*m")

// Whatever the numbers and the screen, the table stays within it, and the streams' names and the age of the oldest record are the last to go.
func TestTop_FitsTheScreen(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		one := &top{env: &environment{control: "127.0.0.1:7070"}, order: "lag"}
		for range rapid.IntRange(0, 30).Draw(rt, "streams") {
			one.rows = append(one.rows, newStatusRow(drawStatus(rt)))
		}
		size := screenSize{columns: rapid.IntRange(10, 240).Draw(rt, "columns"), rows: rapid.IntRange(1, 40).Draw(rt, "rows")}
		lines := one.lines(size, rapid.Bool().Draw(rt, "coloured"))
		if len(lines) > size.rows {
			rt.Fatalf("%d lines on a screen of %d", len(lines), size.rows)
		}
		for _, line := range lines {
			if width := utf8.RuneCountInString(sgr.ReplaceAllString(line, "")); width > size.columns {
				rt.Fatalf("%d of %d columns: %q", width, size.columns, line)
			}
		}
		if shown := len(lines) - 2; size.rows > 3 && size.columns > 20 && shown < len(one.rows) && !strings.Contains(lines[len(lines)-1], "more") {
			rt.Fatalf("%d of %d streams are shown, and nothing says so: %q", shown, len(one.rows), lines)
		}
		if size.columns >= 80 && size.rows > 1 && !strings.Contains(lines[1], "OLDEST") {
			rt.Fatalf("no age in %q", lines[1])
		}
	})
}
