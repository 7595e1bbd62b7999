package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync/atomic"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/service"
	"github.com/farlog/farlog/pkg/metrics"
)

var errBlind = errors.New("control: etcd cannot be read")

func (d *daemon) openControl(ctx context.Context) error {
	listener := d.controlListener
	cluster, err := etcd.Open(ctx, etcd.Options{
		Dir: d.dir("etcd"), Endpoints: d.settings.etcdEndpoints,
		Authority: d.settings.etcdAuthority, Cert: d.settings.etcdCert, Key: d.settings.etcdKey,
		Logger: d.logger.With("role", roleControl),
	})
	if damage := new(etcd.DamagedError); errors.As(err, &damage) {
		return d.openDamaged(damage)
	}
	if err != nil {
		return err
	}
	var server *service.Server
	counts := metrics.NewControl(d.registry, func() []metrics.StreamSample { return streamSamples(server) },
		func() metrics.InstanceSample { return instanceSample(server.Instance()) })
	audit, err := newAudit(d.settings)
	if err != nil {
		return errors.Join(err, cluster.Close())
	}
	var sink func(context.Context, [][]byte) error
	auditStream := ""
	if audit != nil {
		sink, auditStream = audit.append, d.settings.auditStream
	}
	server = service.New(service.Config{
		Client: cluster.Client(), Logger: d.logger.With("role", roleControl),
		IsSole: len(d.settings.etcdEndpoints) == 0,
		Lease:  d.settings.lease, OnRequest: counts.OnRequest, OnGrant: counts.OnGrant,
		OnRound: d.newProgress(roleControl).note,
		Keeper:  d.keeper, Access: d.access, Audit: sink, AuditStream: auditStream, ReaderGrant: d.settings.readerGrant,
	})
	if audit != nil {
		audit.server = server
	}
	role := &controlRole{server: server, etcd: cluster, logger: d.logger, isAlone: len(d.settings.roles) == 1}
	d.parts = append(d.parts, part{
		run:     func(ctx context.Context, ready func()) error { return role.run(ctx, listener, ready) },
		healthy: role.healthy,
		close:   func() error { return errors.Join(audit.close(), cluster.Close()) },
	})
	return d.announceSecurity()
}

// openDamaged has the control plane stay and say what is wrong: to let the process end would stop the roles beside it,
// and starting it again mends nothing.
func (d *daemon) openDamaged(damage *etcd.DamagedError) error {
	metrics.NewControl(d.registry, func() []metrics.StreamSample { return nil },
		func() metrics.InstanceSample { return metrics.InstanceSample{IsEtcdDamaged: true} })
	d.logger.Error("control plane cannot work: it answers every call with this error", "role", roleControl,
		"error", oneLine(damage))
	listener, server := d.controlListener, service.Failed{Keeper: d.keeper, Reason: damage}
	isDamaged := func() error { return fmt.Errorf("control: %w", damage) }
	d.firstAnswers = append(d.firstAnswers, isDamaged)
	d.parts = append(d.parts, part{
		run:     func(ctx context.Context, ready func()) error { return server.Run(ctx, listener, ready) },
		healthy: isDamaged,
	})
	return d.announceSecurity()
}

// listenControl takes the port of the control plane; whoever connects waits until it is served.
func (d *daemon) listenControl() error {
	if !d.settings.has(roleControl) {
		return nil
	}
	listener, err := listen("listen", d.settings.listen)
	if err != nil {
		return err
	}
	d.controlListener, d.controlAddress = listener, listener.Addr().String()
	return nil
}

// controlRole is the control plane in a daemon.
type controlRole struct {
	server  *service.Server
	etcd    *etcd.Cluster
	logger  *slog.Logger
	isAlone bool
	failure atomic.Pointer[error]
}

// run serves until ctx is done or etcd gives up. Beside other roles it then stays away and lets them work: a full disk
// under the control plane's state must not stop a drain. The daemon's exit code tells in the end.
func (r *controlRole) run(ctx context.Context, listener net.Listener, ready func()) error {
	err := r.serve(ctx, listener, ready)
	if err == nil || r.isAlone || ctx.Err() != nil {
		return err
	}
	r.failure.Store(&err)
	r.logger.Error("control plane failed, the other roles continue without it: remove the cause and restart farlogd",
		"error", oneLine(err))
	<-ctx.Done()
	return err
}

func (r *controlRole) serve(ctx context.Context, listener net.Listener, ready func()) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case err := <-r.etcd.Failed():
			cancel(fmt.Errorf("etcd gave up: %w", err))
		case <-ctx.Done():
		}
	}()
	err := r.server.Run(ctx, listener, ready)
	if cause := context.Cause(ctx); err == nil && cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}

func (r *controlRole) healthy() error {
	if err := r.failure.Load(); err != nil {
		return fmt.Errorf("control: %w", *err)
	}
	if !r.server.IsHealthy() {
		return errBlind
	}
	return nil
}

func instanceSample(one service.Instance) metrics.InstanceSample {
	return metrics.InstanceSample{
		IsLeading: one.IsLeading, IsEtcdSeen: one.IsEtcdSeen, TargetsAlive: one.TargetsAlive,
		DrainsAlive: one.DrainsAlive, ActsWaiting: one.ActsWaiting, ReportsUnstored: one.ReportsUnstored,
	}
}

func streamSamples(server *service.Server) []metrics.StreamSample {
	statuses := server.Statuses()
	samples := make([]metrics.StreamSample, 0, len(statuses))
	for _, status := range statuses {
		samples = append(samples, metrics.StreamSample{
			Stream:       status.Stream.Spec.Name,
			Condition:    strings.ToLower(strings.TrimPrefix(status.Condition.String(), "CONDITION_")),
			EpochGranted: status.EpochGranted,
			IsDrainAlive: status.DrainAlive,
			Members:      max(1, int(status.Stream.Spec.Members)),
			MembersReady: membersReady(status),
		})
	}
	return samples
}

// membersReady counts the rings that are there for a writer.
func membersReady(status *api.StreamStatus) (count int) {
	for _, ring := range status.Rings {
		if slices.Contains(status.TargetsAlive, ring.Target) && len(ring.RingUuid) > 0 && ring.Error == "" {
			count++
		}
	}
	return count
}
