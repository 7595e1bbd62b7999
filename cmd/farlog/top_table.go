package main

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// topColumn is one column of top. Those with the highest rank go first when the screen is too narrow.
type topColumn struct {
	head  string
	width int
	rank  int
	text  func(statusRow) string
}

const (
	topNameWidth = 24
	topNameMax   = 63
	colourAlarm  = "\x1b[31m"
	colourWarn   = "\x1b[33m"
	colourHead   = "\x1b[7m"
	colourOff    = "\x1b[0m"
)

var topColumns = []topColumn{
	{"STREAM", topNameWidth, 0, func(r statusRow) string { return r.Stream }},
	{"STATE", 11, 1, func(r statusRow) string { return strings.ToUpper(r.State) }},
	{"REC/S", 7, 4, func(r statusRow) string { return humanRate(r.AppendRate) }},
	{"P50", 7, 11, func(r statusRow) string { return shortSeconds(orZero(r.P50Seconds)) }},
	{"P99", 7, 5, func(r statusRow) string { return shortSeconds(orZero(r.P99Seconds)) }},
	{"P99.9", 7, 12, func(r statusRow) string { return shortSeconds(orZero(r.P999Seconds)) }},
	{"MAX", 7, 8, func(r statusRow) string { return shortSeconds(orZero(r.MaxSeconds)) }},
	{"STALLED", 7, 9, func(r statusRow) string { return shortSeconds(r.StalledSeconds) }},
	{"LEVEL", 10, 7, func(r statusRow) string { return dashed(r.LevelReached) }},
	{"LAG", 8, 3, func(r statusRow) string { return strings.ReplaceAll(humanBytes(r.LagBytes), " ", "") }},
	{"RECORDS", 8, 13, func(r statusRow) string { return humanRate(float64(r.LagRecords)) }},
	{"OLDEST", 7, 2, func(r statusRow) string { return shortSeconds(r.LagSeconds) }},
	{"FULL IN", 7, 6, fullIn},
	{"RINGS", 5, 10, func(r statusRow) string { return fmt.Sprintf("%d/%d", r.RingsReady, r.Rings) }},
	{"WEAR", 4, 15, wearPercent},
	{"DRAIN", 20, 14, func(r statusRow) string {
		if r.Drain != "" && !r.IsDrainAlive {
			return "gone: " + r.Drain
		}
		return dashed(r.Drain)
	}},
}

// isRight tells columns of numbers.
func (c topColumn) isRight() bool {
	return c.head != "STREAM" && c.head != "STATE" && c.head != "LEVEL" && c.head != "DRAIN"
}

func fullIn(r statusRow) string {
	if r.TimeToFullSeconds == nil {
		return "-"
	}
	return shortSeconds(*r.TimeToFullSeconds)
}

// orZero is 0, and so shown as nothing, where no figure is known.
func orZero(seconds *float64) float64 {
	if seconds == nil {
		return 0
	}
	return *seconds
}

func shortSeconds(seconds float64) string {
	if seconds <= 0 {
		return "-"
	}
	return strings.ReplaceAll(humanSeconds(seconds), " ", "")
}

// humanRate is a count for a narrow column.
func humanRate(count float64) string {
	switch {
	case count <= 0:
		return "-"
	case count < 1e4:
		return fmt.Sprintf("%.0f", count)
	case count < 1e6:
		return threeDigits(count/1e3) + "k"
	case count < 1e9:
		return threeDigits(count/1e6) + "M"
	}
	return threeDigits(count/1e9) + "G"
}

// fitting are the columns that there is space for; the stream's takes what is left, as far as a name can be long.
func fitting(columns int) []topColumn {
	for rank := len(topColumns); ; rank-- {
		var chosen []topColumn
		used := -1
		for _, column := range topColumns {
			if column.rank < rank {
				chosen, used = append(chosen, column), used+column.width+1
			}
		}
		if used <= columns || rank == 1 {
			chosen[0].width += min(max(0, columns-used), topNameMax-topNameWidth)
			return chosen
		}
	}
}

// lines are those of one picture, none longer than the screen and not more than it has.
func (t *top) lines(size screenSize, isColoured bool) []string {
	columns := fitting(size.columns)
	lines := []string{cut(t.headline(), size.columns), t.heads(columns, size.columns, isColoured)}
	space := size.rows - len(lines)
	for i, row := range t.rows {
		if i == space-1 && len(t.rows) > space {
			lines = append(lines, cut(fmt.Sprintf("… and %d more: a higher screen, or farlog top --once",
				len(t.rows)-i), size.columns))
			break
		}
		lines = append(lines, t.line(row, columns, size.columns, isColoured))
	}
	return lines[:min(len(lines), max(size.rows, 1))]
}

// headline sums up, or says why nothing newer is known.
func (t *top) headline() string {
	if t.failure != nil {
		if t.seen.IsZero() {
			return "farlog top: " + oneLine(t.failure)
		}
		return fmt.Sprintf("as of %s ago: %s", humanDuration(time.Since(t.seen)), oneLine(t.failure))
	}
	var bytes uint64
	var oldest, rate float64
	failing, pending := 0, 0
	for _, row := range t.rows {
		bytes, oldest, rate = bytes+row.LagBytes, max(oldest, row.LagSeconds), rate+row.AppendRate
		if row.isFailing {
			failing++
		} else if row.State == shortName(api.Condition_CONDITION_PENDING.String()) {
			pending++
		}
	}
	text := fmt.Sprintf("%s  %d streams, %d failing, %d pending  lag %s, oldest %s  %s records/s  %s",
		t.seen.UTC().Format("15:04:05Z"), len(t.rows), failing, pending,
		humanBytes(bytes), humanSeconds(oldest), humanRate(rate), t.env.control)
	if t.env.isInsecure {
		text += "  insecure"
	}
	return text
}

func (t *top) heads(columns []topColumn, width int, isColoured bool) string {
	cells := make([]string, len(columns))
	for i, column := range columns {
		cells[i] = column.pad(column.head)
	}
	line := cut(strings.Join(cells, " "), width)
	if isColoured {
		line += strings.Repeat(" ", max(0, width-utf8.RuneCountInString(line)))
		return colourHead + line + colourOff
	}
	return strings.TrimRight(line, " ")
}

func (t *top) line(row statusRow, columns []topColumn, width int, isColoured bool) string {
	cells := make([]string, len(columns))
	for i, column := range columns {
		cells[i] = column.pad(column.text(row))
	}
	line := strings.TrimRight(cut(strings.Join(cells, " "), width), " ")
	switch {
	case isColoured && row.isFailing:
		return colourAlarm + line + colourOff
	case isColoured && row.State == shortName(api.Condition_CONDITION_WARN.String()):
		return colourWarn + line + colourOff
	}
	return line
}

func (c topColumn) pad(text string) string {
	text = cut(plain(text), c.width)
	space := strings.Repeat(" ", c.width-utf8.RuneCountInString(text))
	if c.isRight() {
		return space + text
	}
	return text + space
}
