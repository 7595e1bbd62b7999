package tidy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const exampleLinesMax = 32

// The README's examples are files, by link: scripts/examples.sh compiles and runs them.
func TestReadme_LinksAnExampleForEachLanguage(t *testing.T) {
	top := root(t)
	readme, err := os.ReadFile(filepath.Join(top, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{
		"rdma/examples/01-append.c", "rdma/examples/03-append.cpp", "examples/append/main.go",
		"java/README.md",
	} {
		if !strings.Contains(string(readme), "]("+path+")") {
			t.Errorf("README.md has no link to %s: a reader of that language looks for it there", path)
		}
	}
	for _, path := range []string{"rdma/examples/01-append.c", "examples/append/main.go"} {
		content, err := os.ReadFile(filepath.Join(top, path))
		if err != nil {
			t.Fatal(err)
		}
		if lines := strings.Count(string(content), "\n"); lines > exampleLinesMax {
			t.Errorf("%s has %d lines; a first example of more than %d is not read", path, lines, exampleLinesMax)
		}
	}
}
