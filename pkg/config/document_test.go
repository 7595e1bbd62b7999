package config

import (
	"strings"
	"testing"
)

func TestDocument_OneInAFile(t *testing.T) {
	for text, want := range map[string]string{
		"":                      "line 1, column 1: the file is empty",
		"\ufeff":                "line 1, column 1: the file is empty",
		"# nothing\n":           "line 1, column 1: the file is empty",
		"a: 1\n---\nb: 2\n":     "line 2, column 1: a second document begins here",
		"---\na: 1\n---\nb: 2":  "line 3, column 1: a second document begins here",
		"---\n---\nb: 2\n":      "line 2, column 1: a second document begins here",
		"a: 1\n---\nb: [\n":     "line ",
		"a: [1\nb: 2\n":         "line ",
		"a: 1\n":                "",
		"---\na: 1\n...\n# b\n": "",
	} {
		node, mistake := Document([]byte(text))
		if want == "" && (mistake != nil || node == nil) || want != "" && (mistake == nil || !strings.Contains(mistake.Error(), want)) {
			t.Errorf("%q: got %v, %v, want %q", text, node, mistake, want)
		}
	}
}
