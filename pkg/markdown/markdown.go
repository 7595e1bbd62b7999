// Package markdown writes the lines of generated pages, which keep to the width that all pages keep to.
package markdown

import (
	"strings"
	"unicode/utf8"
)

// lineLenMax leaves a line within the 120 columns of a page.
const lineLenMax = 118

// Fill breaks a text into lines. The first one begins with first, the others with rest. A word is never broken.
func Fill(text, first, rest string) string {
	var made strings.Builder
	line, isEmpty := first, true
	for _, word := range strings.Fields(text) {
		if !isEmpty && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > lineLenMax {
			made.WriteString(line + "\n")
			line, isEmpty = rest, true
		}
		if !isEmpty {
			line += " "
		}
		line, isEmpty = line+word, false
	}
	return made.String() + line + "\n"
}

// FillLines fills the paragraphs of a text that have a line which is too long. Indented lines stay apart, as their
// author set them.
func FillLines(text string) string {
	var made strings.Builder
	paragraph := ""
	flush := func() {
		if isWide(paragraph) {
			paragraph = Fill(paragraph, "", "")
		}
		made.WriteString(paragraph)
		paragraph = ""
	}
	for line := range strings.Lines(text) {
		body := strings.TrimLeft(line, " \t")
		indent := line[:len(line)-len(body)]
		switch {
		case indent == "" && strings.TrimSpace(line) != "":
			paragraph += line
			continue
		case isWide(line):
			line = Fill(body, indent, indent)
		}
		flush()
		made.WriteString(line)
	}
	flush()
	return made.String()
}

func isWide(text string) bool {
	for line := range strings.Lines(text) {
		if utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) > lineLenMax {
			return true
		}
	}
	return false
}
