// Package version gives the version of a program, which its build or its module states.
package version

import (
	"runtime/debug"
	"strings"
)

// linked is set by scripts/build.sh and scripts/release.sh: -ldflags "-X IMPORTPATH.linked=VERSION".
var linked string

// Of gives the version of this program without a "v": that of scripts/version.sh, else that of the module that go
// install has fetched, else "unknown".
func Of() string {
	info, _ := debug.ReadBuildInfo()
	return of(linked, info)
}

func of(linked string, info *debug.BuildInfo) string {
	switch {
	case linked != "":
		return linked
	case info == nil || info.Main.Version == "" || info.Main.Version == "(devel)":
		return "unknown"
	}
	return strings.TrimPrefix(info.Main.Version, "v")
}
