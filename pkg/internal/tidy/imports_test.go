package tidy

import (
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
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
		if path.Dir(f.path) == "pkg/farlog" || isCoreStub(f.path) || f.isGenerated() || f.isTestdata() {
			continue
		}
		for _, name := range importsOf(t, f) {
			if name == "C" || name == "unsafe" {
				t.Errorf("%s imports %q: only pkg/farlog may; add what you need to its Go surface", f.path, name)
			}
			if strings.HasPrefix(name, module+"rdma/") {
				t.Errorf("%s imports %q: the C core is pkg/farlog's; import that", f.path, name)
			}
		}
	}
}

// isCoreStub tells of the files that make a Go package of a folder of the C core.
func isCoreStub(name string) bool {
	return name == "rdma/include/farlog/headers.go" || (path.Base(name) == "core.go" && strings.HasPrefix(name, coreFolder))
}

// libraryRoom is a library of its own, which no Go program calls.
const libraryRoom = "history"

// coreImports gives the packages whose headers a room of the C core may include.
func coreImports(t *testing.T, room string) []string {
	t.Helper()
	imports := []string{"C", module + "rdma/include/farlog"}
	for one := range below(t, room) {
		if one != room {
			imports = append(imports, module+coreFolder+one)
		}
	}
	return imports
}

// Go compiles a room again when one of the headers changes that its package, or one that it imports, embeds. So each embeds
// its headers, and imports all rooms whose headers it may include; pkg/farlog imports every room.
func TestImports_RoomsOfTheCoreAreSeenByTheBuildCache(t *testing.T) {
	stubs := make(map[string]file)
	all := []string{module + "rdma/include/farlog"}
	for _, f := range tracked(t, ".go") {
		if strings.HasPrefix(f.path, "rdma/") || f.path == "pkg/farlog/core.go" {
			stubs[f.path] = f
		}
	}
	embeds := make(map[string]bool)
	for _, f := range tracked(t, ".h") {
		if room, isCore := roomOfCore(f.path); isCore {
			embeds[room] = true
		}
	}
	check := func(name string, isEmbedding bool, want []string) {
		f, isThere := stubs[name]
		delete(stubs, name)
		if !isThere {
			t.Errorf("%s is missing: copy that of another room, and import %v", name, want)
			return
		}
		if isEmbedding {
			want = append(want, "embed")
		}
		if strings.Contains(string(f.content), "\n//go:embed *.h\n") != isEmbedding {
			t.Errorf("%s: expected //go:embed *.h when there are headers, and only then", name)
		}
		imports := slices.Sorted(slices.Values(importsOf(t, f)))
		if want = slices.Sorted(slices.Values(want)); !slices.Equal(imports, want) {
			t.Errorf("%s imports %v; by coreArrows expected %v", name, imports, want)
		}
	}
	for room := range coreArrows {
		if room == libraryRoom {
			continue
		}
		all = append(all, module+coreFolder+room)
		check(coreFolder+room+"/core.go", embeds[room], coreImports(t, room))
	}
	check("rdma/include/farlog/headers.go", true, nil)
	check("pkg/farlog/core.go", false, all)
	for name := range stubs {
		t.Errorf("%s: expected no other Go below rdma", name)
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

var (
	fenced    = regexp.MustCompile("(?s)```\\n(.*?)```")
	arrowLine = regexp.MustCompile(`^([\w, ]+?) +→ (.*)$`)
)

// drawnArrows reads the first table behind a heading of docs/architecture.md: lines of "room, room → room, room", – for none.
func drawnArrows(t *testing.T, behind string) map[string][]string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root(t), "docs", "architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, isThere := strings.Cut(string(content), behind)
	block := fenced.FindStringSubmatch(rest)
	if !isThere || block == nil {
		t.Fatalf("docs/architecture.md: expected a table in ``` behind %q", behind)
	}
	drawn := make(map[string][]string)
	for _, line := range strings.Split(strings.TrimSpace(block[1]), "\n") {
		match := arrowLine.FindStringSubmatch(line)
		if match == nil {
			t.Fatalf("docs/architecture.md: %q: expected \"room → room, room\"", line)
		}
		to := []string{}
		if match[2] != "–" {
			to = strings.Split(match[2], ", ")
		}
		slices.Sort(to)
		for _, room := range strings.Split(match[1], ", ") {
			drawn[room] = to
		}
	}
	return drawn
}

func TestImports_TheDrawingIsTheTable(t *testing.T) {
	for behind, table := range map[string]map[string][]string{"\n## Imports\n": arrows, "\n## Includes\n": coreArrows} {
		drawn := drawnArrows(t, behind)
		for room, to := range table {
			to = slices.Sorted(slices.Values(to))
			if was, isDrawn := drawn[room]; !isDrawn || !slices.Equal(was, to) {
				t.Errorf("docs/architecture.md,%s: %s → %v; pkg/internal/tidy has %v: make them the same", behind, room, was, to)
			}
		}
		for room := range drawn {
			if table[room] == nil {
				t.Errorf("docs/architecture.md,%s: draws %s, which pkg/internal/tidy does not have: make them the same", behind, room)
			}
		}
	}
}
