// Command statement prints how a release was made: an in-toto statement with SLSA's provenance, of the files that a
// list of checksums has.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
)

const (
	repository = "https://github.com/farlog/farlog"
	buildType  = repository + "/blob/main/docs/releasing.md"
)

// subject is a file of the release, or a thing that it was made from.
type subject struct {
	Name   string            `json:"name,omitempty"`
	URI    string            `json:"uri,omitempty"`
	Digest map[string]string `json:"digest,omitempty"`
}

// statement is https://in-toto.io/Statement/v1 with https://slsa.dev/provenance/v1.
type statement struct {
	Type          string    `json:"_type"`
	Subject       []subject `json:"subject"`
	PredicateType string    `json:"predicateType"`
	Predicate     predicate `json:"predicate"`
}

type predicate struct {
	BuildDefinition struct {
		BuildType            string            `json:"buildType"`
		ExternalParameters   map[string]string `json:"externalParameters"`
		ResolvedDependencies []subject         `json:"resolvedDependencies"`
	} `json:"buildDefinition"`
	RunDetails struct {
		Builder struct {
			ID      string            `json:"id"`
			Version map[string]string `json:"version"`
		} `json:"builder"`
	} `json:"runDetails"`
}

func main() {
	commit := flag.String("commit", "", "`hash` of the commit that was built")
	version := flag.String("version", "", "`version` it was built as")
	flag.Parse()
	if err := run(*commit, *version, flag.Args()); err != nil {
		fmt.Fprintf(os.Stderr, "statement: %s\n", err)
		os.Exit(1)
	}
}

func run(commit, version string, files []string) error {
	if commit == "" || version == "" || len(files) != 1 {
		return fmt.Errorf("expected -commit HASH -version VERSION FILE, FILE as sha256sum prints it")
	}
	sums, err := os.ReadFile(files[0])
	if err != nil {
		return err
	}
	made, err := describe(commit, version, sums)
	if err != nil {
		return fmt.Errorf("%s: %w", files[0], err)
	}
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetIndent("", "  ")
	return encoder.Encode(made)
}

func describe(commit, version string, sums []byte) (*statement, error) {
	subjects, err := readSums(sums)
	if err != nil {
		return nil, err
	}
	made := &statement{
		Type: "https://in-toto.io/Statement/v1", Subject: subjects,
		PredicateType: "https://slsa.dev/provenance/v1",
	}
	definition := &made.Predicate.BuildDefinition
	definition.BuildType = buildType
	definition.ExternalParameters = map[string]string{"version": version}
	definition.ResolvedDependencies = []subject{{
		URI: "git+" + repository, Digest: map[string]string{"gitCommit": commit},
	}}
	builder := &made.Predicate.RunDetails.Builder
	builder.ID = repository + "/blob/main/scripts/release.sh"
	builder.Version = map[string]string{"go": runtime.Version()}
	for _, tool := range []string{"cc", "ld", "meson"} {
		if builder.Version[tool], err = versionOf(tool); err != nil {
			return nil, err
		}
	}
	return made, nil
}

var sumLine = regexp.MustCompile(`^([0-9a-f]{64}) [ *](\S+)$`)

func readSums(sums []byte) ([]subject, error) {
	var list []subject
	lines := bufio.NewScanner(bytes.NewReader(sums))
	for lines.Scan() {
		match := sumLine.FindStringSubmatch(lines.Text())
		if match == nil {
			return nil, fmt.Errorf("line %d %q: expected a SHA-256 and the name of a file", len(list)+1, lines.Text())
		}
		list = append(list, subject{Name: match[2], Digest: map[string]string{"sha256": match[1]}})
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("it is empty: expected a line for each file")
	}
	return list, lines.Err()
}

// versionOf is the first line of what a tool says of itself.
func versionOf(tool string) (string, error) {
	out, err := exec.Command(tool, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w", tool, err)
	}
	first, _, _ := strings.Cut(string(out), "\n")
	return first, nil
}
