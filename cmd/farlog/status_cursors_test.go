package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// threeMembers is the status of a stream with three rings, two of which are needed, that end there; the first three
// letters of each tell of its target.
func threeMembers(isHeld bool, alive string, ends ...uint64) *api.StreamStatus {
	status := &api.StreamStatus{Stream: &api.Stream{K: 2, Spec: &api.StreamSpec{Name: "a", Members: 3}}}
	for i, end := range ends {
		target := string("abc"[i])
		if strings.Contains(alive, target) {
			status.TargetsAlive = append(status.TargetsAlive, target)
		}
		status.RingSpecs = append(status.RingSpecs, &api.RingSpec{Target: target, Member: uint32(i)})
		ring := &api.RingState{
			Target: target, RingUuid: []byte{1}, WriterEpoch: 4, WriterId: "w", WriterHeld: isHeld,
			HeadLsn: 1024, AppendedLsn: end, DurableLsn: end,
			LagBytes: end - 1024, LagRecords: (end - 1024) / 128, CapacityBytes: 1 << 20,
		}
		if ring.LagBytes > 0 {
			ring.LagAge = durationpb.New(36 * time.Second)
		}
		status.Rings = append(status.Rings, ring)
	}
	return status
}

func TestStatusRow_OfMembers(t *testing.T) {
	for name, one := range map[string]struct {
		status                                    *api.StreamStatus
		durable, lag, lagRecords, beyond, records uint64
		seconds                                   float64
	}{
		"all have it":                           {threeMembers(true, "abc", 2048, 2048, 2048), 2048, 1024, 8, 0, 0, 36},
		"two are enough":                        {threeMembers(true, "abc", 2048, 1024, 2048), 2048, 1024, 8, 0, 0, 36},
		"one is ahead, the others on their way": {threeMembers(true, "abc", 2048, 1280, 1280), 1280, 256, 2, 0, 0, 36},
		"two of three do not answer": {
			threeMembers(true, "a", 8192, 1280, 1280), 1280, 256, 2, 6912, 54,
			36,
		},
		"a dead writer's, on one member": {threeMembers(false, "abc", 1152, 1024, 1024), 1024, 0, 0, 128, 1, 0},
	} {
		row := newStatusRow(one.status)
		if row.DurableLSN != one.durable || row.LagBytes != one.lag || row.LagRecords != one.lagRecords ||
			row.LagSeconds != one.seconds ||
			row.UnconfirmedBytes != one.beyond || row.UnconfirmedRecords != one.records {
			t.Errorf("%s: durable %d, lag %d bytes, %d records, %v s, unconfirmed %d bytes, %d records: expected %+v",
				name, row.DurableLSN, row.LagBytes, row.LagRecords, row.LagSeconds,
				row.UnconfirmedBytes, row.UnconfirmedRecords, one)
		}
	}
}

// A member whose log is of an older epoch says nothing of the newest one's.
func TestStatusRow_OfMembersThatWereLeftBehind(t *testing.T) {
	status := threeMembers(true, "abc", 2048, 9216, 1280)
	status.Rings[1].WriterEpoch = 3
	if row := newStatusRow(status); row.DurableLSN != 1280 {
		t.Errorf("durable %d, expected 1280", row.DurableLSN)
	}
}

// A person reads the same numbers of members everywhere: from 1 on.
func TestStatusRow_NumbersMembersFromOne(t *testing.T) {
	row := newStatusRow(threeMembers(true, "ab", 2048, 2048, 2048))
	var screen bytes.Buffer
	row.render(&screen, true)
	for i, want := range []string{"1 up       a ", "2 up       b ", "3 gone     c "} {
		if row.Members[i].Member != i+1 || !strings.Contains(screen.String(), "\n    "+want) {
			t.Errorf("member %d: expected %q in\n%s", row.Members[i].Member, want, screen.String())
		}
	}
}

func TestStatusRow_SaysWhoDecides(t *testing.T) {
	var screen bytes.Buffer
	newStatusRow(threeMembers(false, "abc", 1152, 1024, 1024)).render(&screen, false)
	if want := "128 B  1 record that fewer than 2 members have: the next writer decides"; !strings.Contains(
		screen.String(),
		want,
	) {
		t.Errorf("expected %q in\n%s", want, screen.String())
	}
}
