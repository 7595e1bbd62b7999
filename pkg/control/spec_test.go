package control

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/check"
)

func TestCompleteSpec_BadFieldIsNamedWithItsValue(t *testing.T) {
	cases := []struct {
		name string
		spec *api.StreamSpec
		want string
	}{
		{"no spec", nil, "expected a spec"},
		{"empty name", &api.StreamSpec{}, `stream name ""`},
		{"parent directory", &api.StreamSpec{Name: "../x"}, `stream name "../x"`},
		{"empty part", &api.StreamSpec{Name: "a//b"}, `stream name "a//b"`},
		{"space", &api.StreamSpec{Name: "a b"}, `stream name "a b"`},
		{"long name", &api.StreamSpec{Name: strings.Repeat("n", 64)}, "1 to 63"},
		{"size not a multiple", &api.StreamSpec{Name: "a", RingSizeBytes: 100001}, "ring size 100001: expected a multiple of 4096"},
		{"size too small", &api.StreamSpec{Name: "a", RingSizeBytes: 4096}, "ring size 4096"},
		{"align", &api.StreamSpec{Name: "a", Align: 96}, "align 96: expected a power of two"},
		{"record too long for ring", &api.StreamSpec{Name: "a", RingSizeBytes: 1 << 20, RecordLenMax: 1 << 19}, "record_len_max 524288"},
		{"record not a multiple", &api.StreamSpec{Name: "a", RecordLenMax: 1000}, "record_len_max 1000"},
		{"level", &api.StreamSpec{Name: "a", Level: api.Level_LEVEL_ARCHIVED}, "level archived: expected posted, visible or persistent"},
		{"policy", &api.StreamSpec{Name: "a", Policy: 9}, "policy 9: expected block or reject"},
		{"deadline", &api.StreamSpec{Name: "a", Deadline: durationpb.New(-time.Second)}, "deadline -1s"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := completeSpec(tc.spec); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

func TestCompleteSpec_CompletingTwiceChangesNothing(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		asked := &api.StreamSpec{
			Name:          "a/b",
			RingSizeBytes: rapid.Uint64Range(0, 1<<20).Draw(rt, "pages") * 4096,
			Align:         rapid.SampledFrom([]uint32{0, 64, 512, 4096}).Draw(rt, "align"),
			Level:         api.Level(rapid.IntRange(0, 3).Draw(rt, "level")),
		}
		spec, err := completeSpec(asked)
		if err != nil {
			return
		}
		again, err := completeSpec(spec)
		if err != nil || !proto.Equal(spec, again) {
			rt.Fatalf("%v became %v, %v", spec, again, err)
		}
		if capacity := spec.RingSizeBytes - check.RingHeaderBytes; uint64(spec.RecordLenMax)*4 > capacity || spec.RecordLenMax%spec.Align != 0 {
			rt.Fatalf("default record_len_max %d does not fit: %v", spec.RecordLenMax, spec)
		}
	})
}

func TestConditionOf_WorstFirst(t *testing.T) {
	healthy := func() *api.StreamStatus {
		return &api.StreamStatus{
			Stream:        &api.Stream{Spec: &api.StreamSpec{Name: "a", Level: api.Level_LEVEL_PERSISTENT}},
			RingSpecs:     []*api.RingSpec{{Target: "t1"}},
			Rings:         []*api.RingState{ring("a", "t1")},
			Assignment:    &api.Assignment{Drain: "d1"},
			IsTargetAlive: true, IsDrainAlive: true,
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
		{"target died before the ring", func(s *api.StreamStatus) { s.Rings, s.IsTargetAlive = nil, false }, api.Condition_CONDITION_TARGET_GONE},
		{"target died", func(s *api.StreamStatus) { s.IsTargetAlive = false }, api.Condition_CONDITION_TARGET_GONE},
		{"drain died", func(s *api.StreamStatus) { s.IsDrainAlive = false }, api.Condition_CONDITION_DRAIN_GONE},
		{"no drain", func(s *api.StreamStatus) { s.Assignment = nil }, api.Condition_CONDITION_DRAIN_GONE},
		{"writer died", func(s *api.StreamStatus) { s.Rings[0].WriterEpoch = 3 }, api.Condition_CONDITION_WRITER_GONE},
		{"writer ended", func(s *api.StreamStatus) {
			s.Rings[0].WriterEpoch, s.LastGrant = 3, &api.Grant{Epoch: 3, Closed: timestamppb.Now()}
		}, api.Condition_CONDITION_OK},
		{"another writer died since", func(s *api.StreamStatus) {
			s.Rings[0].WriterEpoch, s.LastGrant = 4, &api.Grant{Epoch: 3, Closed: timestamppb.Now()}
		}, api.Condition_CONDITION_WRITER_GONE},
		{"writer died, granted", func(s *api.StreamStatus) { s.Rings[0].WriterEpoch, s.LastGrant = 3, &api.Grant{Epoch: 3} }, api.Condition_CONDITION_WRITER_GONE},
		{"writer lives", func(s *api.StreamStatus) { s.Rings[0].WriterEpoch, s.Rings[0].IsWriterHeld = 3, true }, api.Condition_CONDITION_OK},
		{"warn", func(s *api.StreamStatus) { s.Rings[0].AppendedLsn = 750_000 }, api.Condition_CONDITION_WARN},
		{"alarm before drain gone", func(s *api.StreamStatus) { s.Rings[0].AppendedLsn, s.IsDrainAlive = 1_000_000, false }, api.Condition_CONDITION_ALARM},
		{"level not given", func(s *api.StreamStatus) { s.Rings[0].Contract.Level = api.Level_LEVEL_VISIBLE }, api.Condition_CONDITION_ERROR},
		{"drain error", func(s *api.StreamStatus) { s.Drain = &api.DrainProgress{LastError: "disk full"} }, api.Condition_CONDITION_ERROR},
		{"target died, which its drain sees", func(s *api.StreamStatus) {
			s.Drain, s.IsTargetAlive = &api.DrainProgress{LastError: "input or output failed"}, false
		}, api.Condition_CONDITION_TARGET_GONE},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			status := healthy()
			tc.edit(status)
			got, reason := conditionOf(status, 1)
			if got != tc.want || (reason == "") != (got == api.Condition_CONDITION_OK) {
				t.Errorf("got %v %q, want %v", got, reason, tc.want)
			}
		})
	}
}

// A writer that acknowledges less than its stream asks for is no trouble of a host, and yet not what was asked for: that is not OK.
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
		{"worse", api.Condition_CONDITION_MEMBER_GONE, api.Level_LEVEL_POSTED, true, api.Condition_CONDITION_MEMBER_GONE},
	} {
		status := &api.StreamStatus{
			Stream: &api.Stream{Spec: &api.StreamSpec{Level: api.Level_LEVEL_PERSISTENT}}, Condition: c.condition,
			Rings: []*api.RingState{{IsWriterHeld: c.isHeld, Counters: &api.WriterCounters{Level: c.level}}},
		}
		if warnOfLevel(status); status.Condition != c.want || (status.Reason != "") != (status.Condition == api.Condition_CONDITION_WARN) {
			t.Errorf("%s: %s %q, expected %s", c.name, status.Condition, status.Reason, c.want)
		}
	}
}
