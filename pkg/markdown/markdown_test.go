package markdown

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestFill_LinesFitAndKeepEveryWord(t *testing.T) {
	text := strings.Repeat("grün words of a text ", 40)
	filled := Fill(text, "- ", "  ")
	for i, line := range strings.Split(strings.TrimSuffix(filled, "\n"), "\n") {
		if utf8.RuneCountInString(line) > lineLenMax {
			t.Errorf("line %d has more than %d columns: %q", i, lineLenMax, line)
		}
		if want := map[bool]string{true: "- ", false: "  "}[i == 0]; !strings.HasPrefix(line, want) {
			t.Errorf("line %d: %q, expected to begin with %q", i, line, want)
		}
	}
	if got := strings.Join(strings.Fields(strings.TrimPrefix(filled, "- ")), " "); got != strings.TrimSpace(text) {
		t.Errorf("words were lost: %q", got)
	}
}

func TestFill_AWordLongerThanALineStaysWhole(t *testing.T) {
	word := strings.Repeat("x", 2*lineLenMax)
	if got := Fill("a "+word+" b", "", ""); got != "a\n"+word+"\nb\n" {
		t.Errorf("%q", got)
	}
}

func TestFillLines_ShortLinesStayApart(t *testing.T) {
	if got := FillLines("  a  b\n  c\n"); got != "  a  b\n  c\n" {
		t.Errorf("%q", got)
	}
}

func TestFillLines_AWideParagraphIsFilledAsOne(t *testing.T) {
	wide := strings.TrimSpace(strings.Repeat("word ", 30))
	got := FillLines(wide + "\nnext\n\n  kept\nshort\n")
	if lines := strings.Split(got, "\n"); len(lines) != 6 || !strings.HasSuffix(lines[1], " next") ||
		lines[3] != "  kept" || lines[4] != "short" {
		t.Errorf("%q", got)
	}
}
