package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestReference_IsFresh(t *testing.T) {
	path := filepath.Join("..", "..", "docs", "reference", "farlog-verify.md")
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"reference"}, &stdout, &stderr); code != exitOK {
		t.Fatalf("exit code %d: %s", code, stderr.String())
	}
	if !bytes.Equal(stdout.Bytes(), want) {
		t.Errorf("%s is not what the program says of itself; run: make generate", path)
	}
}
