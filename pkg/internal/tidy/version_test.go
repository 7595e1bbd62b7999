package tidy

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var headerVersion = regexp.MustCompile(`#define FARLOG_VERSION "([^"]+)"`)

// versionPlaces say the version once more, each in its build system's way. Every pom.xml says it for itself or for its
// parent.
var versionPlaces = map[string]*regexp.Regexp{
	"rdma/meson.build": regexp.MustCompile(`version: '([^']+)',\n\s*license`),
	"pom.xml":          regexp.MustCompile(`<artifactId>farlog-parent</artifactId>\s*<version>([^<]+)</version>`),

	"java/farlog-bom/pom.xml": regexp.MustCompile(`<artifactId>farlog-bom</artifactId>\s*<version>([^<]+)</version>`),

	"deploy/helm/farlog/Chart.yaml": regexp.MustCompile(`\nversion: (\S+)\n`),
}

func TestVersion_IsTheHeadersEverywhere(t *testing.T) {
	header, err := os.ReadFile(filepath.Join(root(t), "rdma", "include", "farlog", "farlog.h"))
	if err != nil {
		t.Fatal(err)
	}
	want := headerVersion.FindStringSubmatch(string(header))
	if want == nil {
		t.Fatal("farlog.h has no FARLOG_VERSION")
	}
	seen := 0
	for _, f := range tracked(t) {
		place := versionPlaces[f.path]
		if path.Base(f.path) == "pom.xml" && strings.Contains(string(f.content), "farlog-parent") {
			place = versionPlaces["pom.xml"]
		}
		if place == nil {
			continue
		}
		seen++
		found := place.FindStringSubmatch(string(f.content))
		if found == nil || found[1] != want[1] {
			t.Errorf("%s: version is %q, farlog.h says %q: set it there too", f.path, found, want[1])
		}
	}
	if seen < 2 {
		t.Errorf("looked at %d places, expected rdma/meson.build and java/pom.xml at least", seen)
	}
}
