package main

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// What agents report of rings that are written: other cursors, lag, rates and quantiles each second of each of them,
// and what stays as it is between.
const (
	busyRecordLen = 256
	busyRate      = 1000 // records a second
	busyLag       = 40   // records that the drain is behind
)

// moved is how many records a busy ring has had until now.
func (a *agents) moved() uint64 {
	since := a.busySince.Load()
	if since == nil {
		return 0
	}
	return uint64(time.Since(*since).Seconds()*busyRate) + busyLag
}

// begin has the writers append from now on.
func (a *agents) begin() {
	now := time.Now()
	a.busySince.Store(&now)
}

// write puts a writer and its figures into what a target tells of a ring.
func (a *agents) write(ring *api.RingState, epoch uint32, now *timestamppb.Timestamp) {
	if epoch == 0 {
		return
	}
	ring.WriterId, ring.WriterHeld, ring.DrainHeld = "bench", true, true
	ring.WriterEpoch, ring.LastEpoch, ring.EpochMin, ring.EpochOpenTime = epoch, epoch, epoch, a.opened
	count := a.moved()
	if count == 0 {
		return
	}
	ring.AppendedLsn, ring.DurableLsn = count*busyRecordLen, count*busyRecordLen
	ring.HeadSeq, ring.HeadLsn = count-busyLag, (count-busyLag)*busyRecordLen+64
	ring.CreditLsn = ring.HeadLsn + ring.CapacityBytes
	ring.LagRecords, ring.LagBytes, ring.LagAge = busyLag, ring.AppendedLsn-ring.HeadLsn,
		durationpb.New(busyLag*time.Second/busyRate)
	jitter := time.Duration(now.Nanos % 1000)
	ring.Counters = &api.WriterCounters{
		Records: count, PayloadBytes: count * busyRecordLen, Flushes: count,
		Level: api.Level_LEVEL_PERSISTENT, LatencyCount: count,
		LatencyP50: durationpb.New(400 + jitter), LatencyP99: durationpb.New(900 + jitter),
		LatencyP999: durationpb.New(2000 + jitter), LatencyMax: durationpb.New(50_000 + jitter),
		AppendRateRecords: busyRate + float64(jitter)/1000, AppendRateBytes: busyRate*busyRecordLen + float64(jitter),
	}
}

// drain puts them into what a drain tells of one.
func (a *agents) drain(progress *api.DrainProgress) {
	count := a.moved()
	if count == 0 {
		return
	}
	count -= busyLag
	progress.StoredLsn, progress.HeadLsn, progress.Records, progress.Bytes, progress.Batches = count*busyRecordLen+64,
		count*busyRecordLen+64, count, count*busyRecordLen, count/20
}
