package main

import (
	"bytes"
	"os"
	"regexp"
	"testing"

	"github.com/farlog/farlog/pkg/plan"
)

// The example of docs/reference/plan.md is a file without mistakes, and holds; what it makes fits a screen.
func TestPlan_TheDocumentedOneHolds(t *testing.T) {
	text, err := os.ReadFile("../../docs/reference/plan.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindSubmatch(text)
	if block == nil {
		t.Fatal("no example")
	}
	file := readFabric(block[1])
	if err := file.checkPlan(); err != nil || len(file.problems) > 0 {
		t.Fatalf("mistakes: %+v, %v", file.problems, err)
	}
	made := plan.Make(file.planned)
	if len(made.Problems) > 0 || len(made.Routes) != 2 || len(made.Streams) != 3 {
		t.Errorf("%+v", made)
	}
	var table bytes.Buffer
	if err := printPlan(&table, made); err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(table.Bytes()) {
		if len(line) > 110 {
			t.Errorf("%d columns: %s", len(line), line)
		}
	}
}
