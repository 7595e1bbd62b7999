package config

import (
	"strings"
	"testing"
)

func TestDocument_OneInAFile(t *testing.T) {
	for text, want := range map[string]string{
		"":                     "line 1, column 1: the file is empty",
		"\ufeff":               "line 1, column 1: the file is empty",
		"# nothing\n":          "line 1, column 1: the file is empty",
		"a: 1\n---\nb: 2\n":    "line 2, column 1: a second document begins here",
		"---\na: 1\n---\nb: 2": "line 3, column 1: a second document begins here",
		"---\n---\nb: 2\n":     "line 2, column 1: a second document begins here",
		"a: 1\n---\nb: [\n":    "line 4, column 1: did not find expected node content",
		"a: [1\nb: 2\n": "line 2, column 2: did not find expected ',' or ']' while parsing a flow sequence " +
			"that begins at line 1, column 4",
		"a: 1\n":                "",
		"---\na: 1\n...\n# b\n": "",
	} {
		node, mistake := Document([]byte(text))
		if want == "" && (mistake != nil || node == nil) || want != "" &&
			(mistake == nil || !strings.Contains(mistake.Error(), want)) {
			t.Errorf("%q: got %v, %v, want %q", text, node, mistake, want)
		}
	}
}

// Each mistake is found where it stands, also where what the parser tells is only the line, or not even that.
func TestDocument_SyntaxAtItsPlace(t *testing.T) {
	for text, want := range map[string]string{
		"a: 1\nb: c: d\n": "line 2, column 5: mapping values are not allowed in this context",
		"a: 1\n\tb: 2\n": "line 2, column 1: found a tab character that violates indentation " +
			"while scanning a plain scalar that begins at line 1, column 4",
		"a: *x\n": "line 1, column 4: unknown anchor 'x' referenced",
		"a: @x\n": "line 1, column 4: found character that cannot start any token",
		"s:\n- name: a\n  size 1\n  level: x\n": "line 4, column 3: could not find expected ':' while scanning a " +
			"simple key that begins at line 3, column 3",
		"a: 1\nb: \x01\n": "line 2, column 4: the character U+0001: expected no control " +
			"characters",
		"a: \"\u00e9\"\nb: \"\u00e9\xff\"\n": "line 2, column 6: the byte 0xff: expected text in UTF-8",
		"# c\nstreams:\n- name: a\n  size: 1\n   level: x\n": "line 5, column 9: mapping values are not allowed in " +
			"this context",
	} {
		if _, mistake := Document([]byte(text)); mistake == nil || mistake.Error() != want {
			t.Errorf("%q: %v, want %s", text, mistake, want)
		}
	}
}
