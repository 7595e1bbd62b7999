package state

import (
	"strings"
	"testing"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// A stream warns of a clock that jumped on the host of its writer, of one of its targets or of its drain, and of no
// other; what is worse is shown before it.
func TestStatus_WarnsOfAClockThatJumped(t *testing.T) {
	const jump = "the clock jumped by -1h0m0s to 2026-11-28T11:00:00Z"
	agent := &api.Agent{ClockJump: jump}
	for name, c := range map[string]struct {
		view *View
		want string
	}{
		"nobody": {&View{}, ""},
		"writer": {&View{Hosts: map[string]*api.HostState{"trading1": {ClockJump: jump}}}, "host trading1 of"},
		"target": {&View{Targets: map[string]*api.TargetState{"t2": {Agent: agent}}}, "target t2"},
		"drain":  {&View{Drains: map[string]*api.DrainState{"d1": {Agent: agent}}}, "drain d1"},
		"others": {&View{
			Hosts:   map[string]*api.HostState{"trading2": {ClockJump: jump}},
			Targets: map[string]*api.TargetState{"t3": {Agent: agent}},
			Drains:  map[string]*api.DrainState{"d2": {Agent: agent}},
		}, ""},
	} {
		status := &api.StreamStatus{
			Condition:  api.Condition_CONDITION_OK,
			LastGrant:  &api.Grant{Holder: &api.Holder{Host: "trading1"}},
			RingSpecs:  []*api.RingSpec{{Target: "t1"}, {Target: "t2"}},
			Assignment: &api.Assignment{Drain: "d1"},
		}
		c.view.warnOfClocks(status)
		if isWarned := status.Condition == api.Condition_CONDITION_WARN; isWarned != (c.want != "") ||
			isWarned && !(strings.HasPrefix(status.Reason, c.want) && strings.Contains(status.Reason, ": "+jump+": ")) {
			t.Errorf("%s: %s %q, expected %q", name, status.Condition, status.Reason, c.want)
		}
		status.Condition, status.Reason = api.Condition_CONDITION_ERROR, "worse"
		if c.view.warnOfClocks(status); status.Condition != api.Condition_CONDITION_ERROR || status.Reason != "worse" {
			t.Errorf("%s: %s %q hides what is worse", name, status.Condition, status.Reason)
		}
	}
}
