package state

import (
	"testing"

	"google.golang.org/protobuf/types/known/timestamppb"

	api "github.com/farlog/farlog/pkg/api/v1"
)

func healthyRing() *api.RingState {
	return &api.RingState{
		Stream: "a", Target: "t1", Uri: "mem:/dev/shm/a", RingUuid: []byte("0123456789abcdef"),
		Contract: &api.Contract{Level: api.Level_LEVEL_PERSISTENT}, CapacityBytes: 1 << 20,
	}
}

func TestConditionOf_WorstFirst(t *testing.T) {
	healthy := func() *api.StreamStatus {
		return &api.StreamStatus{
			Stream:      &api.Stream{Spec: &api.StreamSpec{Name: "a", Level: api.Level_LEVEL_PERSISTENT}},
			RingSpecs:   []*api.RingSpec{{Target: "t1"}},
			Rings:       []*api.RingState{healthyRing()},
			Assignment:  &api.Assignment{Drain: "d1"},
			TargetAlive: true, DrainAlive: true,
		}
	}
	cases := []struct {
		name string
		edit func(*api.StreamStatus)
		want api.Condition
	}{
		{"healthy", func(*api.StreamStatus) {}, api.Condition_CONDITION_OK},
		{"not placed", func(s *api.StreamStatus) { s.RingSpecs = nil }, api.Condition_CONDITION_PENDING},
		{"no ring yet", func(s *api.StreamStatus) { s.Rings = nil }, api.Condition_CONDITION_PENDING},
		{
			"target died before the ring", func(s *api.StreamStatus) { s.Rings, s.TargetAlive = nil, false },
			api.Condition_CONDITION_TARGET_GONE,
		},
		{"target died", func(s *api.StreamStatus) { s.TargetAlive = false }, api.Condition_CONDITION_TARGET_GONE},
		{"drain died", func(s *api.StreamStatus) { s.DrainAlive = false }, api.Condition_CONDITION_DRAIN_GONE},
		{"no drain", func(s *api.StreamStatus) { s.Assignment = nil }, api.Condition_CONDITION_DRAIN_GONE},
		{"writer died", func(s *api.StreamStatus) { s.Rings[0].WriterEpoch = 3 }, api.Condition_CONDITION_WRITER_GONE},
		{"writer ended", func(s *api.StreamStatus) {
			s.Rings[0].WriterEpoch, s.LastGrant = 3, &api.Grant{Epoch: 3, CloseTime: timestamppb.Now()}
		}, api.Condition_CONDITION_OK},
		{"another writer died since", func(s *api.StreamStatus) {
			s.Rings[0].WriterEpoch, s.LastGrant = 4, &api.Grant{Epoch: 3, CloseTime: timestamppb.Now()}
		}, api.Condition_CONDITION_WRITER_GONE},
		{"writer died, granted", func(s *api.StreamStatus) {
			s.Rings[0].WriterEpoch, s.LastGrant = 3,
				&api.Grant{Epoch: 3}
		}, api.Condition_CONDITION_WRITER_GONE},
		{
			"writer lives", func(s *api.StreamStatus) { s.Rings[0].WriterEpoch, s.Rings[0].WriterHeld = 3, true },
			api.Condition_CONDITION_OK,
		},
		{"warn", func(s *api.StreamStatus) { s.Rings[0].AppendedLsn = 750_000 }, api.Condition_CONDITION_WARN},
		{"alarm before drain gone", func(s *api.StreamStatus) {
			s.Rings[0].AppendedLsn, s.DrainAlive = 1_000_000,
				false
		}, api.Condition_CONDITION_ALARM},
		{
			"level not given", func(s *api.StreamStatus) { s.Rings[0].Contract.Level = api.Level_LEVEL_VISIBLE },
			api.Condition_CONDITION_ERROR,
		},
		{
			"drain error", func(s *api.StreamStatus) { s.Drain = &api.DrainProgress{LastError: "disk full"} },
			api.Condition_CONDITION_ERROR,
		},
		{"target died, which its drain sees", func(s *api.StreamStatus) {
			s.Drain, s.TargetAlive = &api.DrainProgress{LastError: "input or output failed"}, false
		}, api.Condition_CONDITION_TARGET_GONE},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			status := healthy()
			tc.edit(status)
			got, reason := ConditionOf(status, 1)
			if got != tc.want || (reason == "") != (got == api.Condition_CONDITION_OK) {
				t.Errorf("got %v %q, want %v", got, reason, tc.want)
			}
		})
	}
}

