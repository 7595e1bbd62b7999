package main

import (
	"archive/zip"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// proxy is a directory that go takes modules from, as from a server.
func proxy(t *testing.T, modules ...string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, module := range modules {
		path, version, _ := strings.Cut(module, "@")
		mod := "module " + path + "\n"
		var packed bytes.Buffer
		writer := zip.NewWriter(&packed)
		for name, text := range map[string]string{"go.mod": mod, "p.go": "package p\n"} {
			file, err := writer.Create(module + "/" + name)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := file.Write([]byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		if err := writer.Close(); err != nil {
			t.Fatal(err)
		}
		files := filepath.Join(path, "@v", version)
		write(t, dir, files+".mod", mod)
		write(t, dir, files+".zip", packed.String())
		write(t, dir, files+".info", fmt.Sprintf("{\"Version\": %q}", version))
	}
	return dir
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Who reviews a change sees each module that it adds, removes, changes or puts in the place of another one, with its
// sum, and no other; without a base nobody is told that nothing has changed.
func TestDiff_NamesWhatAChangeBringsInAndTakesOut(t *testing.T) {
	script, err := os.ReadFile("../../../../scripts/sbom-diff.sh")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cache := t.TempDir()
	environ := append(os.Environ(), "GOPROXY=file://"+proxy(t, "one.test/same@v1.0.0", "one.test/new@v1.0.0",
		"one.test/old@v1.0.0", "one.test/other@v1.0.0", "one.test/other@v1.1.0", "one.test/place@v1.0.0",
		"one.test/fork@v1.0.0"), "GOSUMDB=off", "GOFLAGS=-mod=mod -modcacherw", "GOMODCACHE="+cache,
		"GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=t", "GIT_AUTHOR_EMAIL=t@t", "GIT_COMMITTER_NAME=t",
		"GIT_COMMITTER_EMAIL=t@t")
	run := func(name string, args ...string) (string, error) {
		cmd := exec.Command(name, args...)
		cmd.Dir, cmd.Env = dir, environ
		output, err := cmd.CombinedOutput()
		return string(output), err
	}
	must := func(name string, args ...string) string {
		output, err := run(name, args...)
		if err != nil {
			t.Fatalf("%s %v: %v: %s", name, args, err, output)
		}
		return output
	}
	build := func(mod string, paths ...string) {
		write(t, dir, "go.mod", "module app.test\n"+mod)
		program := "package main\n"
		for _, path := range paths {
			program += fmt.Sprintf("import _ %q\n", "one.test/"+path)
		}
		write(t, dir, "cmd/app/main.go", program+"func main() {}\n")
		must("go", "mod", "tidy")
	}
	write(t, dir, "scripts/sbom-diff.sh", string(script))
	const kept = "require (\n one.test/same v1.0.0\n one.test/place v1.0.0\n"
	build(kept+"one.test/old v1.0.0\n one.test/other v1.0.0\n)\n", "same", "place", "old", "other")
	must("git", "init", "--quiet", "--initial-branch", "trunk")
	must("git", "add", ".")
	must("git", "commit", "--quiet", "--message", "base")
	if said, err := run("bash", "scripts/sbom-diff.sh"); err == nil {
		t.Errorf("nobody said what to compare with, and it ended well: %s", said)
	}
	if said := must("bash", "scripts/sbom-diff.sh", "HEAD"); said != "" {
		t.Errorf("nothing has changed: %s", said)
	}
	build(
		kept+"one.test/new v1.0.0\n one.test/other v1.1.0\n)\nreplace one.test/place => one.test/fork v1.0.0\n",
		"same",
		"place",
		"new",
		"other",
	)
	var got []string
	for line := range strings.Lines(must("bash", "scripts/sbom-diff.sh", "HEAD")) {
		line, sum, _ := strings.Cut(line, " h1:")
		if got = append(got, line); len(sum) != 45 { // with its newline
			t.Errorf("%s: no sum", line)
		}
	}
	want := "- one.test/old v1.0.0; - one.test/other v1.0.0; - one.test/place v1.0.0; + one.test/new v1.0.0; " +
		"+ one.test/other v1.1.0; + one.test/place => one.test/fork v1.0.0"
	if text := strings.Join(got, "; "); text != want {
		t.Errorf("got %s\nexpected %s", text, want)
	}
}
