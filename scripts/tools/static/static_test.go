package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

const faultsPath = "testdata/faults/faults.go"

var (
	finding = regexp.MustCompile(`faults\.go:(\d+):\d+: ([A-Za-z0-9]+)`)
	want    = regexp.MustCompile(`// want(\+*) (\w+)`) // each + is a line further down
)

// A fault of each tool fails go vet, as scripts/static.sh runs it, and is named with its line and rule; what is waved
// through with a reason is not, and nothing else is.
func TestVet_FindsAFaultForEachTool(t *testing.T) {
	tool := filepath.Join(t.TempDir(), "static")
	if output, err := exec.Command("go", "build", "-o", tool, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v: %s", err, output)
	}
	output, err := exec.Command("go", "vet", "-vettool="+tool, "./"+filepath.Dir(faultsPath)).CombinedOutput()
	if err == nil {
		t.Errorf("go vet passes: %s", output)
	}
	var found []string
	for _, match := range finding.FindAllStringSubmatch(string(output), -1) {
		found = append(found, match[1]+" "+match[2])
	}
	slices.Sort(found)
	if want := wanted(t); !slices.Equal(found, want) {
		t.Errorf("found %q, expected %q: %s", found, want, output)
	}
}

// wanted are the lines of the source with the rule behind each.
func wanted(t *testing.T) (list []string) {
	t.Helper()
	raw, err := os.ReadFile(faultsPath)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(bytes.NewReader(raw))
	for number := 1; lines.Scan(); number++ {
		if match := want.FindStringSubmatch(lines.Text()); match != nil {
			list = append(list, fmt.Sprintf("%d %s", number+len(match[1]), match[2]))
		}
	}
	slices.Sort(list)
	return list
}