// A writer that acknowledges less than its stream asks for is no trouble of a host, and yet not what was asked for:
// that is not OK.
func TestWarnOfLevel(t *testing.T) {
	for _, c := range []struct {
		name      string
		condition api.Condition
		level     api.Level
		isHeld    bool
		want      api.Condition
	}{
		{"as asked for", api.Condition_CONDITION_OK, api.Level_LEVEL_PERSISTENT, true, api.Condition_CONDITION_OK},
		{"posted", api.Condition_CONDITION_OK, api.Level_LEVEL_POSTED, true, api.Condition_CONDITION_WARN},
		{"on another host", api.Condition_CONDITION_OK, api.Level_LEVEL_UNSPECIFIED, true, api.Condition_CONDITION_OK},
		{"has ended", api.Condition_CONDITION_OK, api.Level_LEVEL_POSTED, false, api.Condition_CONDITION_OK},
		{
			"worse", api.Condition_CONDITION_MEMBER_GONE, api.Level_LEVEL_POSTED, true,
			api.Condition_CONDITION_MEMBER_GONE,
		},
	} {
		status := &api.StreamStatus{
			Stream: &api.Stream{Spec: &api.StreamSpec{Level: api.Level_LEVEL_PERSISTENT}}, Condition: c.condition,
			Rings: []*api.RingState{{WriterHeld: c.isHeld, Counters: &api.WriterCounters{Level: c.level}}},
		}
		if warnOfLevel(status); status.Condition != c.want ||
			(status.Reason != "") != (status.Condition == api.Condition_CONDITION_WARN) {
			t.Errorf("%s: %s %q, expected %s", c.name, status.Condition, status.Reason, c.want)
		}
	}
}

// What a client of a ring did that no client of farlog does is no trouble of the ring, and yet not OK.
func TestStatus_WarnsOfWhatAClientDid(t *testing.T) {
	const warning = "a client wrote where its key does not let it"
	for condition, want := range map[api.Condition]api.Condition{
		api.Condition_CONDITION_OK:    api.Condition_CONDITION_WARN,
		api.Condition_CONDITION_ERROR: api.Condition_CONDITION_ERROR,
	} {
		status := &api.StreamStatus{
			Condition: condition, Rings: []*api.RingState{{}, {Warning: warning}},
		}
		if warnOfClients(status); status.Condition != want ||
			(status.Reason == warning) != (want == api.Condition_CONDITION_WARN) {
			t.Errorf("%s: %s %q, expected %s", condition, status.Condition, status.Reason, want)
		}
	}
}

// The level of a writer on another host is told by the agent there, of the epoch that the ring has.
func TestWarnOfLevel_WriterOnAnotherHost(t *testing.T) {
	for epoch, want := range map[uint32]api.Condition{
		4: api.Condition_CONDITION_WARN, 3: api.Condition_CONDITION_OK,
	} {
		status := &api.StreamStatus{
			Stream:    &api.Stream{Spec: &api.StreamSpec{Level: api.Level_LEVEL_PERSISTENT}},
			Condition: api.Condition_CONDITION_OK, LastGrant: &api.Grant{Epoch: 4},
			Rings:  []*api.RingState{{WriterHeld: true, WriterEpoch: epoch}},
			Writer: &api.WriterCounters{Level: api.Level_LEVEL_POSTED},
		}
		if warnOfLevel(status); status.Condition != want {
			t.Errorf("a ring of epoch %d: %s %q, expected %s", epoch, status.Condition, status.Reason, want)
		}
	}
}
