package tidy

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// file is one tracked text file of the repository.
type file struct {
	path    string // slash-separated, from the root
	content []byte
}

func (f file) lines() []string { return strings.Split(string(f.content), "\n") }

func (f file) ext() string { return filepath.Ext(f.path) }

// generatedMark is what Go's tools and ours write at the top of files that no hand edits.
var generatedMark = regexp.MustCompile(`(?m)^(//|/\*|#) ?Code generated .* DO NOT EDIT\.`)

func (f file) isGenerated() bool {
	return generatedMark.Match(f.content[:min(len(f.content), 4000)])
}

func (f file) isTestdata() bool { return strings.Contains("/"+f.path, "/testdata/") }

func root(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("no go.mod above the working directory: run this from the repository")
		}
		dir = filepath.Dir(dir)
	}
}

// tracked gives the tracked files with one of these extensions ("" = all); binary ones are left out.
func tracked(t *testing.T, extensions ...string) []file {
	t.Helper()
	top := root(t)
	list := exec.Command("git", "-C", top, "ls-files", "-z")
	out, err := list.Output()
	if err != nil {
		t.Skipf("git ls-files: %v: these rules look at tracked files, so they need git and a clone", err)
	}
	var files []file
	for _, path := range strings.Split(strings.TrimRight(string(out), "\x00"), "\x00") {
		if !hasExtension(path, extensions) {
			continue
		}
		content, err := os.ReadFile(filepath.Join(top, path))
		if os.IsNotExist(err) {
			continue // deleted, not yet committed
		}
		if err != nil {
			t.Fatal(err)
		}
		if bytes.IndexByte(content, 0) < 0 {
			files = append(files, file{path: path, content: content})
		}
	}
	if len(files) == 0 {
		t.Fatalf("no tracked file ends in %v: the rule has lost its subject", extensions)
	}
	return files
}

func hasExtension(path string, extensions []string) bool {
	if len(extensions) == 0 {
		return true
	}
	for _, extension := range extensions {
		if filepath.Ext(path) == extension {
			return true
		}
	}
	return false
}
