package main

import (
	api "github.com/farlog/farlog/pkg/api/v1"
)

// stalledShown keeps an append that is merely under way out of the picture.
const stalledShown = 0.1

// slowRow is somebody who does not keep up with the stream.
type slowRow struct {
	Route       string `json:"route,omitempty"` // to which the stream is a leg; none: a reader
	Host        string `json:"host"`
	Pid         uint32 `json:"pid"`
	Name        string `json:"name,omitempty"`
	LagBytes    uint64 `json:"lag_bytes"`
	LostRecords uint64 `json:"lost_records"` // by a route
	LostBytes   uint64 `json:"lost_bytes"`   // by a reader
	Reason      string `json:"reason,omitempty"`
}

func (r *statusRow) addSlow(status *api.StreamStatus) {
	for _, one := range status.SlowConsumers {
		r.SlowConsumers = append(r.SlowConsumers, slowRow{
			Route: one.Route, Host: one.Holder.GetHost(), Pid: one.Holder.GetPid(), Name: one.Holder.GetName(),
			LagBytes: one.LagBytes, LostRecords: one.LostRecords, LostBytes: one.LostBytes, Reason: one.Reason,
		})
	}
}

func (r statusRow) renderSlow(line func(format string, args ...any)) {
	for _, one := range r.SlowConsumers {
		who, lost := "reader "+dashed(one.Name), "missed "+humanBytes(one.LostBytes)
		if one.Route != "" {
			who, lost = "route "+one.Route, "dropped "+humanCount(one.LostRecords)+" records"
		}
		line("  slow     %s (host %s pid %d)  %s behind  %s", who, dashed(one.Host), one.Pid, humanBytes(one.LagBytes),
			lost)
		if one.Reason != "" {
			line("           %s", one.Reason)
		}
	}
}
