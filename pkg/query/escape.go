package query

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Escape writes any bytes as one line of printable UTF-8, so that they can be had back: bytes of what is not printable
// as \xNN, a backslash as \\.
func Escape(raw []byte) string {
	var text strings.Builder
	text.Grow(len(raw))
	for len(raw) > 0 {
		char, length := utf8.DecodeRune(raw)
		switch {
		case char == '\\':
			text.WriteString(`\\`)
		case char == utf8.RuneError && length == 1 || !strconv.IsPrint(char):
			for _, one := range raw[:length] {
				fmt.Fprintf(&text, `\x%02x`, one)
			}
		default:
			text.Write(raw[:length])
		}
		raw = raw[length:]
	}
	return text.String()
}
