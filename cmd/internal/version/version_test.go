package version

import (
	"runtime/debug"
	"testing"
)

func TestOf_PrefersTheBuild(t *testing.T) {
	module := func(version string) *debug.BuildInfo { return &debug.BuildInfo{Main: debug.Module{Version: version}} }
	for _, tc := range []struct {
		linked string
		info   *debug.BuildInfo
		want   string
	}{
		{"0.2.0", module("v0.1.9"), "0.2.0"},
		{"", module("v0.2.0"), "0.2.0"},
		{"", module("(devel)"), "unknown"},
		{"", module(""), "unknown"},
		{"", nil, "unknown"},
	} {
		if got := of(tc.linked, tc.info); got != tc.want {
			t.Errorf("linked %q, module %+v: got %q, want %q", tc.linked, tc.info, got, tc.want)
		}
	}
}
