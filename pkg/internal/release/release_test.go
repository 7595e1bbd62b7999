// Package release tests what a release is made from: its version, and the scripts and descriptions of its packages.
// scripts/release-test.sh installs the packages in roots of their own.
package release

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/farlog/farlog/pkg/internal/testenv"
)

// tree is a folder with scripts/version.sh, and a header of version 0.2.0.
func tree(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	script, err := os.ReadFile(filepath.Join(testenv.Root(), "scripts", "version.sh"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "scripts", "version.sh"), script)
	setHeader(t, dir, "0.2.0")
	return dir
}

func setHeader(t *testing.T, dir, version string) {
	t.Helper()
	write(t, filepath.Join(dir, "rdma", "include", "farlog", "farlog.h"),
		fmt.Appendf(nil, "#define FARLOG_VERSION \"%s\"\n", version))
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o755); err != nil {
		t.Fatal(err)
	}
}

func git(t *testing.T, dir string, args ...string) {
	t.Helper()
	command := exec.Command("git", append([]string{
		"-c", "user.name=t", "-c", "user.email=t@t", "-c",
		"commit.gpgsign=false", "-c", "tag.gpgsign=false",
	}, args...)...)
	command.Dir = dir
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func commit(t *testing.T, dir string) {
	t.Helper()
	git(t, dir, "add", ".")
	git(t, dir, "commit", "-q", "--allow-empty", "-m", "change")
}

// expectVersion runs the script; want is a regular expression for all that it prints.
func expectVersion(t *testing.T, dir, want string, isRight bool) {
	t.Helper()
	out, err := exec.Command(filepath.Join(dir, "scripts", "version.sh")).CombinedOutput()
	if (err == nil) != isRight || !regexp.MustCompile("^"+want+"\n$").Match(out) {
		t.Errorf("printed %q, %v; expected %s", out, err, want)
	}
}

func TestVersion_FollowsTags(t *testing.T) {
	dir := tree(t)
	expectVersion(t, dir, `0\.2\.0-dev`, true)
	git(t, dir, "init", "-q")
	commit(t, dir)
	expectVersion(t, dir, `0\.2\.0-dev\.1\+g[0-9a-f]{12}`, true)
	git(t, dir, "tag", "-a", "-m", "release", "v0.2.0")
	git(t, dir, "tag", "nightly")
	expectVersion(t, dir, `0\.2\.0`, true)
	setHeader(t, dir, "0.3.0")
	expectVersion(t, dir, `0\.3\.0-dev\.0\+g[0-9a-f]{12}\.dirty`, true)
	commit(t, dir)
	commit(t, dir)
	expectVersion(t, dir, `0\.3\.0-dev\.2\+g[0-9a-f]{12}`, true)
	setHeader(t, dir, "0.2.0")
	commit(t, dir)
	expectVersion(t, dir, `0\.2\.1-dev\.3\+g[0-9a-f]{12}`, true)
	git(t, dir, "tag", "v0.2.1")
	expectVersion(t, dir, `version: tag v0\.2\.1: expected v0\.2\.0, the version of rdma/.*/farlog\.h`, false)
	setHeader(t, dir, "two")
	expectVersion(t, dir, `version: rdma/include/farlog/farlog\.h: expected .*`, false)
}

// A tree that was unpacked inside of a repository of something else does not take that for its own.
func TestVersion_IsNotThatOfARepositoryAround(t *testing.T) {
	around := t.TempDir()
	git(t, around, "init", "-q")
	commit(t, around)
	git(t, around, "tag", "v9.9.9")
	dir := filepath.Join(around, "farlog")
	if err := os.Rename(tree(t), dir); err != nil {
		t.Fatal(err)
	}
	expectVersion(t, dir, `0\.2\.0-dev`, true)
}

// versionLines are the rows of the table of formats in docs/reference/compatibility.md, and where the code says it.
var versionLines = []struct{ row, file, define string }{
	{"record", "rdma/src/ring/record.h", "RECORD_VERSION"},
	{"ring in memory", "rdma/src/ring/layout.h", "LAYOUT_VERSION"},
	{"ring on blocks", "rdma/src/ring/layout.h", "LAYOUT_VERSION_PACKED"},
	{"directory of rings", "rdma/src/region/directory.h", "DIRECTORY_VERSION"},
	{"page of tails", "rdma/src/ring/tails_page.h", "TAILS_VERSION"},
	{"remote connections", "rdma/src/wire/wire.h", "FAR_VERSION"},
	{"segment of a store", "pkg/store/segment.go", "segmentVersion"},
}

func TestCompatibility_TableHasTheVersionsOfTheCode(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(testenv.Root(), "docs", "reference", "compatibility.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range versionLines {
		code, err := os.ReadFile(filepath.Join(testenv.Root(), filepath.FromSlash(line.file)))
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(`(?m)^\s*(?:#define )?` + line.define + `\s+(?:= )?(\d+)u?\b`).FindSubmatch(code)
		if found == nil {
			t.Errorf("%s: no number of %s", line.file, line.define)
		} else if want := fmt.Sprintf("\n| %s | %s |", line.row, found[1]); !strings.Contains(string(page), want) {
			t.Errorf("compatibility.md has no row %q; %s in %s says %s", want[1:], line.define, line.file, found[1])
		}
	}
}
