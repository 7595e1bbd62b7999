package tidy

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strings"
	"testing"
)

const (
	fileLinesMax     = 500
	functionLinesMax = 70
	columnsMax       = 120
	tabColumns       = 4
)

// span is one function: its first and last line.
type span struct {
	name        string
	first, last int
}

// finders say where the functions of a language begin and end. C, Java and shell go by layout, which their formatters
// keep.
var finders = map[string]func(*testing.T, file) []span{
	".go":   goFunctions,
	".c":    cFunctions,
	".h":    cFunctions,
	".hpp":  cFunctions,
	".java": javaFunctions,
	".sh":   shellFunctions,
}

func goFunctions(t *testing.T, f file) []span {
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, f.path, f.content, parser.SkipObjectResolution)
	if err != nil {
		t.Errorf("%s: %v", f.path, err)
		return nil
	}
	var spans []span
	for _, declared := range parsed.Decls {
		if function, ok := declared.(*ast.FuncDecl); ok && function.Body != nil {
			spans = append(spans, span{
				function.Name.Name, fset.Position(function.Pos()).Line,
				fset.Position(function.End()).Line,
			})
		}
	}
	return spans
}

// between collects spans that open with a line matching `opens` (its first group is the name) and close with a line
// matching `closes`.
func between(f file, opens, closes *regexp.Regexp) []span {
	var spans []span
	open := span{}
	for i, line := range f.lines() {
		switch match := opens.FindStringSubmatch(line); {
		case open.first == 0 && match != nil:
			open = span{name: match[1], first: i + 1}
		case open.first != 0 && closes.MatchString(line):
			open.last = i + 1
			spans = append(spans, open)
			open = span{}
		}
	}
	return spans
}

var (
	cSignature  = regexp.MustCompile(`([A-Za-z_]\w*)\s*\(`)
	javaOpens   = regexp.MustCompile(`^(?:\t| {2}| {4})[^\s*/@].*?(\w+)\(.*\{$`)
	javaCloses  = regexp.MustCompile(`^(?:\t| {2}| {4})\}`)
	shellOpens  = regexp.MustCompile(`^(?:function )?([A-Za-z_]\w*) ?\(\) ?\{`)
	shellCloses = regexp.MustCompile(`^\}`)
)

// cFunctions: a signature at the margin, "{" alone at the margin, "}" at the margin.
func cFunctions(_ *testing.T, f file) []span {
	var spans []span
	open := span{}
	signature, start := "", 0
	for i, line := range f.lines() {
		switch {
		case strings.HasPrefix(line, "{") && signature != "":
			open = span{name: signature, first: start}
		case strings.HasPrefix(line, "}") && open.first != 0:
			open.last = i + 1
			spans = append(spans, open)
			open, signature = span{}, ""
		case strings.HasPrefix(line, "}") || strings.HasSuffix(line, ";"):
			if open.first == 0 {
				signature = ""
			}
		case open.first == 0 && line != "" && !strings.ContainsAny(line[:1], " \t#/*{"):
			if match := cSignature.FindAllStringSubmatch(line, -1); match != nil {
				signature, start = match[len(match)-1][1], i+1
			}
		}
	}
	return spans
}

func javaFunctions(_ *testing.T, f file) []span  { return between(f, javaOpens, javaCloses) }
func shellFunctions(_ *testing.T, f file) []span { return between(f, shellOpens, shellCloses) }

func isHandWritten(f file) bool { return !f.isGenerated() && !f.isTestdata() }

func extensions() []string {
	var all []string
	for extension := range finders {
		all = append(all, extension)
	}
	return all
}

func TestLength_FilesAreOneNoun(t *testing.T) {
	for _, f := range tracked(t, extensions()...) {
		length := len(f.lines()) - 1
		if !isHandWritten(f) || length <= max(fileLinesMax, ratchet[f.path]) {
			continue
		}
		t.Errorf("%s has %d lines, the limit is %d: it holds two nouns; give each a file", f.path, length, fileLinesMax)
	}
}

func TestLength_FunctionsFitOnAScreen(t *testing.T) {
	for _, f := range tracked(t, extensions()...) {
		if !isHandWritten(f) {
			continue
		}
		for _, function := range finders[f.ext()](t, f) {
			length := function.last - function.first + 1
			if length > max(functionLinesMax, ratchet[f.path+":"+function.name]) {
				t.Errorf("%s:%d: %s has %d lines, the limit is %d: let the parent branch and leaves compute; make a "+
					"table of an initialiser",
					f.path, function.first, function.name, length, functionLinesMax)
			}
		}
	}
}

// columns is how wide a line is where tabs are tabColumns apart.
func columns(line string) int {
	width := 0
	for _, r := range line {
		if r == '\t' {
			width += tabColumns - width%tabColumns
		} else {
			width++
		}
	}
	return width
}

func TestLength_LinesFitTheScreen(t *testing.T) {
	for _, f := range tracked(t, append(extensions(), ".cpp", ".pml", ".proto", ".py", ".yml", ".yaml")...) {
		count := 0
		for i, line := range f.lines() {
			if width := columns(line); width > columnsMax && isHandWritten(f) {
				count++
				if count > ratchet[f.path+":columns"] {
					t.Errorf("%s:%d: %d columns, the limit is %d: scripts/format.sh breaks code; break comments and "+
						"texts by hand", f.path, i+1, width, columnsMax)
				}
			}
		}
	}
}

func TestLength_FindersSeeFunctions(t *testing.T) {
	sources := map[string]string{
		".go":   "package p\n\nfunc a() {\n}\n",
		".c":    "static int a(int x,\n\tint y)\n{\n\tif (x) {\n\t}\n}\n",
		".java": "class A {\n    void a() {\n    }\n}\n",
		".sh":   "a() {\n\ttrue\n}\n",
	}
	for extension, source := range sources {
		found := finders[extension](t, file{path: "x" + extension, content: []byte(source)})
		if len(found) != 1 || found[0].name != "a" {
			t.Errorf("%s: found %v, expected one function a", extension, found)
		}
	}
}
