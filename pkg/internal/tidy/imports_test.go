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
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/farlog/farlog/"

// arrows says which rooms a room may import. Rooms are the folders of pkg. docs/architecture.md has both tables,
// written from here by `go test ./pkg/internal/tidy -run TestImports_AreDocumented -update`.
var arrows = map[string][]string{
	"api":      {"retry"},
	"config":   {"safefile"},
	"doctor":   {},
	"filelock": {},
	"identity": {"replace", "safefile"},
	"loglimit": {},
	"markdown": {},
	"metrics":  {},
	"replace":  {},
	"retry":    {},
	"safefile": {},
	"plan":     {"api", "control"},
	"nvmehost": {"nvmet", "retry"},
	"nvmet":    {"replace", "safefile"},
	"record":   {},
	"farlog":   {"record"},
	"store":    {"filelock", "record"},
	"signing":  {"store"},
	"drain":    {"api", "farlog", "loglimit", "record", "retry", "store"},
	"audit":    {"record", "store"},
	"merge":    {"record", "store"},
	"consume":  {"farlog", "record", "replace", "store"},
	"replica":  {"record", "retry", "store"},
	"query": {
		"audit",
		"control",
		"record",
		"store",
	}, // control: for its patterns; audit: FIX in expressions
	"retention": {"control", "merge", "replace", "store"},                   // control: for its patterns
	"archive":   {"control", "retention", "retry", "store"},                 // control: for its patterns
	"export":    {"audit", "config", "control", "query", "record", "store"}, // control: for its patterns
	"target":    {"api", "farlog", "filelock", "identity", "nvmet", "record", "replace"},
	"control":   {"api", "config", "filelock", "identity", "loglimit", "safefile"}, // config: for its file of rules
	"hostagent": {"control", "loglimit"},
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
		"access", "auditlog", "check", "deletion", "etcd", "fabric", "grant", "leader", "pattern", "reconcile",
		"refusal",
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
			t.Errorf("%s imports %s/%s, but %s/%s may import only %v: pass the value in, or move the code to where "+
				"it belongs",
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
		if path.Dir(f.path) == "pkg/farlog" || isCoreStub(f.path) || f.isGenerated() || f.isTestdata() {
			continue
		}
		for _, name := range importsOf(t, f) {
			if name == "C" || name == "unsafe" {
				t.Errorf("%s imports %q: only pkg/farlog may; add what you need to its Go surface", f.path, name)
			}
			if strings.HasPrefix(name, module+"rdma/") && path.Dir(f.path) != "pkg/farlog" {
				t.Errorf("%s imports %q: the C core is pkg/farlog's; import that", f.path, name)
			}
		}
	}
}

// isCoreStub tells of the files that make a Go package of a folder of the C core.
func isCoreStub(name string) bool {
	return name == "rdma/include/farlog/headers.go" || name == adversaryStub ||
		(path.Base(name) == "core.go" && strings.HasPrefix(name, coreFolder))
}

// adversaryStub makes a Go package of the test equipment in C; it stands on rooms as open/kinds.c does.
const adversaryStub = "rdma/test/adversary/core.go"

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

// Go compiles a room again when one of the headers changes that its package, or one that it imports, embeds. So each
// embeds its headers, and imports all rooms whose headers it may include; pkg/farlog imports every room.
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
	check(adversaryStub, true, []string{
		"C", module + "rdma/include/farlog", module + "rdma/src/base",
		module + "rdma/src/blocks",
		module + "rdma/src/mem", module + "rdma/src/region", module + "rdma/src/ring",
		module + "rdma/src/target",
	})
	for name := range stubs {
		t.Errorf("%s: expected no other Go below rdma", name)
	}
}

var update = flag.Bool("update", false, "write the tables of docs/architecture.md")

// importTable is a table as docs/architecture.md shows it: what imports nothing first, and nothing before what it
// imports.
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

var (
	fenced    = regexp.MustCompile("(?s)```\\n(.*?)```")
	arrowLine = regexp.MustCompile(`^([\w, ]+?) +→ (.*)$`)
)

// drawnArrows reads the first table behind a heading of docs/architecture.md: lines of "room, room → room, room", – for
// none.
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
				t.Errorf("docs/architecture.md,%s: %s → %v; pkg/internal/tidy has %v: make them the same", behind, room,
					was, to)
			}
		}
		for room := range drawn {
			if table[room] == nil {
				t.Errorf("docs/architecture.md,%s: draws %s, which pkg/internal/tidy does not have: make them the same",
					behind, room)
			}
		}
	}
}
