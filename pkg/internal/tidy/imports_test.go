package tidy

import (
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/farlog/farlog/"

// arrows is the tree of docs/architecture.md: a room and the rooms it may import. Rooms are the folders of pkg.
var arrows = map[string][]string{
	"api":       {},
	"config":    {},
	"doctor":    {},
	"identity":  {"replace"},
	"markdown":  {},
	"metrics":   {},
	"replace":   {},
	"plan":      {"api", "control"},
	"nvmehost":  {"nvmet"},
	"nvmet":     {"replace"},
	"record":    {},
	"farlog":    {"record"},
	"store":     {"record"},
	"drain":     {"api", "farlog", "record", "store"},
	"audit":     {"record", "store"},
	"merge":     {"record", "store"},
	"consume":   {"farlog", "record", "replace", "store"},
	"replica":   {"record", "store"},
	"target":    {"api", "farlog", "identity", "nvmet", "replace"},
	"control":   {"api", "config", "identity"}, // config: for its file of rules
	"hostagent": {"control"},
}

// room gives the room of a package path such as pkg/control/reconcile; "" outside the rooms (programs, tests, tools).
func room(dir string) string {
	parts := strings.Split(dir, "/")
	if len(parts) < 2 || parts[0] != "pkg" || parts[1] == "internal" {
		return ""
	}
	return parts[1]
}

func importsOf(t *testing.T, f file) []string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), f.path, f.content, parser.ImportsOnly)
	if err != nil {
		t.Fatalf("%s: %v", f.path, err)
	}
	var imports []string
	for _, spec := range parsed.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		imports = append(imports, name)
	}
	return imports
}

func TestImports_FollowTheArrows(t *testing.T) {
	for _, f := range tracked(t, ".go") {
		from := room(path.Dir(f.path))
		if from == "" || f.isTestdata() || strings.HasSuffix(f.path, "_test.go") {
			continue
		}
		allowed, isKnown := arrows[from]
		if !isKnown {
			t.Errorf("%s: pkg/%s is a new room: add it and its arrows to docs/architecture.md and to this table", f.path, from)
			continue
		}
		for _, name := range importsOf(t, f) {
			to := room(strings.TrimPrefix(name, module))
			if !strings.HasPrefix(name, module) || to == "" || to == from || slices.Contains(allowed, to) {
				continue
			}
			t.Errorf("%s imports pkg/%s, but pkg/%s may import only %v: pass the value in, or move the code to the room that owns it",
				f.path, to, from, allowed)
		}
	}
}

func TestImports_CAndUnsafeLiveInOneRoom(t *testing.T) {
	for _, f := range tracked(t, ".go") {
		if path.Dir(f.path) == "pkg/farlog" || f.isGenerated() || f.isTestdata() {
			continue
		}
		for _, name := range importsOf(t, f) {
			if name == "C" || name == "unsafe" {
				t.Errorf("%s imports %q: only pkg/farlog may; add what you need to its Go surface", f.path, name)
			}
		}
	}
}

func TestImports_TableHasNoStrangers(t *testing.T) {
	seen := make(map[string]bool)
	for _, f := range tracked(t, ".go") {
		seen[room(path.Dir(f.path))] = true
	}
	for from := range arrows {
		if !seen[from] {
			t.Errorf("pkg/%s is in the table but has no Go file: remove its line", from)
		}
	}
}
