// Package service answers the API of the control plane over gRPC and HTTP: who calls, what they may do and how much of
// it, and the calls themselves.
package service

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/access"
	"github.com/farlog/farlog/pkg/control/auditlog"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/fabric"
	"github.com/farlog/farlog/pkg/control/leader"
	"github.com/farlog/farlog/pkg/control/refusal"
	"github.com/farlog/farlog/pkg/control/report"
	"github.com/farlog/farlog/pkg/control/state"
	"github.com/farlog/farlog/pkg/identity"
	"github.com/farlog/farlog/pkg/loglimit"
)

const (
	// ReportIntervalDefault is how often agents report.
	ReportIntervalDefault = time.Second
	// FiguresRateDefault is of how many rings figures are told in one ReportInterval. Where there are more, they are
	// told less often, but each figuresEachMost-th time.
	FiguresRateDefault = 3000
	figuresEachMost    = 5
	// LeaseDefault is how long an agent that stops reporting is taken to live.
	LeaseDefault = 5 * time.Second

	acquireWaitMax  = 5 * time.Second // for a ring that is being made
	gracefulStopMax = 2 * time.Second
	firstSyncMax    = 10 * time.Second
	healthInterval  = 500 * time.Millisecond
	missedMost      = 2 // looks at etcd in a row that were in vain
	healthTimeout   = 2 * time.Second
)

// Config is what a control instance needs. Client and Logger are required.
type Config struct {
	Client         *clientv3.Client
	Logger         *slog.Logger
	IsSole         bool          // no other instance can share this etcd: no election is held
	ReportInterval time.Duration // 0 = ReportIntervalDefault
	FiguresRate    int           // 0 = FiguresRateDefault
	Lease          time.Duration // 0 = LeaseDefault; etcd's least is 2 s

	Keeper *identity.Keeper // certificates; nil = no TLS, and whoever comes may do everything: for loopback only
	Access *access.File     // who may do what; required with a Keeper

	CallRate float64 // calls a second of one client; 0 = CallRateDefault

	// how long a reader on another host may take from its grant to its coming; 0 = ReaderGrantDefault
	ReaderGrant time.Duration

	// Audit makes records of the audit stream durable, in order; nil: events are not recorded. It is called by the
	// instance that leads, one call at a time. Without records it opens the stream again, and holds it.
	Audit       func(ctx context.Context, records [][]byte) error
	AuditStream string // its name; "": it is opened when there is something to record, and not before

	// Hooks for metrics; each may be nil. They are called from many goroutines.
	OnRequest func(method, code string, took time.Duration)
	OnGrant   func(stream string)
	OnRound   func() // whenever etcd is probed again, with the state at hand
}

// Server answers the services of farlog.v1.
type Server struct {
	api.UnimplementedControlServiceServer
	api.UnimplementedFabricServiceServer
	api.UnimplementedTargetServiceServer
	api.UnimplementedDrainServiceServer
	api.UnimplementedHostServiceServer

	config        Config
	leads         *clientv3.Client // that the reconciler goes by: Config's
	mirror        *state.Mirror
	fabric        *fabric.Store
	limiter       *limiter
	recorder      *auditlog.Recorder
	liveness      *report.Liveness
	reports       *report.Keeper
	anchors       *report.Anchors
	bases         *report.Bases
	isAnswered    atomic.Bool      // etcd answered the last time it was asked
	missed        atomic.Int32     // and so often in a row it did not
	isLeading     atomic.Bool      // this instance reconciles
	pendingEvents atomic.Int64     // audit events, by its last look
	planned       atomic.Int64     // streams that the reconciler has looked at
	stopping      chan struct{}    // closed when Run ends: watches end too
	seconds       loglimit.Limiter // lines of agents that are not alone on their host, by role and host
}

