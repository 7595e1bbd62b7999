package main

import (
	"slices"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// memberRow is one ring of a stream that has several.
type memberRow struct {
	Member int    `json:"member"` // from 1 on, as metrics and alerts have it
	Target string `json:"target"`
	// State is up, new (it replaced another, and does not count yet), behind (an older epoch), gone (its target does
	// not report), missing (no ring) or error.
	State    string `json:"state"`
	URI      string `json:"uri"`
	Epoch    uint32 `json:"epoch"`
	HeadLSN  uint64 `json:"head_lsn"`
	TailLSN  uint64 `json:"tail_lsn"`
	LagBytes uint64 `json:"lag_bytes"`
	Error    string `json:"error,omitempty"`
}

func memberRows(status *api.StreamStatus) (rows []memberRow) {
	if memberCount(status) == 1 {
		return nil
	}
	newest := uint32(0)
	for _, ring := range status.Rings {
		newest = max(newest, ring.WriterEpoch)
	}
	for _, spec := range status.RingSpecs {
		row := memberRow{Member: int(spec.Member) + 1, Target: spec.Target, State: "missing"}
		for _, ring := range status.Rings {
			if ring.Target != spec.Target {
				continue
			}
			row.URI, row.Epoch, row.HeadLSN, row.TailLSN, row.LagBytes, row.Error = ring.Uri, ring.WriterEpoch,
				ring.HeadLsn, ring.AppendedLsn, ring.LagBytes, ring.Error
			switch {
			case ring.Error != "":
				row.State = "error"
			case spec.Replacement != nil && ring.WriterEpoch == 0:
				row.State = "new"
			case len(ring.RingUuid) > 0 && ring.WriterEpoch < newest:
				row.State = "behind"
			case len(ring.RingUuid) > 0:
				row.State = "up"
			}
		}
		if !slices.Contains(status.TargetsAlive, spec.Target) {
			row.State = "gone"
		}
		rows = append(rows, row)
	}
	return rows
}

// leadingRing is the one that tells most of the stream: of those whose target reports the one of the newest epoch that
// has come furthest.
func leadingRing(status *api.StreamStatus) (leading *api.RingState) {
	isBetter := func(a, b *api.RingState) bool {
		if isAlive := slices.Contains(status.TargetsAlive, a.Target); isAlive != slices.Contains(status.TargetsAlive,
			b.Target) {
			return isAlive
		}
		return a.WriterEpoch > b.WriterEpoch || a.WriterEpoch == b.WriterEpoch && a.AppendedLsn > b.AppendedLsn
	}
	for _, ring := range status.Rings {
		if leading == nil || isBetter(ring, leading) {
			leading = ring
		}
	}
	return leading
}

func (r statusRow) renderMembers(line func(format string, args ...any)) {
	if len(r.Members) == 0 {
		return
	}
	line("  members  %d of %d ready, %d are needed", r.RingsReady, r.Rings, r.Needed)
	for _, member := range r.Members {
		line("    %d %-8s %s  epoch %d  head %s  tail %s  lag %s  %s", member.Member, member.State, member.Target,
			member.Epoch, humanCount(member.HeadLSN), humanCount(member.TailLSN),
			humanBytes(member.LagBytes), member.URI)
		if member.Error != "" {
			line("               %s", member.Error)
		}
	}
}
