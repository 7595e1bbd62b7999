//go:build cgo

package main

import (
	"testing"
	"time"

	api "github.com/farlog/farlog/pkg/api/v1"
)

func TestIsWriterGone(t *testing.T) {
	uuid := []byte("0123456789abcdef")
	ring := func(target string, epoch, fenced uint32, isHeld bool) *api.RingState {
		return &api.RingState{
			Target: target, RingUuid: uuid, WriterEpoch: epoch, EpochFenced: fenced,
			WriterHeld: isHeld,
		}
	}
	status := func(members, k, granted uint32, rings ...*api.RingState) *api.StreamStatus {
		return &api.StreamStatus{
			Stream:    &api.Stream{K: k, Spec: &api.StreamSpec{Members: members}},
			LastGrant: &api.Grant{Epoch: granted}, Rings: rings,
			TargetsAlive: []string{"a", "b", "c"},
		}
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
		"one of three lost its connection": {status(3, 2, 4, ring("a", 4, 4, false), ring("b", 4, 4, true),
			ring("c", 4, 4, true)), false, false},
		"two of three are free": {status(3, 2, 4, ring("a", 4, 4, false), ring("b", 4, 4, false),
			ring("c", 4, 4, true)), false, true},
		"all three have to be, where one counts": {status(3, 1, 4, ring("a", 4, 4, false), ring("b", 4, 4, false),
			ring("c", 4, 4, true)), false, false},
	} {
		if got := isWriterGone(c.status, c.isGrantOld); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A stream is silent for the time in which nothing came and enough was seen to say so.
func TestSilence(t *testing.T) {
	uuid := []byte("0123456789abcdef")
	now := time.Unix(1000, 0)
	var s silence
	look := func(epoch uint32, alive []string, ends ...uint64) time.Duration {
		status := &api.StreamStatus{
			Stream:    &api.Stream{K: 2, Spec: &api.StreamSpec{Members: 3}},
			LastGrant: &api.Grant{Epoch: epoch}, TargetsAlive: alive,
		}
		for i, end := range ends {
			status.Rings = append(status.Rings, &api.RingState{
				Target: string(rune('a' + i)), RingUuid: uuid,
				DurableLsn: end,
			})
		}
		return s.update(status, now)
	}
	all := []string{"a", "b", "c"}
	for _, c := range []struct {
		name  string
		alive []string
		epoch uint32
		ends  []uint64
		want  int
	}{
		{"the first look", all, 4, []uint64{64, 64, 64}, 0},
		{"nothing new", all, 4, []uint64{64, 64, 64}, 1},
		{"one lags, nothing new", all, 4, []uint64{64, 0, 64}, 2},
		{"one of them has more", all, 4, []uint64{64, 128, 64}, 0},
		{"the others follow", all, 4, []uint64{128, 128, 128}, 1},
		{"one is away, two tell", []string{"a", "b"}, 4, []uint64{128, 128, 128}, 2},
		{"one tells: it could be out", []string{"a"}, 4, []uint64{128, 128, 128}, 0},
		{"again", []string{"a"}, 4, []uint64{128, 128, 128}, 0},
		{"two tell", []string{"a", "c"}, 4, []uint64{128, 128, 128}, 1},
		{"another writer was granted it", all, 5, []uint64{128, 128, 128}, 0},
	} {
		now = now.Add(time.Second)
		if got := look(c.epoch, c.alive, c.ends...); got != time.Duration(c.want)*time.Second {
			t.Errorf("%s: %s, expected %d s", c.name, got, c.want)
		}
	}
	now = now.Add(time.Second)
	if got := s.update(nil, now); got != 0 {
		t.Errorf("the control plane does not answer: %s", got)
	}
}
