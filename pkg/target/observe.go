package target

import (
	"errors"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/farlog"
)

// rateIntervalLeast keeps rates from being made of a few milliseconds.
const rateIntervalLeast = 200 * time.Millisecond

// Ring is what was seen of one ring at one moment. Counters is nil while its writer exports none on this host; Members
// are of that writer, whose stream has several rings.
type Ring struct {
	State    *api.RingState
	Counters *farlog.Counters
	Members  []farlog.MemberCounters

	rates rates
	stall farlog.Stall
}

// rates are bytes and records a second between two looks.
type rates struct {
	since                     time.Time
	appendedLSN, headLSN      uint64
	records                   uint64
	isCounted                 bool // records are the writer's count, not what lies in the log
	appended, drained, record float64
}

// describeRing describes a ring. cause is why it could not be provided, if so; what is there is then not looked at.
func (t *Target) describeRing(stream string, at site, cause error, before []Ring) Ring {
	now := time.Now()
	state := &api.RingState{Stream: stream, Target: t.config.Agent.Id, Uri: at.uri, ObserveTime: timestamppb.New(now)}
	if cause != nil {
		state.Error, state.Missing = oneLine(cause), errors.Is(cause, errMissing)
		return Ring{State: state}
	}
	status, err := t.inspect(state.Uri)
	if err != nil {
		state.Error = oneLine(err)
		return Ring{State: state}
	}
	describe(state, status, now)
	state.Contract.Attestation = t.attested(state.Uri)
	t.remote.reach(state)
	ring := Ring{State: state}
	counters, err := farlog.ReadCounters(t.config.CountersDir, status.RingUUID)
	if err == nil {
		ring.Counters = counters
		ring.Members, _ = farlog.ReadMemberCounters(t.config.CountersDir, status.RingUUID) // of the same file
	} else if !errors.Is(err, farlog.ErrNotFound) {
		t.config.Logger.Debug("read counters", "stream", stream, "error", err)
	}
	last := previous(before, state.Uri)
	ring.rates, ring.stall = measure(state, ring.Counters, last.rates, now), last.stall
	if left, ok := timeToFull(state, ring.rates); ok {
		state.TimeToFull = durationpb.New(left)
	}
	switch {
	case ring.Counters != nil:
		state.Counters = CountersOf(ring.Counters, ring.rates.record, ring.rates.appended)
		// of a dead one nobody waits
		if stalled := ring.stall.Update(ring.Counters, now); stalled > 0 && state.WriterHeld {
			state.Counters.StalledFor = durationpb.New(stalled)
		}
	case state.WriterHeld: // from another host, where its counters are: here only what comes is seen
		state.Counters = &api.WriterCounters{AppendRateRecords: ring.rates.record, AppendRateBytes: ring.rates.appended}
	}
	return ring
}

// inspect reads of a ring's records what has come since the look before.
func (t *Target) inspect(uri string) (farlog.Status, error) {
	mark := t.marks[uri]
	if mark == nil {
		mark = new(farlog.Inspector)
		t.marks[uri] = mark
	}
	return mark.Inspect(uri)
}

func describe(state *api.RingState, status farlog.Status, now time.Time) {
	state.RingUuid, state.StreamId = status.RingUUID[:], status.StreamID
	state.Contract = contractOf(status.Contract)
	state.WriterId = status.WriterID
	state.WriterHeld, state.DrainHeld = status.WriterHeld, status.DrainHeld
	state.WriterEpoch, state.EpochMin, state.LastEpoch = status.WriterEpoch, status.EpochMin, status.LastEpoch
	state.CapacityBytes = status.CapacityBytes
	state.HeadLsn, state.HeadSeq, state.CreditLsn = status.HeadLSN, status.HeadSeq, status.CreditLSN
	state.AppendedLsn, state.DurableLsn = status.AppendedLSN, status.DurableLSN
	state.LagBytes, state.LagRecords = status.LagBytes, status.LagRecords
	if !status.EpochOpened.IsZero() {
		state.EpochOpenTime = timestamppb.New(status.EpochOpened)
	}
	if status.LagBytes > 0 && !status.OldestRecord.IsZero() {
		state.LagAge = durationpb.New(max(0, now.Sub(status.OldestRecord)))
	}
}

func contractOf(contract farlog.Contract) *api.Contract {
	return &api.Contract{
		Kind: contract.Kind, FlushMethod: contract.FlushMethod, Probe: contract.Probe, Level: api.Level(contract.Level),
		GranularityBytes: contract.Granularity, AtomicUnitBytes: contract.AtomicUnit, ReadBack: contract.ReadBack,
		SizeBytes: contract.SizeBytes, DeadlineDefault: durationpb.New(contract.DeadlineDefault),
	}
}

// CountersOf are a writer's counters as they are reported, with records and bytes a second.
func CountersOf(counters *farlog.Counters, records, bytes float64) *api.WriterCounters {
	return &api.WriterCounters{
		Records:           counters.RecordCount(),
		PayloadBytes:      counters.PayloadBytes(),
		Flushes:           counters.FlushCount(),
		Full:              counters.FullCount(),
		Fenced:            counters.FencedCount(),
		Unknown:           counters.UnknownCount(),
		TooLarge:          counters.TooLargeCount(),
		Level:             api.Level(counters.Level()),
		Pressure:          uint32(counters.Pressure()),
		LatencyCount:      counters.LatencyCount(),
		LatencyP50:        durationpb.New(counters.Quantile(0.5)),
		LatencyP99:        durationpb.New(counters.Quantile(0.99)),
		LatencyP999:       durationpb.New(counters.Quantile(0.999)),
		LatencyMax:        durationpb.New(counters.Quantile(1)),
		AppendRateRecords: records,
		AppendRateBytes:   bytes,
	}
}

// previous is the look before at the same ring.
func previous(before []Ring, uri string) Ring {
	for _, ring := range before {
		if ring.State.Uri == uri {
			return ring
		}
	}
	return Ring{}
}

// measure gives the rates since the look before. A look too soon after it keeps its rates and its start.
func measure(state *api.RingState, counters *farlog.Counters, before rates, now time.Time) rates {
	next := rates{
		since: now, appendedLSN: state.AppendedLsn, headLSN: state.HeadLsn,
		records: state.HeadSeq + state.LagRecords,
	}
	if counters != nil {
		next.records, next.isCounted = counters.RecordCount(), true
	}
	elapsed := now.Sub(before.since)
	if before.since.IsZero() {
		return next
	}
	if elapsed < rateIntervalLeast {
		return before
	}
	next.appended = perSecond(before.appendedLSN, next.appendedLSN, elapsed)
	next.drained = perSecond(before.headLSN, next.headLSN, elapsed)
	if next.isCounted == before.isCounted {
		next.record = perSecond(before.records, next.records, elapsed)
	}
	return next
}

// perSecond is 0 when the number went back: another writer's counters, or a log that was undone.
func perSecond(from, to uint64, elapsed time.Duration) float64 {
	if to < from {
		return 0
	}
	return float64(to-from) / elapsed.Seconds()
}

// timeToFull extrapolates; false while the ring does not fill.
func timeToFull(state *api.RingState, rates rates) (time.Duration, bool) {
	growth := rates.appended - rates.drained
	free := float64(state.CapacityBytes) - float64(state.AppendedLsn-state.HeadLsn)
	if growth < 1 || free < 0 {
		return 0, false
	}
	seconds := min(free/growth, (365 * 24 * time.Hour).Seconds())
	return time.Duration(seconds * float64(time.Second)), true
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
