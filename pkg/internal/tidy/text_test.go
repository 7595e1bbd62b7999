package tidy

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const noMachinePath = "no path of one machine: use a relative path or a temporary folder"

// forbidden words and what to write instead. They are pieced together so that this table does not find itself.
var forbidden = []struct {
	pattern *regexp.Regexp
	remedy  string
}{
	{
		regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X|HA` + `CK)\b`),
		"finish it, or open an issue and say nothing here",
	},
	{regexp.MustCompile(`(?i)\b(white` + `list|black` + `list)`), "say allowed and refused"},
	{regexp.MustCompile(`(?i)\bsan` + `ity\b`), "say what is checked"},
	{regexp.MustCompile(`(?i)\bdum` + `my\b`), "name what it stands for"},
	{regexp.MustCompile(`(^|[^\w.$/}-])/(home|Users)/\w`), noMachinePath},
}

func TestText_HasNoForbiddenWords(t *testing.T) {
	for _, f := range tracked(t) {
		if f.isTestdata() || f.isGenerated() || f.path == "LICENSE" || f.path == "go.sum" {
			continue
		}
		for i, line := range f.lines() {
			for _, word := range forbidden {
				if found := word.pattern.FindString(line); found != "" {
					t.Errorf("%s:%d says %q: %s", f.path, i+1, found, word.remedy)
				}
			}
		}
	}
}

// machinePath finds a directory of the machine that runs the test, at the start of a path.
func machinePath(dir string) *regexp.Regexp {
	return regexp.MustCompile(`(^|[^\w.$/}<-])` + regexp.QuoteMeta(filepath.ToSlash(dir)) + `(/|\b)`)
}

// Where this copy of the repository lies, and whose it is, is nobody else's business and true on no other machine.
func TestText_NamesNoPathOfThisMachine(t *testing.T) {
	dirs := []string{root(t)}
	if home, err := os.UserHomeDir(); err == nil && len(home) > 1 {
		dirs = append(dirs, home)
	}
	for _, dir := range dirs {
		pattern := machinePath(dir)
		for _, f := range tracked(t) {
			if f.isTestdata() {
				continue
			}
			for i, line := range f.lines() {
				if found := pattern.FindString(line); found != "" {
					t.Errorf("%s:%d says %q: %s", f.path, i+1, found, noMachinePath)
				}
			}
		}
	}
}

func TestText_MachinePathIsFoundAtTheStartOfAPathOnly(t *testing.T) {
	pattern := machinePath("/some/where")
	for line, want := range map[string]bool{
		"/some/where": true, "open /some/where/else": true, `"/some/where"`: true, "file:/some/where": true,
		"/some/wherever": false, "a/some/where": false, "$DIR/some/where": false, "../some/where": false,
		"/awe/some/where": false,
	} {
		if got := pattern.MatchString(line); got != want {
			t.Errorf("%q: found %v, expected %v", line, got, want)
		}
	}
}

var failedTo = regexp.MustCompile(`(errors\.New|fmt\.Errorf)\("(failed to|[A-Z][a-z]+ )`)

func TestText_ErrorsStartWithTheVerb(t *testing.T) {
	for _, f := range tracked(t, ".go") {
		for i, line := range f.lines() {
			if failedTo.MatchString(line) {
				t.Errorf(`%s:%d: an error text is lower case and wraps as "verb noun: %%w"`, f.path, i+1)
			}
		}
	}
}

func TestText_GoIsFormatted(t *testing.T) {
	for _, f := range tracked(t, ".go") {
		formatted, err := format.Source(f.content)
		if err != nil {
			t.Errorf("%s: %v", f.path, err)
		} else if !bytes.Equal(formatted, f.content) {
			t.Errorf("%s is not formatted; run: gofmt -w %s", f.path, f.path)
		}
	}
}

func TestText_LinesEndWithoutBlanks(t *testing.T) {
	for _, f := range tracked(t, ".go", ".c", ".h", ".hpp", ".sh", ".md") {
		if f.isTestdata() || f.isGenerated() {
			continue
		}
		for i, line := range f.lines() {
			if strings.TrimRight(line, " \t\r") != line {
				t.Errorf("%s:%d ends with blanks: remove them", f.path, i+1)
			}
		}
		if !bytes.HasSuffix(f.content, []byte("\n")) {
			t.Errorf("%s does not end with a newline: add it", f.path)
		}
	}
}

func TestGenerated_CoreTablesAreFresh(t *testing.T) {
	check := exec.Command("go", "run", "./pkg/internal/gen", "-check")
	check.Dir = root(t)
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("%s", strings.TrimSpace(string(out)))
	}
}

// The generator's programs are not needed to build, so freshness is told by the hash that generate.sh left.
func TestGenerated_ProtocolIsFresh(t *testing.T) {
	folder := filepath.Join(root(t), "pkg", "api", "v1")
	recorded, err := os.ReadFile(filepath.Join(folder, "farlog.proto.sha256"))
	if err != nil {
		t.Fatalf("%v; run: make generate", err)
	}
	reference, err := os.ReadFile(filepath.Join(root(t), "docs", "reference", "api.md"))
	if err != nil {
		t.Fatalf("%v; run: make generate", err)
	}
	for _, name := range []string{"farlog.proto", "fabric.proto"} {
		proto, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(proto)
		want := hex.EncodeToString(sum[:])
		if !strings.Contains(string(recorded), want) {
			t.Errorf("pkg/api/v1/%s changed since its Go code was generated (sha256 %s); run: make generate", name,
				want)
		}
		if !strings.Contains(string(reference), want) {
			t.Errorf("pkg/api/v1/%s changed since docs/reference/api.md was generated; run: make generate", name)
		}
	}
}
