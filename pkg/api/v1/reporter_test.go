package apiv1

import (
	"context"
	"errors"
	"slices"
	"testing"
)

// plane is what a control plane says to reports: an older one names none.
type plane struct {
	each     uint32
	named    uint64
	known    uint64 // what Unchanged has to name
	isOlder  bool   // knows nothing of Unchanged
	isGone   bool
	received []string
}

func (p *plane) send(_ context.Context, state *TargetState, unchanged *Unchanged) (ReportAnswer, error) {
	switch {
	case p.isGone:
		return (*ReportTargetResponse)(nil), errors.New("gone")
	case state != nil && unchanged == nil:
		p.received = append(p.received, "state")
		if p.isOlder {
			return new(ReportTargetResponse), nil
		}
		p.named++
		p.known = p.named
		return &ReportTargetResponse{FiguresEach: p.each, Report: p.named}, nil
	case p.isOlder:
		p.received = append(p.received, "refused")
		return (*ReportTargetResponse)(nil), errors.New("agent.id: expected a name")
	case unchanged.Report != p.known || unchanged.Agent.GetId() != "t1" || state != nil:
		p.received = append(p.received, "wanted")
		return &ReportTargetResponse{StateRequested: true}, nil
	}
	p.received = append(p.received, "unchanged")
	return new(ReportTargetResponse), nil
}

func stateOf(change func(*RingState)) *TargetState {
	ring := &RingState{Stream: "a", CapacityBytes: 100, AppendedLsn: 10, HeadLsn: 10, WriterHeld: true}
	change(ring)
	return &TargetState{Agent: &Agent{Id: "t1"}, Rings: []*RingState{ring}}
}

func same() *TargetState {
	return stateOf(func(ring *RingState) { ring.AppendedLsn, ring.LagBytes = 12, 2 })
}

var full = stateOf(func(ring *RingState) { ring.AppendedLsn, ring.LagBytes = 85, 75 })

// reports are states that a target reports in order, and what of each it sends.
var reports = []struct {
	name   string
	plane  plane
	states []*TargetState
	before map[int]func(*plane) // a report
	want   []string
}{
	{
		name: "figures", plane: plane{each: 3}, states: []*TargetState{same(), same(), same(), same(), same()},
		want: []string{"state", "unchanged", "unchanged", "state", "unchanged"},
	},
	{
		name: "each with figures", plane: plane{each: 1}, states: []*TargetState{same(), same()},
		want: []string{"state", "state"},
	},
	{
		name:   "nothing said of figures",
		states: []*TargetState{same(), same()},
		want:   []string{"state", "state"},
	},
	{
		name: "older", plane: plane{isOlder: true}, states: []*TargetState{same(), same()},
		want: []string{"state", "state"},
	},
	{
		name: "writer went", plane: plane{each: 3}, states: []*TargetState{
			same(),
			stateOf(func(ring *RingState) { ring.WriterHeld = false }), same(),
		},
		want: []string{"state", "state", "state"},
	},
	{
		name: "ring is filling", plane: plane{each: 3}, states: []*TargetState{same(), full, full, same()},
		want: []string{"state", "state", "unchanged", "state"},
	},
	{
		name: "another ring", plane: plane{each: 3},
		states: []*TargetState{same(), {Agent: &Agent{Id: "t1"}}, same()},
		want:   []string{"state", "state", "state"},
	},
	{
		name: "another instance", plane: plane{each: 3}, states: []*TargetState{same(), same(), same()},
		before: map[int]func(*plane){1: func(p *plane) { p.known, p.named = 0, 7 }},
		want:   []string{"state", "wanted", "state", "unchanged"},
	},
	{
		name: "another, older instance", plane: plane{each: 3}, states: []*TargetState{same(), same(), same()},
		before: map[int]func(*plane){1: func(p *plane) { p.isOlder = true }},
		want:   []string{"state", "refused", "state", "state"},
	},
	{
		name: "gone for a while", plane: plane{each: 5}, states: []*TargetState{same(), same(), same(), same()},
		before: map[int]func(*plane){1: func(p *plane) { p.isGone = true }, 2: func(p *plane) { p.isGone = false }},
		want:   []string{"state", "state", "unchanged"},
	},
}

// What is no figure is told at once and in one call, figures with each third report, and whoever does not know what is
// unchanged is told all in the same moment.
func TestReporter_TellsWhatIsNotKnown(t *testing.T) {
	for _, test := range reports {
		plane := test.plane
		reporter := Reporter[*TargetState]{Send: plane.send, IsSame: func(told, now *TargetState) bool {
			return IsSameTarget(told, now) && AreSameMarks(told.Rings, now.Rings)
		}}
		for i, state := range test.states {
			if before := test.before[i]; before != nil {
				before(&plane)
			}
			if err := reporter.Report(t.Context(), state); (err != nil) != plane.isGone {
				t.Errorf("%s: report %d: %v", test.name, i, err)
			}
		}
		if !slices.Equal(plane.received, test.want) {
			t.Errorf("%s: received %v, want %v", test.name, plane.received, test.want)
		}
	}
}
