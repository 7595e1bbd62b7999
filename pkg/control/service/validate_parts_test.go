package service

import (
	"slices"
	"strings"
	"testing"

	api "github.com/farlog/farlog/pkg/api/v1"
)

func TestCheckRequest_ReportsOfNoAgent(t *testing.T) {
	rings := func(count int) []*api.RingState { return slices.Repeat([]*api.RingState{{Stream: "a"}}, count) }
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
	} {
		err := checkRequest(test.request)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, expected %q", test.name, err, test.want)
		}
	}
}
