package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// tableRow writes a row of a table. Many a text in it is somebody else's: of an agent, or of whoever was refused; none
// of them makes a row or a cell of its own.
func tableRow(table io.Writer, format string, args ...any) {
	for i, arg := range args {
		if text, ok := arg.(string); ok {
			args[i] = plain(text)
		}
	}
	fmt.Fprintf(table, format, args...)
}

// plain is a text that stays on its line and says nothing to a terminal: what is not to be seen in it is written as Go
// writes it.
func plain(text string) string {
	if strings.IndexFunc(text, isUnseen) < 0 {
		return text
	}
	var shown strings.Builder
	for _, one := range text {
		if !isUnseen(one) {
			shown.WriteRune(one)
			continue
		}
		quoted := strconv.QuoteRuneToASCII(one)
		shown.WriteString(quoted[1 : len(quoted)-1])
	}
	return shown.String()
}

// isUnseen tells what moves a cursor, ends a line, or turns the direction of a text.
func isUnseen(one rune) bool {
	return unicode.IsControl(one) || unicode.In(one, unicode.Cf, unicode.Zl, unicode.Zp)
}

// humanBytes is a size for people: three digits and a binary unit.
func humanBytes(bytes uint64) string {
	if bytes < 1024 {
		return fmt.Sprintf("%d B", bytes)
	}
	value, unit := float64(bytes), 0
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	for value >= 1000 && unit < len(units)-1 {
		value /= 1024
		unit++
	}
	return threeDigits(value) + " " + units[unit]
}

// humanCount writes a number with thousands separated.
func humanCount(count uint64) string {
	text := strconv.FormatUint(count, 10)
	for at := len(text) - 3; at > 0; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}

// humanDuration is a length of time for people: three digits and a unit.
func humanDuration(d time.Duration) string {
	switch {
	case d <= 0:
		return "0"
	case d < time.Microsecond:
		return fmt.Sprintf("%d ns", d.Nanoseconds())
	case d < time.Millisecond:
		return threeDigits(float64(d)/1e3) + " us"
	case d < time.Second:
		return threeDigits(float64(d)/1e6) + " ms"
	case d < 2*time.Minute:
		return threeDigits(d.Seconds()) + " s"
	case d < 48*time.Hour:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

func threeDigits(value float64) string {
	switch {
	case value >= 100:
		return strconv.FormatFloat(value, 'f', 0, 64)
	case value >= 10:
		return strconv.FormatFloat(value, 'f', 1, 64)
	}
	return strconv.FormatFloat(value, 'f', 2, 64)
}

// cut shortens a text to a number of columns.
func cut(text string, columns int) string {
	runes := []rune(text)
	if len(runes) <= columns {
		return text
	}
	return string(runes[:columns-1]) + "…"
}

// wrap breaks a text between words into lines of at most so many columns; the operator needs all of it. A wide screen
// takes it as it is.
func wrap(text string, columns int, isWide bool) []string {
	if text == "" {
		return nil
	}
	if isWide {
		return []string{text}
	}
	var lines []string
	for _, word := range strings.Fields(text) {
		last := len(lines) - 1
		if last >= 0 && utf8.RuneCountInString(lines[last])+1+utf8.RuneCountInString(word) <= columns {
			lines[last] += " " + word
			continue
		}
		lines = append(lines, word)
	}
	return lines
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// counted is a number with what it counts.
func counted(n uint64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
