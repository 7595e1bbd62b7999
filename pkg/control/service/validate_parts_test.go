package service

import (
	"slices"
	"strings"
	"testing"

	api "github.com/farlog/farlog/pkg/api/v1"
)

func TestCheckRequest_ReportsOfNoAgent(t *testing.T) {
	rings := func(count int) []*api.RingState { return slices.Repeat([]*api.RingState{{Stream: "a"}}, count) }
	ofBase := func(base *api.StoreBase) *api.ReportDrainRequest {
		return &api.ReportDrainRequest{State: &api.DrainState{
			Progress: []*api.DrainProgress{{Stream: "a", Base: base}},
		}}
	}
	for _, test := range []struct {
		name    string
		request any
		want    string
	}{
		{"none", &api.ReportTargetRequest{State: &api.TargetState{}}, ""},
		{"most", &api.ReportTargetRequest{State: &api.TargetState{Rings: rings(reportPartsMax)}}, ""},
		{
			"too many", &api.ReportTargetRequest{State: &api.TargetState{Rings: rings(reportPartsMax + 1)}},
			"rings 65537: expected at most 65536",
		},
		{
			"no name", &api.ReportTargetRequest{State: &api.TargetState{Rings: append(rings(1), &api.RingState{})}},
			`stream "": expected a stream's name`,
		},
		{
			"of a drain", &api.ReportDrainRequest{State: &api.DrainState{Progress: []*api.DrainProgress{{}}}},
			`stream "": expected a stream's name`,
		},
		{
			"many devices", &api.ReportTargetRequest{State: &api.TargetState{
				Media: slices.Repeat([]*api.MediaHealth{{}}, hostPartsMax+1),
			}}, "media 4097: expected at most 4096",
		},
		{
			"many namespaces", &api.ReportTargetRequest{State: &api.TargetState{
				Namespaces: slices.Repeat([]*api.NamespaceState{{}}, hostPartsMax+1),
			}}, "namespaces 4097: expected at most 4096",
		},
		{"a base", ofBase(baseAt(3)), ""},
		{"a base without a SHA-256", ofBase(&api.StoreBase{}), "sha256 0 bytes: expected the 32 bytes of a SHA-256"},
		{
			"a long SHA-256", ofBase(&api.StoreBase{Sha256: make([]byte, 1<<20)}), "expected the 32 bytes of a SHA-256",
		},
	} {
		err := checkRequest(test.request)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, expected %q", test.name, err, test.want)
		}
	}
}
