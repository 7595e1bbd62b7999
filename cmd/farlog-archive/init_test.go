package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// commentedOut finds the settings that an example names without making them.
var commentedOut = regexp.MustCompile(`(?m)^#([a-z])`)

// check runs farlog-archive run --check on a configuration.
func check(t *testing.T, content []byte, args ...string) (code int, stderr string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "archive.yaml")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	var out, talk bytes.Buffer
	code = run(t.Context(), append([]string{"run", "--check", "--config", path}, args...), &out, &talk)
	return code, strings.ReplaceAll(talk.String(), path, "archive.yaml")
}

// The example of farlog init is valid as it is, and with the # taken away from its settings.
func TestInit_ExampleIsValid(t *testing.T) {
	written, err := os.ReadFile(filepath.Join("..", "farlog", "init", "archive.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	all := commentedOut.ReplaceAll(written, []byte("$1"))
	if len(all) == len(written) {
		t.Fatal("no setting in a comment")
	}
	for _, content := range [][]byte{written, all} {
		if code, stderr := check(t, content); code != exitOK {
			t.Errorf("exit code %d: %s\nof\n%s", code, stderr, content)
		}
	}
}

func TestRun_SettingsComeFromTheFile(t *testing.T) {
	for _, test := range []struct{ name, content, want string }{
		{"mistakes", "store.dir: s\nretain: soon\narchive.urls: x\npoll: 0s\n", `archive.yaml:2:9: retain "soon": `},
		{"mistakes", "store.dir: s\nretain: soon\narchive.urls: x\npoll: 0s\n", `archive.yaml:3:1: unknown setting `},
		{"mistakes", "store.dir: s\nretain: soon\narchive.urls: x\npoll: 0s\n", `archive.yaml:4:7: poll "0s": `},
		{"no store", "archive.url: s3://bucket\nretain: 6y\n", "run: no store was given"},
		{"no period", "archive.url: s3://bucket\nstore.dir: s\n", "run: expected --retain"},
		{"no archive", "store.dir: s\nretain: 6y\n", "no archive was given"},
		{"another archive", "store.dir: s\nretain: 6y\narchive.url: gs://x\n", "expected s3://BUCKET/PREFIX"},
	} {
		if code, stderr := check(t, []byte(test.content)); code != exitUsage || !strings.Contains(stderr, test.want) {
			t.Errorf("%s: exit code %d, %q; expected 2 and %q", test.name, code, stderr, test.want)
		}
	}
}

// What the command line says wins over the file: also the store, which it says without a flag.
func TestRun_CommandLineWins(t *testing.T) {
	content := []byte("archive.url: s3://bucket\n")
	if code, stderr := check(t, content, "store", "--retain", "6y"); code != exitOK {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	t.Setenv("FARLOG_STORE_DIR", "store")
	t.Setenv("FARLOG_RETAIN", "6y")
	if code, stderr := check(t, content); code != exitOK {
		t.Errorf("by the environment: exit code %d: %s", code, stderr)
	}
	if code, _ := check(t, content, "store", "another"); code != exitUsage {
		t.Errorf("two stores: exit code %d", code)
	}
}
