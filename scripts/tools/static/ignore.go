package main

import (
	"regexp"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
)

// A directive waves findings of one rule through, on its own line and on the next one. It is written as staticcheck
// has it: "//lint:ignore G404 the seed of a test, not a key". The rule is one of staticcheck (SA1019) or of gosec
// (G404), or errcheck.
type directive struct {
	rule   string
	isUsed bool
	pos    analysis.Range
}

var (
	directivePattern = regexp.MustCompile(`^//lint:ignore (SA\d{4}|G\d{3}|errcheck) \S`)
	otherPattern     = regexp.MustCompile(`^//\s*(lint:|nolint)|#nosec`)
)

// place is a line of a file.
type place struct {
	file string
	line int
}

// directivesAnalyzer finds directives that nobody can read, and those of the tools that need no reason.
var directivesAnalyzer = &analysis.Analyzer{
	Name: "directives",
	Doc:  "find comments that ignore findings without a rule or a reason",
	Run: func(pass *analysis.Pass) (any, error) {
		for _, file := range pass.Files {
			for _, group := range file.Comments {
				for _, comment := range group.List {
					if otherPattern.MatchString(comment.Text) && !directivePattern.MatchString(comment.Text) {
						pass.ReportRangef(comment, `directives: %s: expected "//lint:ignore RULE REASON"`, comment.Text)
					}
				}
			}
		}
		return nil, nil
	},
}

// ignorable is an analyzer whose findings directives wave through. A directive that waves nothing through is a finding.
// isLeftOut is asked first.
func ignorable(a *analysis.Analyzer, isLeftOut func(*analysis.Pass) func(analysis.Diagnostic) bool) *analysis.Analyzer {
	wrapped := *a
	wrapped.Run = func(pass *analysis.Pass) (any, error) {
		known := directivesOf(a, pass)
		isLeftOut := isLeftOut(pass)
		inside := *pass
		inside.Report = func(d analysis.Diagnostic) {
			rule, at := ruleOf(a, d), pass.Fset.Position(d.Pos)
			if isLeftOut(d) {
				return
			}
			near := slices.Concat(known[place{at.Filename, at.Line}], known[place{at.Filename, at.Line - 1}])
			for _, one := range near {
				if one.rule == rule {
					one.isUsed = true
					return
				}
			}
			d.Message = rule + ": " + strings.TrimPrefix(d.Message, rule+": ")
			pass.Report(d)
		}
		result, err := a.Run(&inside)
		for _, list := range known {
			for _, one := range list {
				if !one.isUsed {
					pass.ReportRangef(one.pos, "%s finds nothing here: remove the directive", one.rule)
				}
			}
		}
		return result, err
	}
	return &wrapped
}

// directivesOf are those of an analyzer's rules.
func directivesOf(a *analysis.Analyzer, pass *analysis.Pass) map[place][]*directive {
	found := map[place][]*directive{}
	for _, file := range pass.Files {
		for _, group := range file.Comments {
			for _, comment := range group.List {
				match := directivePattern.FindStringSubmatch(comment.Text)
				if match == nil || match[1] != a.Name && !(a.Name == "gosec" && match[1][0] == 'G') {
					continue
				}
				at := pass.Fset.Position(comment.Pos())
				key := place{at.Filename, at.Line}
				found[key] = append(found[key], &directive{rule: match[1], pos: comment})
			}
		}
	}
	return found
}

// ruleOf is the rule of a finding: gosec has many in one analyzer.
func ruleOf(a *analysis.Analyzer, d analysis.Diagnostic) string {
	if a.Name == "gosec" {
		return d.Category
	}
	return a.Name
}