// New makes a Server; Run starts it.
func New(config Config) *Server {
	config.ReportInterval = cmp.Or(config.ReportInterval, ReportIntervalDefault)
	config.FiguresRate = cmp.Or(config.FiguresRate, FiguresRateDefault)
	config.Lease = cmp.Or(config.Lease, LeaseDefault)
	config.CallRate = cmp.Or(config.CallRate, CallRateDefault)
	config.ReaderGrant = cmp.Or(config.ReaderGrant, ReaderGrantDefault)
	mirror := state.NewMirror(config.Client, config.Logger)
	s := &Server{
		config:   config,
		leads:    config.Client,
		mirror:   mirror,
		limiter:  newLimiter(config.CallRate),
		recorder: auditlog.NewRecorder(config.Client, instanceName(), config.Audit != nil),
		liveness: report.NewLiveness(config.Client, mirror, config.Lease),
		reports:  report.NewKeeper(config.Client, mirror, config.IsSole),
		anchors:  report.NewAnchors(config.Client, mirror, config.IsSole),
		bases:    report.NewBases(config.Client, mirror),
		stopping: make(chan struct{}),
	}
	s.fabric = fabric.NewStore(config.Client, mirror, s.fresh)
	return s
}

// Run serves on listener and reconciles until ctx is done, then stops cleanly. ready is called once, when requests
// are answered. It may be called once.
func (s *Server) Run(ctx context.Context, listener net.Listener, ready func()) error {
	ctx, cancel := context.WithCancel(ctx)
	var workers sync.WaitGroup
	defer workers.Wait()
	defer cancel()
	workers.Go(func() { s.mirror.Run(ctx) })
	if err := s.waitSynced(ctx); err != nil {
		_ = listener.Close()
		return err
	}
	s.isAnswered.Store(true)
	if s.config.Audit != nil && s.config.Keeper != nil {
		files := auditlog.WatchFiles(s.recorder, s.config.Keeper, s.config.Access)
		workers.Go(func() { files.Run(ctx) })
	}
	workers.Go(func() { s.newReconciler().Run(ctx) })

	return s.serve(ctx, listener, &workers, ready)
}

// serve answers gRPC and HTTP until ctx is done.
func (s *Server) serve(ctx context.Context, listener net.Listener, workers *sync.WaitGroup, ready func()) error {
	server, checks := s.newGRPC()
	web, err := s.newHTTP(server)
	if err != nil {
		_ = listener.Close()
		return err
	}
	workers.Go(func() { s.followHealth(ctx, checks) })
	both := newPort(listener, s.config.Keeper)
	served := make(chan error, 3)
	go func() { served <- server.Serve(both.grpc) }()
	go func() { served <- web.Serve(both.http) }()
	go func() { served <- both.run(ctx) }()
	ready()
	select {
	case err = <-served:
		err = fmt.Errorf("serve %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	close(s.stopping)
	checks.Shutdown()
	_ = listener.Close()
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), gracefulStopMax)
	defer cancel()
	if web.Shutdown(stopping) != nil { // first: gRPC's server ends at once what comes to it by way of HTTP/1.1
		_ = web.Close() // somebody still watches
	}
	timer := time.AfterFunc(gracefulStopMax, server.Stop)
	defer timer.Stop()
	server.GracefulStop()
	return err
}

func (s *Server) waitSynced(ctx context.Context) error {
	waiting, cancel := context.WithTimeout(ctx, firstSyncMax)
	defer cancel()
	_, err := s.mirror.Wait(waiting, func(v *state.View) bool { return v.Revision > 0 })
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("read etcd: no answer within %s", firstSyncMax)
	}
	return err
}

func (s *Server) newReconciler() *leader.Reconciler {
	r := &leader.Reconciler{
		Client: s.leads, Mirror: s.mirror, Logger: s.config.Logger, IsSole: s.config.IsSole,
		Instance: instanceName(), IsLeading: &s.isLeading, Planned: &s.planned,
	}
	if s.config.Audit != nil {
		r.Audit = &auditlog.Forwarder{
			Client: s.leads, Mirror: s.mirror, Logger: s.config.Logger, Pending: &s.pendingEvents, Sink: s.config.Audit,
			Stream: s.config.AuditStream,
		}
	}
	return r
}

// instanceName tells one control plane from another.
func instanceName() string {
	host, _ := os.Hostname() // an unknown host only makes the name poorer
	return fmt.Sprintf("%s/%d", host, os.Getpid())
}

