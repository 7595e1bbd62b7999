// Command static is what scripts/static.sh gives go vet as its tool: what go vet finds by itself, staticcheck's SA
// checks, errcheck and gosec. What of these is left out is in rules.go; a finding that is no fault is waved through at
// its line: ignore.go. Go's build cache keeps what was found of a package until it changes.
package main

import (
	"encoding/json"
	"os"
	"slices"
	"strings"

	"github.com/kisielk/errcheck/errcheck"
	"github.com/securego/gosec/v2/goanalysis"
	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/ctrlflow"
	"golang.org/x/tools/go/analysis/suite/vet"
	"golang.org/x/tools/go/analysis/unitchecker"
	"honnef.co/go/tools/analysis/facts/deprecated"
	"honnef.co/go/tools/staticcheck"
)

func main() {
	if isForFacts(os.Args[len(os.Args)-1]) {
		unitchecker.Main(
			factsOf(slices.Concat(vet.Suite, []*analysis.Analyzer{ctrlflow.Analyzer, deprecated.Analyzer}))...)
	}
	if err := goanalysis.Analyzer.Flags.Set("exclude", strings.Join(gosecLeftOut.names(), ",")); err != nil {
		panic(err)
	}
	errcheck.DefaultExcludedSymbols = append(errcheck.DefaultExcludedSymbols, errcheckLeftOut.names()...)
	analyzers := []*analysis.Analyzer{
		directivesAnalyzer, ignorable(errcheck.Analyzer, testsAndClosing), ignorable(goanalysis.Analyzer, tests),
	}
	for _, check := range staticcheck.Analyzers {
		if !staticcheckLeftOut.has(check.Analyzer.Name) {
			analyzers = append(analyzers, ignorable(check.Analyzer, nothing))
		}
	}
	unitchecker.Main(slices.Concat(vet.Suite, analyzers)...)
}

// factsOf are the analyzers that find out something that others want to know of imports.
func factsOf(list []*analysis.Analyzer) []*analysis.Analyzer {
	return slices.DeleteFunc(list, func(a *analysis.Analyzer) bool { return len(a.FactTypes) == 0 })
}

// isForFacts reports whether go vet asks about a package that farlog imports only: all that is wanted of it is which of
// its functions never return or are deprecated. unitchecker itself would run whatever uses such facts.
func isForFacts(path string) bool {
	raw, err := os.ReadFile(path)
	var config struct{ VetxOnly bool }
	return err == nil && json.Unmarshal(raw, &config) == nil && config.VetxOnly
}
