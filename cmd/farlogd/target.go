//go:build cgo

package main

import (
	"context"
	"log/slog"
	"time"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/config"
	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/identity"
	"github.com/farlog/farlog/pkg/metrics"
	"github.com/farlog/farlog/pkg/nvmet"
	"github.com/farlog/farlog/pkg/target"
)

// guardMappings has a ring whose media fails a read fail alone, and not the process with it.
func guardMappings() error { return farlog.GuardMappings() }

func (d *daemon) openTarget(context.Context) error {
	conn, err := d.dial(identity.KindTarget)
	if err != nil {
		return err
	}
	dir, link := d.dir("rings"), d.newLink(roleTarget)
	one, err := target.New(target.Config{
		Dir: dir, Agent: d.agent(dir), Control: conn, CountersDir: d.settings.countersDir,
		Logger:  d.logger.With("role", roleTarget),
		Regions: d.settings.targetRegions, Listen: d.settings.targetListen, Advertise: d.settings.targetAdvertise,
		Attestations: attestationsOf(d.settings.attestations), AttestationFile: d.settings.targetAttestation,
		Exports: d.nvmet, ClockJump: d.clock.recent, OnReport: link.note,
		OnRing: link.progress.note,
	})
	if err != nil {
		_ = conn.Close()
		return err
	}
	d.nvmet.KeepRings(one.ExportedRings())
	d.sweepCounters()
	metrics.NewRings(d.registry, func() []metrics.RingSample { return ringSamples(one.Rings()) })
	metrics.NewListeners(
		d.registry,
		d.agent(dir).Id,
		func() []metrics.ListenerSample { return listenerSamples(one.ServedRings()) },
	)
	metrics.NewUnauthenticated(d.registry, d.agent(dir).Id, func() map[string]metrics.UnauthenticatedSample {
		return unauthenticatedSamples(one.Unauthenticated())
	})
	metrics.NewMedia(d.registry, d.agent(dir).Id, func() []metrics.MediaSample { return mediaSamples(one.Media()) },
		one.Written)
	metrics.NewAgent(d.registry, roleTarget, one.IsConnected)
	d.parts = append(d.parts, part{
		run: func(ctx context.Context, ready func()) error {
			ready()
			return one.Run(ctx)
		},
		healthy: link.healthy,
		close:   conn.Close,
	})
	return nil
}

// newFabricKeeper keeps what the fabric declares of the kernel's NVMe target, by the directory of this target's rings:
// another target of this host has another one.
func (d *daemon) newFabricKeeper(logger *slog.Logger) *nvmet.Keeper {
	return nvmet.NewFabricKeeper(d.dir("rings"), d.settings.nvmetState, nvmet.Root, target.Rings{}, logger)
}

// attestationsOf has checked words: the file's are those of the core.
func attestationsOf(read []config.Attestation) []target.Attestation {
	list := make([]target.Attestation, len(read))
	for i, one := range read {
		said, _ := farlog.NewAttestation(one.How, one.PersistenceDomain, one.By, one.Date)
		said.IsAnyRead, said.CommitProvider = one.AnyReadFlushes, one.CommitFlushes
		list[i] = target.Attestation{Attestation: said, Region: one.Region, Reason: one.Reason}
	}
	return list
}

func ringSamples(rings []target.Ring) []metrics.RingSample {
	samples := make([]metrics.RingSample, 0, len(rings))
	for _, ring := range rings {
		samples = append(samples, ringSample(ring))
	}
	return samples
}

func mediaSamples(media []*api.MediaHealth) (samples []metrics.MediaSample) {
	for _, one := range media {
		samples = append(samples, metrics.MediaSample{
			Device: one.Device, UsedRatio: one.UsedRatio,
			SpareRatio: one.SpareRatio, ThresholdRatio: one.SpareThresholdRatio,
			WrittenBytes: one.WrittenBytes, CriticalWarning: one.CriticalWarning,
		})
	}
	return samples
}

