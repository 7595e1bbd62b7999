package main

import (
	"debug/buildinfo"
	"os"
	"regexp"
	"runtime/debug"
	"slices"
	"testing"
	"time"
)

// The test's own program is one of Go: all of its modules have to be in the document, once, and what is related is
// there.
func TestDocument_HasEveryModuleOfItsPrograms(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	info, err := buildinfo.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	info.Deps = append(info.Deps, &debug.Module{Path: "example.com/one", Version: "v1.2.3+x", Sum: "h1:abc="})
	d := begin("0.2.0", time.Unix(1, 0))
	d.addProgram("farlog", "0.2.0", info)
	d.addProgram("farlogd", "0.2.0", info)
	ids := map[string]int{d.ID: 1}
	for _, one := range d.Packages {
		ids[one.ID]++
		if ids[one.ID] > 1 || !regexp.MustCompile(`^SPDXRef-[A-Za-z0-9.-]+$`).MatchString(one.ID) {
			t.Errorf("id %q: expected each once, of letters, digits, points and dashes", one.ID)
		}
	}
	if want := len(info.Deps) + 1 + 2; len(d.Packages) != want {
		t.Errorf("%d packages, expected %d", len(d.Packages), want)
	}
	for _, one := range d.Relationships {
		if ids[one.From] == 0 || ids[one.To] == 0 {
			t.Errorf("%+v: expected ids of the document", one)
		}
	}
	at := slices.IndexFunc(d.Packages, func(one spdxPackage) bool { return one.Name == "example.com/one" })
	if at < 0 || d.Packages[at].Refs[0].Locator != "pkg:golang/example.com/one@v1.2.3%2Bx" ||
		d.Packages[at].Comment != "sum of the module: h1:abc=" {
		t.Errorf("module of the test: %d, %+v", at, d.Packages)
	}
	contained := relationship{"SPDXRef-program-farlogd", "CONTAINS", d.Packages[at].ID}
	if !slices.Contains(d.Relationships, contained) {
		t.Error("the second program does not contain a module that the first one has too")
	}
}
