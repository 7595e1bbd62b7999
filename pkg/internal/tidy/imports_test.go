package tidy

import (
	"cmp"
	"flag"
	"fmt"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/farlog/farlog/"

// arrows says which rooms a room may import. Rooms are the folders of pkg. docs/architecture.md has both tables, written
// from here by `go test ./pkg/internal/tidy -run TestImports_AreDocumented -update`.
var arrows = map[string][]string{
	"api":       {"retry"},
	"config":    {},
	"doctor":    {},
	"filelock":  {},
	"identity":  {"replace"},
	"metrics":   {},
	"replace":   {},
	"retry":     {},
	"plan":      {"api", "control"},
	"nvmehost":  {"nvmet", "retry"},
	"nvmet":     {"replace"},
	"record":    {},
	"farlog":    {"record"},
	"store":     {"filelock", "record"},
	"drain":     {"api", "farlog", "record", "retry", "store"},
	"audit":     {"record", "store"},
	"merge":     {"record", "store"},
	"consume":   {"farlog", "record", "replace", "store"},
	"replica":   {"record", "retry", "store"},
	"target":    {"api", "farlog", "filelock", "identity", "nvmet", "replace"},
	"control":   {"api", "config", "filelock", "identity"}, // config: for its file of rules
	"hostagent": {"control"},
}

// controlArrows is the same for the packages of pkg/control among themselves. None leads back.
var controlArrows = map[string][]string{
	"pattern":   {},
	"tracing":   {},
	"etcd":      {},
	"access":    {"pattern"},
	"reconcile": {"pattern"},
	"check":     {"pattern", "reconcile"},
	"refusal":   {"check"},
	"state":     {"check", "etcd", "reconcile", "refusal"},
	"report":    {"etcd", "reconcile", "refusal", "state"},
	"grant":     {"etcd", "reconcile", "refusal", "state"},
	"deletion":  {"etcd", "grant", "pattern", "reconcile", "refusal", "state"},
	"fabric":    {"access", "check", "deletion", "etcd", "pattern", "reconcile", "refusal", "state"},
	"auditlog":  {"access", "etcd", "refusal", "state"},
	"leader":    {"auditlog", "deletion", "etcd", "grant", "reconcile", "state", "tracing"},
	"service": {
		"access", "auditlog", "check", "deletion", "etcd", "fabric", "grant", "leader", "pattern", "reconcile", "refusal",
		"report", "state", "tracing",
	},
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

// controlRoom gives the package of pkg/control that a path is of; what lies below it, for tests, belongs to it.
func controlRoom(dir string) string {
	rest, isControl := strings.CutPrefix(dir, "pkg/control/")
	if !isControl {
		return ""
	}
	name, _, _ := strings.Cut(rest, "/")
	return name
}

func TestImports_FollowTheArrows(t *testing.T) {
	checkArrows(t, "pkg", arrows, room)
}

func TestImports_OfControlFollowTheArrows(t *testing.T) {
	checkArrows(t, "pkg/control", controlArrows, controlRoom)
}

// checkArrows compares the imports of all that is no test with what a table allows.
func checkArrows(t *testing.T, top string, allowed map[string][]string, roomOf func(dir string) string) {
	t.Helper()
	seen := map[string]bool{}
	for _, f := range tracked(t, ".go") {
		from := roomOf(path.Dir(f.path))
		seen[from] = true
		if from == "" || f.isTestdata() || strings.HasSuffix(f.path, "_test.go") {
			continue
		}
		if _, isKnown := allowed[from]; !isKnown {
			t.Errorf("%s: %s/%s is new: add it and what it may import to the table of %s", f.path, top, from, top)
			continue
		}
		for _, name := range importsOf(t, f) {
			to := roomOf(strings.TrimPrefix(name, module))
			if !strings.HasPrefix(name, module) || to == "" || to == from || slices.Contains(allowed[from], to) {
				continue
			}
			t.Errorf("%s imports %s/%s, but %s/%s may import only %v: pass the value in, or move the code to where it belongs",
				f.path, top, to, top, from, allowed[from])
		}
	}
	for from := range allowed {
		if !seen[from] {
			t.Errorf("%s/%s is in the table but has no Go file: remove its line", top, from)
		}
	}
}

func TestImports_NoneLeadsBack(t *testing.T) {
	checkNoWayBack(t, arrows)
	checkNoWayBack(t, controlArrows)
}

func checkNoWayBack(t *testing.T, table map[string][]string) {
	t.Helper()
	for from := range table {
		if way := wayBack(table, from, nil); way != nil {
			t.Fatalf("%s imports itself by way of %v: take one of these out of the table", from, way)
		}
	}
}

// wayBack finds the rooms by which the first one is reached from the last one; nil: it is not.
func wayBack(table map[string][]string, at string, way []string) []string {
	if len(way) > 0 && way[0] == at {
		return way
	}
	if slices.Contains(way, at) {
		return nil
	}
	for _, to := range table[at] {
		if found := wayBack(table, to, append(slices.Clip(way), at)); found != nil {
			return found
		}
	}
	return nil
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

var update = flag.Bool("update", false, "write the tables of docs/architecture.md")

// importTable is a table as docs/architecture.md shows it: what imports nothing first, and nothing before what it imports.
func importTable(table map[string][]string) string {
	width, depth := 0, map[string]int{}
	for from := range table {
		width, depth[from] = max(width, len(from)), depthOf(table, from)
	}
	names := slices.SortedFunc(maps.Keys(table), func(a, b string) int {
		return cmp.Or(cmp.Compare(depth[a], depth[b]), cmp.Compare(a, b))
	})
	var text strings.Builder
	for _, from := range names {
		line := fmt.Sprintf("%-*s →", width, from)
		for i, to := range slices.Sorted(slices.Values(table[from])) {
			if i > 0 {
				line += ","
			}
			if len([]rune(line+" "+to+",")) > importLineMax {
				text.WriteString(line + "\n")
				line = strings.Repeat(" ", width+2)
			}
			line += " " + to
		}
		if len(table[from]) == 0 {
			line += " –"
		}
		text.WriteString(line + "\n")
	}
	return text.String()
}

const importLineMax = 120

// depthOf is how many rooms stand one on the other below one.
func depthOf(table map[string][]string, from string) (depth int) {
	for _, to := range table[from] {
		depth = max(depth, 1+depthOf(table, to))
	}
	return depth
}

func TestImports_AreDocumented(t *testing.T) {
	page := filepath.Join(root(t), "docs", "architecture.md")
	raw, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	for name, table := range map[string]map[string][]string{"pkg": arrows, "pkg/control": controlArrows} {
		checkNoWayBack(t, table)
		start := "<!-- imports of " + name + " -->\n```\n"
		before, rest, isThere := strings.Cut(text, start)
		have, behind, isWhole := strings.Cut(rest, "```\n")
		if !isThere || !isWhole {
			t.Fatalf("%s has no table behind %q: add one, and run this with -update", page, start)
		}
		want := importTable(table)
		if have != want && !*update {
			t.Errorf("%s does not show the imports of %s as they are enforced: run this test with -update", page, name)
		}
		text = before + start + want + "```\n" + behind
	}
	if *update {
		if err := os.WriteFile(page, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
