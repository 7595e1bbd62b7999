package main

import (
	"cmp"
	"slices"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// addMembers puts the stream's figures in the place of its leading ring's: what as many members have as an
// acknowledgement needs is durable, and waits for the store. What fewer have was not acknowledged. One that does not
// answer counts with what it told last: the log is that long at least.
func (r *statusRow) addMembers(status *api.StreamStatus) {
	if r.Rings == 1 {
		return
	}
	rings := reportingRings(status, r.Needed)
	if len(rings) < r.Needed {
		r.DurableLSN = r.HeadLSN
		return
	}
	r.DurableLSN = nthHighest(rings, r.Needed, (*api.RingState).GetDurableLsn)
	head := nthHighest(rings, 1, (*api.RingState).GetHeadLsn)
	r.DurableLSN = max(r.DurableLSN, head) // what is stored was acknowledged
	confirmed := max(nthHighest(rings, r.Needed, (*api.RingState).GetAppendedLsn), head)
	if r.AppendedLSN <= confirmed {
		return
	}
	records, unconfirmed := r.LagRecords, r.AppendedLSN-confirmed
	r.LagBytes = confirmed - head
	r.LagRecords = min(records, nthHighest(rings, r.Needed, (*api.RingState).GetLagRecords))
	if r.LagBytes == 0 {
		r.LagRecords, r.LagSeconds = 0, 0
	}
	if !r.IsWriterHeld || r.RingsReady < r.Needed { // else they are on their way
		r.UnconfirmedBytes, r.UnconfirmedRecords = unconfirmed, records-r.LagRecords
	}
}

// reportingRings are those of the newest epoch; when they are too few, all that there are.
func reportingRings(status *api.StreamStatus, needed int) (rings []*api.RingState) {
	newest := uint32(0)
	for _, ring := range status.Rings {
		if len(ring.RingUuid) > 0 {
			rings, newest = append(rings, ring), max(newest, ring.WriterEpoch)
		}
	}
	ofNewest := slices.DeleteFunc(slices.Clone(rings),
		func(ring *api.RingState) bool { return ring.WriterEpoch < newest })
	if len(ofNewest) >= needed {
		return ofNewest
	}
	return rings
}

func nthHighest(rings []*api.RingState, n int, value func(*api.RingState) uint64) uint64 {
	values := make([]uint64, len(rings))
	for i, ring := range rings {
		values[i] = value(ring)
	}
	slices.SortFunc(values, func(a, b uint64) int { return cmp.Compare(b, a) })
	return values[n-1]
}

func (r statusRow) renderUnconfirmed(line func(format string, args ...any)) {
	if r.UnconfirmedBytes == 0 {
		return
	}
	records, then := "records", "the next writer decides"
	if r.UnconfirmedRecords == 1 {
		records = "record"
	}
	if r.IsWriterHeld {
		then = "the writer waits for them"
	}
	line("  beyond   %s  %s %s that fewer than %d members have: %s", humanBytes(r.UnconfirmedBytes),
		humanCount(r.UnconfirmedRecords), records, r.Needed, then)
}
