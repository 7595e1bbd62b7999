//go:build cgo

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// readRecords reads all records of an input, as the feed does: what is there first, then more.
func readRecords(in *recordInput) (records []string, err error) {
	for {
		record, ok, err := in.next()
		if err != nil {
			return records, err
		}
		if ok {
			records = append(records, string(record))
			continue
		}
		if in.more() {
			continue
		}
		if isMore, err := in.wait(context.Background()); err != nil || !isMore {
			return records, err
		}
	}
}

func prefixed(records ...string) string {
	var raw []byte
	for _, record := range records {
		raw = append(binary.LittleEndian.AppendUint32(raw, uint32(len(record))), record...)
	}
	return string(raw)
}

func TestRecordInput_CutsRecords(t *testing.T) {
	for _, c := range []struct {
		name, format, input string
		want                []string
		failure             string
	}{
		{"empty", formatLines, "", nil, ""},
		{"lines", formatLines, "a\nbb\n", []string{"a", "bb"}, ""},
		{"last line without a newline", formatLines, "a\nbb", []string{"a", "bb"}, ""},
		{"empty lines are empty records", formatLines, "\n\na\n", []string{"", "", "a"}, ""},
		{
			"line of the longest length", formatLines, strings.Repeat("x", 64) + "\n",
			[]string{strings.Repeat("x", 64)},
			"",
		},
		{
			"line that is too long", formatLines, "a\n" + strings.Repeat("x", 65) + "\n",
			[]string{"a"},
			"input record 2 at byte 2 has",
		},
		{"prefixed", formatLengthPrefixed, prefixed("a", "", "b\nc"), []string{"a", "", "b\nc"}, ""},
		{
			"prefix cut off", formatLengthPrefixed, prefixed("a") + "\x01\x00",
			[]string{"a"},
			"input ends inside record 2: it begins at byte 5",
		},
		{"record cut off", formatLengthPrefixed, prefixed("abc")[:6], nil, "input ends inside record 1"},
		{
			"prefix that is too large", formatLengthPrefixed, "\xff\xff\xff\xff", nil,
			"has 4294967295 bytes, expected at most 64",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, chunks := range []string{"whole", "byte by byte"} {
				var source io.Reader = strings.NewReader(c.input)
				if chunks == "byte by byte" {
					source = iotest.OneByteReader(source)
				}
				got, err := readRecords(newRecordInput(source, c.format, 64))
				if strings.Join(got, "|") != strings.Join(c.want, "|") || len(got) != len(c.want) {
					t.Errorf("%s: %q, expected %q", chunks, got, c.want)
				}
				if c.failure == "" && err != nil || c.failure != "" &&
					(err == nil || !strings.Contains(err.Error(), c.failure)) {
					t.Errorf("%s: error %v, expected %q", chunks, err, c.failure)
				}
			}
		})
	}
}

func FuzzRecordInput(f *testing.F) {
	f.Add([]byte("a\nbb\n"), false)
	f.Add([]byte(prefixed("a", "bb")), true)
	f.Fuzz(func(t *testing.T, raw []byte, isPrefixed bool) {
		format := formatLines
		if isPrefixed {
			format = formatLengthPrefixed
		}
		whole, wholeErr := readRecords(newRecordInput(bytes.NewReader(raw), format, 32))
		pieces, piecesErr := readRecords(newRecordInput(iotest.HalfReader(bytes.NewReader(raw)), format, 32))
		if strings.Join(whole, "|") != strings.Join(pieces, "|") || (wholeErr == nil) != (piecesErr == nil) {
			t.Fatalf("at once %q (%v), in pieces %q (%v)", whole, wholeErr, pieces, piecesErr)
		}
		if wholeErr != nil {
			return
		}
		back := strings.Join(whole, "\n")
		want := strings.TrimSuffix(string(raw), "\n")
		if isPrefixed {
			back, want = prefixed(whole...), string(raw)
		}
		if back != want {
			t.Fatalf("records %q do not give back the input %q", whole, raw)
		}
	})
}

func TestFieldOf_CountsFromOne(t *testing.T) {
	for _, c := range []struct {
		record string
		number int
		want   string
	}{
		{"buy AAPL 100", 0, ""},
		{"buy AAPL 100", 1, "buy"},
		{"  buy \t AAPL 100", 2, "AAPL"},
		{"buy AAPL 100", 3, "100"},
		{"buy AAPL 100", 4, ""},
		{"", 1, ""},
		{"   ", 1, ""},
	} {
		if got := string(fieldOf([]byte(c.record), c.number)); got != c.want {
			t.Errorf("field %d of %q is %q, expected %q", c.number, c.record, got, c.want)
		}
	}
}

func TestPrintable_KeepsTheLineWhole(t *testing.T) {
	for raw, want := range map[string]string{
		"8=FIX.4.4\x0135=D\x01": "8=FIX.4.4|35=D|", "a\nb\x1b[31m": `a\nb\x1b[31m`, "Zürich": "Zürich",
		"\xff": `\ufffd`,
	} {
		if got := printable([]byte(raw)); got != want {
			t.Errorf("%q is shown as %q, expected %q", raw, got, want)
		}
	}
}
