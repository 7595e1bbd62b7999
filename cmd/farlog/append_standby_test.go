//go:build cgo

package main

import (
	"testing"

	api "github.com/farlog/farlog/pkg/api/v1"
)

func TestIsWriterGone(t *testing.T) {
	uuid := []byte("0123456789abcdef")
	ring := func(target string, epoch, fenced uint32, isHeld bool) *api.RingState {
		return &api.RingState{Target: target, RingUuid: uuid, WriterEpoch: epoch, EpochFenced: fenced, IsWriterHeld: isHeld}
	}
	status := func(members, k, granted uint32, rings ...*api.RingState) *api.StreamStatus {
		return &api.StreamStatus{Stream: &api.Stream{K: k, Spec: &api.StreamSpec{Members: members}}, LastGrant: &api.Grant{Epoch: granted}, Rings: rings,
			TargetsAlive: []string{"a", "b", "c"}}
	}
	for name, c := range map[string]struct {
		status     *api.StreamStatus
		isGrantOld bool
		want       bool
	}{
		"held":                               {status(1, 1, 4, ring("a", 4, 4, true)), false, false},
		"gone":                               {status(1, 1, 4, ring("a", 4, 4, false)), false, true},
		"granted, and not seen yet":          {status(1, 1, 5, ring("a", 4, 5, false)), false, false},
		"granted, and never opened":          {status(1, 1, 5, ring("a", 4, 5, false)), true, true},
		"taken over from":                    {status(1, 1, 5, ring("a", 4, 6, false)), false, true},
		"taken over from, and still holding": {status(1, 1, 5, ring("a", 5, 6, true)), false, false},
		"gone from a target that does not report": {status(1, 1, 4, ring("d", 4, 4, false)), false, false},
		"one of three lost its connection":        {status(3, 2, 4, ring("a", 4, 4, false), ring("b", 4, 4, true), ring("c", 4, 4, true)), false, false},
		"two of three are free":                   {status(3, 2, 4, ring("a", 4, 4, false), ring("b", 4, 4, false), ring("c", 4, 4, true)), false, true},
		"all three have to be, where one counts":  {status(3, 1, 4, ring("a", 4, 4, false), ring("b", 4, 4, false), ring("c", 4, 4, true)), false, false},
	} {
		if got := isWriterGone(c.status, c.isGrantOld); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
