package tidy

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var codeBlock = regexp.MustCompile("(?s)```(c|go)\n(.*?)```")

// The examples of the README are files that `make test` compiles and runs; here it is shown that they are the same text.
func TestReadme_ExamplesAreTheFilesThatRun(t *testing.T) {
	top := root(t)
	readme, err := os.ReadFile(filepath.Join(top, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	sources := map[string]string{"c": "rdma/examples/01-append.c", "go": "examples/append/main.go"}
	for _, block := range codeBlock.FindAllStringSubmatch(string(readme), -1) {
		language, text := block[1], block[2]
		path, isWanted := sources[language]
		if !isWanted {
			continue
		}
		delete(sources, language)
		content, err := os.ReadFile(filepath.Join(top, path))
		if err != nil {
			t.Fatal(err)
		}
		if strings.TrimSpace(text) != strings.TrimSpace(string(content)) {
			t.Errorf("README.md: the %s example differs from %s: copy the file into the README", language, path)
		}
		if lines := strings.Count(text, "\n"); lines > 32 {
			t.Errorf("README.md: the %s example has %d lines; an example of more than 32 is not read", language, lines)
		}
	}
	for language, path := range sources {
		t.Errorf("README.md has no %s example: add %s as a code block", language, path)
	}
}

var link = regexp.MustCompile(`\]\(([^)#]+)(#[^)]*)?\)`)

func TestReadme_LinksLeadSomewhere(t *testing.T) {
	top := root(t)
	for _, f := range tracked(t, ".md") {
		for _, match := range link.FindAllStringSubmatch(string(f.content), -1) {
			target := match[1]
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			if _, err := os.Stat(filepath.Join(top, filepath.Dir(f.path), target)); err != nil {
				t.Errorf("%s links to %s, which is not there: mend the link", f.path, target)
			}
		}
	}
}
