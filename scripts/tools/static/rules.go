package main

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
)

// leftOut are rules that are left out as a whole, each with the reason.
type leftOut []struct{ rule, reason string }

// Checks that need facts of each package that farlog imports: all of these would be analyzed, not farlog alone.
var staticcheckLeftOut = leftOut{
	{"SA4017", "results of pure functions: of imports, what is pure"},
	{"SA4018", "assignments to themselves: of imports, what is pure"},
	{"SA4023", "interfaces that are never nil: of imports, what returns nil"},
	{"SA5012", "arguments in pairs: of imports, what takes pairs"},
}

var gosecLeftOut = leftOut{
	{"G103", "unsafe: pkg/internal/tidy keeps it to pkg/farlog"},
	{"G104", "errors: errcheck finds them"},
	{"G115", "conversions: it takes each length that was checked before for unchecked"},
	{"G204", "programs started: by paths of operators and of tests; no shell is started"},
	{"G304", "files opened: by paths of operators; who can change these is checked by pkg/safefile"},
	{"G307", "os.Create: its mode is what the umask leaves"},
	{"G701", "SQL: there is none"},
	{"G702", "as G204"},
	{"G703", "as G304"},
	{"G704", "addresses connected to: by settings of operators"},
	{"G705", "HTML: there is none"},
	{"G706", "log lines: slog quotes values"},
	{"G707", "SMTP: there is none"},
	{"G708", "templates: there are none"},
	{"G709", "pickles and the like: there are none"},
	{"G710", "redirects: there are none"},
}

// Functions whose errors nobody needs to look at, beside errcheck's own.
var errcheckLeftOut = leftOut{
	{
		"fmt.Fprint",
		"what programs print: cmd/internal/output has the error in the end; a network's is in its next call",
	},
	{"fmt.Fprintf", "as fmt.Fprint"},
	{"fmt.Fprintln", "as fmt.Fprint"},
}

// nothing is left out.
func nothing(*analysis.Pass) func(analysis.Diagnostic) bool {
	return func(analysis.Diagnostic) bool { return false }
}

// tests are left out for gosec, and what tests and demonstrations are made of: they draw at random from a seed, have
// keys of their own and leave files for whoever looks.
func tests(pass *analysis.Pass) func(analysis.Diagnostic) bool {
	isShipped := !strings.Contains(pass.Pkg.Path()+"/", "/pkg/internal/") &&
		!slices.ContainsFunc(
			[]string{"/demo/", "/testbed/", "/examples/", "/storetest/", "/etcdtest/"},
			func(part string) bool {
				return strings.Contains(pass.Pkg.Path()+"/", part)
			},
		)
	return func(d analysis.Diagnostic) bool {
		return !isShipped || strings.HasSuffix(pass.Fset.Position(d.Pos).Filename, "_test.go")
	}
}

var closers = []string{"Close", "close", "Munmap"}

// testsAndClosing are left out for errcheck: a test fails by what it compares; what was written is synced, or closed
// with a look at the error, before a deferred Close, which then only gives the descriptor or memory back.
func testsAndClosing(pass *analysis.Pass) func(analysis.Diagnostic) bool {
	closing := map[token.Pos]bool{} // by their opening parentheses, where errcheck is
	for _, file := range pass.Files {
		ast.Inspect(file, func(node ast.Node) bool {
			deferred, isDefer := node.(*ast.DeferStmt)
			if !isDefer {
				return true
			}
			called, isMethod := deferred.Call.Fun.(*ast.SelectorExpr)
			if isMethod && slices.Contains(closers, called.Sel.Name) {
				closing[deferred.Call.Lparen] = true
			}
			return true
		})
	}
	isTest := tests(pass)
	return func(d analysis.Diagnostic) bool { return closing[d.Pos] || isTest(d) }
}

func (l leftOut) names() (names []string) {
	for _, one := range l {
		names = append(names, one.rule)
	}
	return names
}

func (l leftOut) has(name string) bool { return slices.Contains(l.names(), name) }
