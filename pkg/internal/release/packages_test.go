package release

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/farlog/farlog/pkg/internal/testenv"
)

func read(t *testing.T, path ...string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(append([]string{testenv.Root()}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// maintainerScripts are what dpkg and rpm run on the hosts of others.
var maintainerScripts = []string{
	"farlogd.postinst", "farlogd.prerm", "farlogd.postrm", "farlogd.post", "farlogd.preun",
	"farlog-archive.postinst", "farlog-archive.prerm", "farlog-archive.postrm", "farlog-archive.post",
	"farlog-archive.preun",
}

// removal finds what removes more than one file or an empty folder.
var removal = regexp.MustCompile(`\brm\s+(-\w*[rR]|--recursive|--dir)|\bfind\b|\bshred\b|\buserdel\b|\bdeluser\b`)

func TestPackages_ScriptsParseAndRemoveNoData(t *testing.T) {
	for _, name := range maintainerScripts {
		path := filepath.Join(testenv.Root(), "deploy", "packages", name)
		if out, err := exec.Command("sh", "-n", path).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", name, err, out)
		}
		script := read(t, "deploy", "packages", name)
		if found := removal.FindString(script); found != "" {
			t.Errorf("%s: %q: records, keys and users stay on the host whatever happens to a package", name, found)
		}
		if !strings.Contains(script, "\nset -e\n") {
			t.Errorf("%s: no set -e: a step that fails has to fail the package", name)
		}
	}
}

// A role that gets a unit is stopped before its program is removed, has settings, and is no longer enabled after a
// purge.
func TestPackages_KnowEveryUnit(t *testing.T) {
	units, err := filepath.Glob(filepath.Join(testenv.Root(), "deploy", "systemd", "farlog-*.service"))
	if err != nil || len(units) < 6 {
		t.Fatalf("units %v, %v; expected those of five roles and of the archive at least", units, err)
	}
	for _, path := range units {
		unit := strings.TrimSuffix(filepath.Base(path), ".service")
		role := strings.TrimPrefix(unit, "farlog-")
		pkg, settings := "farlogd", `for name in.* `+role+`\b`
		if role == "archive" {
			pkg, settings = unit, `cp .*/archive\.env `
		}
		for name, want := range map[string]string{
			"deploy/packages/" + pkg + ".yaml":   `src: systemd/` + unit + `\.service`,
			"deploy/packages/" + pkg + ".prerm":  `\s` + unit + `\.service`,
			"deploy/packages/" + pkg + ".preun":  `\s` + unit + `\b`,
			"deploy/packages/" + pkg + ".postrm": `for role in.* ` + role + `\b`,
			"scripts/release/build.sh":           settings,
		} {
			if !regexp.MustCompile(want).MatchString(read(t, filepath.FromSlash(name))) {
				t.Errorf("%s does not name %s: expected something like %s", name, unit, want)
			}
		}
	}
}

// What is being built has its section in the changelog, below one for what comes next.
func TestChangelog_HasTheVersion(t *testing.T) {
	version := regexp.MustCompile(`#define FARLOG_VERSION "([^"]+)"`).FindStringSubmatch(
		read(t, "rdma", "include", "farlog", "farlog.h"))
	if version == nil {
		t.Fatal("farlog.h has no FARLOG_VERSION")
	}
	sections := regexp.MustCompile(`(?m)^## \[([^\]]+)\]`).FindAllStringSubmatch(read(t, "CHANGELOG.md"), -1)
	if len(sections) < 2 || sections[0][1] != "Unreleased" || sections[1][1] != version[1] {
		t.Errorf("sections of CHANGELOG.md: %q; expected [Unreleased], and below it [%s], as farlog.h says", sections,
			version[1])
	}
}
