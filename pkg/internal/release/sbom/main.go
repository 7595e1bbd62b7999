// Command sbom prints what Go programs were linked from, as their files say it: a document of SPDX 2.3. The same
// programs give the same bytes; the time in it is SOURCE_DATE_EPOCH.
package main

import (
	"cmp"
	"debug/buildinfo"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	repository = "https://github.com/farlog/farlog"
	unknown    = "NOASSERTION"
)

// document is https://spdx.github.io/spdx-spec/v2.3/, with the fields that have something to say.
type document struct {
	Version       string         `json:"spdxVersion"`
	License       string         `json:"dataLicense"`
	ID            string         `json:"SPDXID"`
	Name          string         `json:"name"`
	Namespace     string         `json:"documentNamespace"`
	Creation      creation       `json:"creationInfo"`
	Packages      []spdxPackage  `json:"packages"`
	Relationships []relationship `json:"relationships"`
}

type creation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type spdxPackage struct {
	ID        string      `json:"SPDXID"`
	Name      string      `json:"name"`
	Version   string      `json:"versionInfo"`
	Supplier  string      `json:"supplier"`
	Location  string      `json:"downloadLocation"`
	Analyzed  bool        `json:"filesAnalyzed"`
	License   string      `json:"licenseDeclared"`
	Concluded string      `json:"licenseConcluded"`
	Copyright string      `json:"copyrightText"`
	Comment   string      `json:"comment,omitempty"`
	Refs      []reference `json:"externalRefs,omitempty"`
}

type reference struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type relationship struct {
	From string `json:"spdxElementId"`
	Kind string `json:"relationshipType"`
	To   string `json:"relatedSpdxElement"`
}

func main() {
	version := flag.String("version", "", "`version` of farlog")
	flag.Parse()
	if err := run(*version, flag.Args()); err != nil {
		fmt.Fprintf(os.Stderr, "sbom: %s\n", err)
		os.Exit(1)
	}
}

func run(version string, files []string) error {
	epoch, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil || version == "" || len(files) == 0 {
		return fmt.Errorf("expected -version VERSION PROGRAM..., and SOURCE_DATE_EPOCH in the environment")
	}
	d := begin(version, time.Unix(epoch, 0))
	for _, file := range files {
		info, err := buildinfo.ReadFile(file)
		if err != nil {
			return fmt.Errorf("%s: %w: expected a program of Go", file, err)
		}
		d.addProgram(filepath.Base(file), version, info)
	}
	slices.SortFunc(d.Packages, func(a, b spdxPackage) int { return cmp.Compare(a.ID, b.ID) })
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetIndent("", "  ")
	return encoder.Encode(d)
}

func begin(version string, created time.Time) *document {
	return &document{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: "farlog-" + version,
		Namespace: repository + "/spdx/" + version,
		Creation: creation{
			Created:  created.UTC().Format(time.RFC3339),
			Creators: []string{"Tool: farlog-sbom", "Organization: farlog"},
		},
	}
}

// addProgram adds a program, and the modules in it that are not there yet.
func (d *document) addProgram(name, version string, info *buildinfo.BuildInfo) {
	program := spdxPackage{
		ID: idOf("program", name, ""), Name: name, Version: version, Supplier: "Organization: farlog",
		Location: "git+" + repository, License: "Apache-2.0", Concluded: unknown, Copyright: unknown,
		Comment: "linked by " + info.GoVersion + ", with the C core of the same commit",
	}
	d.Packages = append(d.Packages, program)
	d.relate(d.ID, "DESCRIBES", program.ID)
	modules := []spdxPackage{modulePackage("stdlib", info.GoVersion, "")}
	for _, module := range info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		modules = append(modules, modulePackage(module.Path, module.Version, module.Sum))
	}
	for _, module := range modules {
		if !slices.ContainsFunc(d.Packages, func(one spdxPackage) bool { return one.ID == module.ID }) {
			d.Packages = append(d.Packages, module)
		}
		d.relate(program.ID, "CONTAINS", module.ID)
	}
}

func modulePackage(path, version, sum string) spdxPackage {
	locator := "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")
	module := spdxPackage{
		ID: idOf("module", path, version), Name: path, Version: version, Supplier: unknown, Location: unknown,
		License: unknown, Concluded: unknown, Copyright: unknown,
		Refs: []reference{{"PACKAGE-MANAGER", "purl", locator}},
	}
	if sum != "" {
		module.Comment = "sum of the module: " + sum
	}
	return module
}

func (d *document) relate(from, kind, to string) {
	d.Relationships = append(d.Relationships, relationship{from, kind, to})
}

var notInID = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

func idOf(kind, name, version string) string {
	return strings.TrimSuffix("SPDXRef-"+notInID.ReplaceAllString(kind+"-"+name+"-"+version, "-"), "-")
}