func (s *Server) newGRPC() (*grpc.Server, *health.Server) {
	credentials := identity.Insecure()
	if s.config.Keeper != nil {
		credentials = handshaken{credentials}
	}
	server := grpc.NewServer(
		grpc.Creds(credentials),
		grpc.StatsHandler(otelgrpc.NewServerHandler(otelgrpc.WithFilter(api.IsTraced))),
		grpc.StatsHandler(lengths{}),
		grpc.ConnectionTimeout(connectMax),
		grpc.MaxRecvMsgSize(messageReadMax),
		grpc.MaxConcurrentStreams(callsAtOnceMax),
		grpc.StaticStreamWindowSize(callWindow),
		grpc.StaticConnWindowSize(connectionWindow),
		grpc.ChainUnaryInterceptor(s.observeUnary, s.guardUnary),
		grpc.ChainStreamInterceptor(s.observeStream, s.guardStream),
		// Agents behind a dead link are noticed, and their own pings allowed.
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
	)
	api.RegisterControlServiceServer(server, s)
	api.RegisterFabricServiceServer(server, s)
	api.RegisterTargetServiceServer(server, s)
	api.RegisterDrainServiceServer(server, s)
	api.RegisterHostServiceServer(server, s)
	checks := health.NewServer()
	healthpb.RegisterHealthServer(server, checks)
	reflection.Register(server)
	return server, checks
}

// followHealth reports SERVING while etcd is followed and answers. A watch alone does not tell: its client waits in
// silence for a cluster that is away.
func (s *Server) followHealth(ctx context.Context, checks *health.Server) {
	tick := time.NewTicker(healthInterval)
	defer tick.Stop()
	for {
		if s.config.OnRound != nil {
			s.mirror.Load()
			s.config.OnRound()
		}
		if s.isAnswered.Store(s.probe(ctx)); s.isAnswered.Load() {
			s.missed.Store(0)
		} else {
			s.missed.Add(1)
		}
		state := healthpb.HealthCheckResponse_NOT_SERVING
		if s.IsHealthy() {
			state = healthpb.HealthCheckResponse_SERVING
		}
		checks.SetServingStatus("", state)
		checks.SetServingStatus(api.ControlService_ServiceDesc.ServiceName, state)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (s *Server) probe(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	_, err := s.config.Client.Get(ctx, etcd.KeyStreamID, clientv3.WithCountOnly())
	return err == nil
}

// IsHealthy reports whether the control plane sees its state.
func (s *Server) IsHealthy() bool { return s.mirror.Synced.Load() && s.isAnswered.Load() }

// isResyncing reports whether the state is out of sight for longer than a disk may hold etcd up: what is known is old,
// and nothing can be begun.
func (s *Server) isResyncing() bool { return !s.mirror.Synced.Load() || s.missed.Load() >= missedMost }

// Statuses lists every stream, for metrics.
func (s *Server) Statuses() []*api.StreamStatus {
	now, _ := s.mirror.Load()
	return now.Statuses()
}

// Instance is what one control plane knows of itself, and of the agents that report to any.
type Instance struct {
	IsLeading, IsEtcdSeen     bool
	TargetsAlive, DrainsAlive int
	ActsWaiting               int // for the audit stream, as the leader sees them
	ReportsUnstored           int // agents whose last report to this instance could not be stored
}

// Instance tells how this control plane is, for metrics.
func (s *Server) Instance() Instance {
	now, _ := s.mirror.Load()
	return Instance{
		IsLeading: s.isLeading.Load(), IsEtcdSeen: s.IsHealthy(), TargetsAlive: len(now.LiveTargets),
		DrainsAlive: len(now.LiveDrains),
		ActsWaiting: int(s.pendingEvents.Load()), ReportsUnstored: len(s.reports.ListUnstored()),
	}
}

func (s *Server) observeUnary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (any, error) {
	start := time.Now()
	response, err := handler(ctx, request)
	err = refusal.AsStatus(err)
	s.observe(info.FullMethod, err, time.Since(start))
	return response, err
}

func (s *Server) observeStream(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo,
	handler grpc.StreamHandler,
) error {
	start := time.Now()
	err := refusal.AsStatus(handler(server, stream))
	s.observe(info.FullMethod, err, time.Since(start))
	return err
}

func (s *Server) observe(method string, err error, took time.Duration) {
	if s.config.OnRequest != nil {
		s.config.OnRequest(method, status.Code(err).String(), took)
	}
	if code := status.Code(err); code == codes.Internal || code == codes.Unknown {
		s.config.Logger.Error("request failed", "method", method, "error", err)
	}
}