func listenerSamples(rings []target.ServedRing) []metrics.ListenerSample {
	samples := make([]metrics.ListenerSample, 0, len(rings))
	for _, ring := range rings {
		sample := metrics.ListenerSample{Stream: ring.Stream, Transport: ring.Transport}
		for _, counter := range ring.Counters {
			sample.Counters = append(sample.Counters, metrics.DoorCounter{
				Name: counter.Name, Help: counter.Help,
				IsGauge: counter.Kind == "gauge", Value: counter.Value,
			})
		}
		samples = append(samples, sample)
	}
	return samples
}

func unauthenticatedSamples(counts map[string]target.Unauthenticated) map[string]metrics.UnauthenticatedSample {
	samples := make(map[string]metrics.UnauthenticatedSample)
	for transport, count := range counts {
		samples[transport] = metrics.UnauthenticatedSample{
			Refused: count.Refused, Open: count.Open, Closed: count.Closed,
		}
	}
	return samples
}

func ringSample(ring target.Ring) metrics.RingSample {
	state := ring.State
	return metrics.RingSample{
		Stream: state.Stream, Target: state.Target, IsReady: len(state.RingUuid) > 0,
		Region: state.GetContract().GetKind(), FlushMethod: state.GetContract().GetFlushMethod(),
		Level:         levelReached(state),
		CapacityBytes: state.CapacityBytes, HeadLSN: state.HeadLsn, CreditLSN: state.CreditLsn,
		AppendedLSN: state.AppendedLsn,
		DurableLSN:  state.DurableLsn, LagBytes: state.LagBytes, LagRecords: state.LagRecords,
		LagAge:     state.LagAge.AsDuration(),
		TimeToFull: state.TimeToFull.AsDuration(), IsFilling: state.TimeToFull != nil,
		WriterEpoch: state.WriterEpoch, EpochMin: state.EpochMin, IsWriterHeld: state.WriterHeld,
		IsDrainHeld: state.DrainHeld,
		Writer:      writerSample(ring.Counters, ring.Members, state.GetCounters().GetStalledFor().AsDuration()),
	}
}

// levelReached is that of the writer's acknowledgements; before there was a writer, what the region can give.
func levelReached(state *api.RingState) string {
	level := state.GetCounters().GetLevel()
	if level == api.Level_LEVEL_UNSPECIFIED {
		level = state.GetContract().GetLevel()
	}
	return farlog.Level(level).String()
}

func writerSample(counters *farlog.Counters, members []farlog.MemberCounters, stalledFor time.Duration,
) *metrics.WriterSample {
	if counters == nil {
		return nil
	}
	sample := &metrics.WriterSample{
		Records: counters.RecordCount(), PayloadBytes: counters.PayloadBytes(), Flushes: counters.FlushCount(),
		Full:   counters.FullCount(),
		Fenced: counters.FencedCount(), Unknown: counters.UnknownCount(), TooLarge: counters.TooLargeCount(),
		Warnings: counters.WarnCount(),
		Alarms:   counters.AlarmCount(), Orphans: counters.OrphanCount(), Pressure: counters.Pressure(),
		ClockErrorNS: counters.ClockErrNS(),
		StalledFor:   stalledFor,
		LatencyMax:   counters.Quantile(1),
		Latency:      metrics.Histogram{Count: counters.LatencyCount(), Sum: counters.LatencySum()},
	}
	for _, bucket := range counters.Buckets() {
		sample.Latency.Buckets = append(sample.Latency.Buckets,
			metrics.HistogramBucket{UpperBound: bucket.UpperBound, Count: bucket.Count})
	}
	for i := range members {
		member := &members[i]
		sample.Members = append(sample.Members, metrics.MemberSample{
			State: member.State(), ConfirmedLSN: member.ConfirmedLSN(), LagBytes: member.LagBytes(),
			HeadLSN:   member.HeadLSN(),
			Demotions: member.DemotionCount(), Evictions: member.EvictionCount(), Rejoins: member.RejoinCount(),
		})
	}
	return sample
}
