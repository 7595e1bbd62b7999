package main

import (
	"context"
	"errors"
	"strings"

	"github.com/farlog/farlog/pkg/control"
	"github.com/farlog/farlog/pkg/metrics"
)

var errBlind = errors.New("control: etcd cannot be read")

func (d *daemon) openControl(ctx context.Context) error {
	listener, err := listen("listen", d.settings.listen)
	if err != nil {
		return err
	}
	d.controlAddress = listener.Addr().String()
	d.parts = append(d.parts, part{close: func() error { return ignoreClosed(listener.Close()) }})
	etcd, err := control.OpenEtcd(ctx, control.EtcdOptions{Dir: d.dir("etcd"), Endpoints: d.settings.etcdEndpoints})
	if err != nil {
		return err
	}
	var server *control.Server
	counts := metrics.NewControl(d.registry, func() []metrics.StreamSample { return streamSamples(server) })
	server = control.New(control.Config{
		Client: etcd.Client(), Logger: d.logger.With("role", roleControl), IsSole: len(d.settings.etcdEndpoints) == 0,
		Lease: d.settings.lease, OnRequest: counts.OnRequest, OnGrant: counts.OnGrant,
	})
	d.parts[len(d.parts)-1] = part{
		run: func(ctx context.Context, ready func()) error {
			ctx, cancel := context.WithCancelCause(ctx)
			defer cancel(nil)
			go func() {
				select {
				case err := <-etcd.Failed():
					cancel(err)
				case <-ctx.Done():
				}
			}()
			err := server.Run(ctx, listener, ready)
			if cause := context.Cause(ctx); err == nil && cause != nil && !errors.Is(cause, context.Canceled) {
				return cause
			}
			return err
		},
		healthy: func() error {
			if server.IsHealthy() {
				return nil
			}
			return errBlind
		},
		close: func() error { return errors.Join(ignoreClosed(listener.Close()), etcd.Close()) },
	}
	return nil
}

func streamSamples(server *control.Server) []metrics.StreamSample {
	statuses := server.Statuses()
	samples := make([]metrics.StreamSample, 0, len(statuses))
	for _, status := range statuses {
		samples = append(samples, metrics.StreamSample{
			Stream:       status.Stream.Spec.Name,
			Condition:    strings.ToLower(strings.TrimPrefix(status.Condition.String(), "CONDITION_")),
			EpochGranted: status.EpochGranted,
			IsDrainAlive: status.IsDrainAlive,
		})
	}
	return samples
}
