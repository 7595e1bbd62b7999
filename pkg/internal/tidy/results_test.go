package tidy

import (
	"path"
	"regexp"
	"strings"
	"testing"
)

const mustCheck = "FARLOG_MUST_CHECK"

// unchecked holds the functions of the C core whose result may be left alone, and why.
var unchecked = map[string]string{
	"error_set":           "it returns its own argument: whoever writes a text for later has the result already",
	"gather_move":         "it says where a piece ends, and always moves it",
	"farlog_writer_close": "a program that ends has nothing to do with the result; the handle is gone either way",
	"farlog_shared_close": "as farlog_writer_close",
	"farlog_route_close":  "as farlog_writer_close",
}

// cFunction is a function or a member of pointer type as C code declares it, from its first word to the ";" or "{".
type cFunction struct {
	name, returns string
	isStatic      bool
	isChecked     bool
	line          int
}

var (
	cComment = regexp.MustCompile(`(?s)/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'`)
	cFunHead = regexp.MustCompile(`(?m)^((?:(?:FARLOG_API|` + mustCheck +
		`|static|inline|const|struct|enum|unsigned) )*)(\w+ \**)(\w+)\(`)
	cMember   = regexp.MustCompile(`(?m)^(?:extern |\t+)int \(\*(\w+)\)\(`)
	cDiscard  = regexp.MustCompile(`(?:[;{})]|\S:|\belse)\s*\n\s+(?:\(void\)\s*)?(\w+)\(`)
	cNewLines = regexp.MustCompile(`[^\n]`)
)

// withoutComments blanks comments and texts; every line and every offset stays.
func withoutComments(content []byte) string {
	return cComment.ReplaceAllStringFunc(string(content),
		func(s string) string { return cNewLines.ReplaceAllString(s, " ") })
}

// behindCall gives the offset behind the parenthesis that closes the one which ends before `at`.
func behindCall(code string, at int) int {
	for depth := 1; at < len(code) && depth > 0; at++ {
		switch code[at] {
		case '(':
			depth++
		case ')':
			depth--
		}
	}
	return at
}

func lineOf(code string, at int) int { return 1 + strings.Count(code[:at], "\n") }

// cDeclarations gives what a file declares or defines at its margin, and its members that are pointers to functions
// which return int.
func cDeclarations(code string) []cFunction {
	var all []cFunction
	add := func(start, at int, f cFunction) {
		end := behindCall(code, at)
		if next := strings.IndexAny(code[end:], ";{"); next >= 0 {
			end += next
		}
		f.isChecked, f.line = strings.Contains(code[start:end], mustCheck), lineOf(code, start)
		all = append(all, f)
	}
	for _, m := range cFunHead.FindAllStringSubmatchIndex(code, -1) {
		words := code[m[2]:m[3]]
		returns := strings.TrimSpace(code[m[4]:m[5]])
		if strings.Contains(words, "const ") {
			returns = "const " + returns
		}
		add(m[0], m[1], cFunction{
			name: code[m[6]:m[7]], returns: returns,
			isStatic: strings.Contains(words, "static "),
		})
	}
	for _, m := range cMember.FindAllStringSubmatchIndex(code, -1) {
		add(m[0], m[1], cFunction{name: code[m[2]:m[3]], returns: "int"})
	}
	return all
}

// canFail reports whether what a function returns tells of a failure: a result, or a handle that may be NULL.
func (f cFunction) canFail() bool {
	if unchecked[f.name] != "" {
		return false
	}
	return f.returns == "int" || strings.HasSuffix(f.returns, "*") && !strings.HasPrefix(f.returns, "const ")
}

func isCore(f file) bool {
	return path.Dir(path.Dir(f.path)) == "rdma/src" || path.Dir(f.path) == "rdma/include/farlog"
}

// The compiler sees each result that is left alone, where the header says so. Inline functions that return a handle
// only convert one that is there.
func TestResults_HeadersSayThatTheyMustBeChecked(t *testing.T) {
	seen := make(map[string]bool)
	for _, f := range tracked(t, ".h") {
		if !isCore(f) {
			continue
		}
		for _, function := range cDeclarations(withoutComments(f.content)) {
			seen[function.name] = true
			if function.canFail() && !function.isChecked && !(function.isStatic && function.returns != "int") {
				t.Errorf(
					"%s:%d: %s returns %s without %s: add it, and look at each caller that the compiler then names",
					f.path,
					function.line,
					function.name,
					function.returns,
					mustCheck,
				)
			}
		}
	}
	for name := range unchecked {
		if !seen[name] {
			t.Errorf("%s is in the table of functions that need not be checked, but no header declares it: remove "+
				"its line", name)
		}
	}
}

// Functions of one file carry no attribute; what they return must not be left alone either.
func TestResults_OfOneFileAreNotDiscarded(t *testing.T) {
	for _, f := range tracked(t, ".c", ".h") {
		if !isCore(f) {
			continue
		}
		code := withoutComments(f.content)
		own := make(map[string]bool)
		for _, function := range cDeclarations(code) {
			own[function.name] = function.isStatic && function.canFail()
		}
		for _, m := range cDiscard.FindAllStringSubmatchIndex(code, -1) {
			name := code[m[2]:m[3]]
			if own[name] && strings.HasPrefix(code[behindCall(code, m[1]):], ";") {
				t.Errorf("%s:%d: the result of %s is left alone: check it, or write may_fail(%s(...)) with the "+
					"reason why nothing depends on it",
					f.path, lineOf(code, m[2]), name, name)
			}
		}
	}
}
