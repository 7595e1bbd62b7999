package state

import (
	"testing"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// A stream's wear is that of the most worn device of all targets that have a ring of it, and of no other target; of
// targets that tell nothing there is none.
func TestStatus_WearOfTheMostWornDevice(t *testing.T) {
	device := func(name string, used float64) *api.MediaHealth {
		return &api.MediaHealth{Device: name, UsedRatio: used}
	}
	v := &View{Targets: map[string]*api.TargetState{
		"one":   {Media: []*api.MediaHealth{device("a", 0), device("b", 0.2)}},
		"two":   {Media: []*api.MediaHealth{device("c", 0.5), device("d", 0.1)}},
		"other": {Media: []*api.MediaHealth{device("e", 2)}}, "silent": {},
	}}
	for _, c := range []struct {
		targets      []string
		worn, target string
	}{
		{[]string{"one", "two"}, "c", "two"},
		{[]string{"silent", "one"}, "b", "one"},
		{[]string{"silent"}, "", ""},
		{[]string{"gone"}, "", ""},
	} {
		status := new(api.StreamStatus)
		for _, target := range c.targets {
			status.RingSpecs = append(status.RingSpecs, &api.RingSpec{Target: target})
		}
		if v.addWear(status); status.Worn.GetDevice() != c.worn || status.WornTarget != c.target {
			t.Errorf("%v: %v of %q", c.targets, status.Worn, status.WornTarget)
		}
	}
}
