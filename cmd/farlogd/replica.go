//go:build cgo

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/farlog/farlog/pkg/identity"
	"github.com/farlog/farlog/pkg/metrics"
	"github.com/farlog/farlog/pkg/replica"
	"github.com/farlog/farlog/pkg/store"
)

const (
	replicaAnswerTimeout = 30 * time.Second
	serveIdleTimeout     = time.Minute
)

// serveStore lets replicas of other sites read a drain's store, by what the rules give to their certificates: the same
// that lets them read rings. Without TLS everybody on this host may.
func (d *daemon) serveStore(opened *store.Store) error {
	if d.settings.storeServe == "" {
		return nil
	}
	listener, err := listen("store.serve", d.settings.storeServe)
	if err != nil {
		return err
	}
	d.serveAddress = listener.Addr().String()
	var guard replica.Guard = openStoreGuard{}
	if !d.settings.isInsecure {
		byRules, err := d.newStoreGuard()
		if err != nil {
			_ = listener.Close()
			return err
		}
		listener, guard = tls.NewListener(listener, byRules.keeper.ServerConfig("http/1.1")), byRules
	}
	source := replica.NewStoreSource(opened)
	server := &http.Server{
		Handler: replica.Handler(source, guard), ReadHeaderTimeout: replicaAnswerTimeout,
		IdleTimeout: serveIdleTimeout,
		ErrorLog:    slog.NewLogLogger(d.logger.Handler(), slog.LevelWarn),
	}
	d.parts = append(d.parts, part{
		run: func(ctx context.Context, ready func()) error {
			ready()
			stop := context.AfterFunc(ctx, func() { _ = server.Close() })
			defer stop()
			if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("store.serve: %w", err)
			}
			return nil
		},
		healthy: func() error { return nil },
		close:   func() error { return errors.Join(ignoreClosed(listener.Close()), source.Close()) },
	})
	return nil
}

// findReplicaKeeper gives the certificates by which a second store asks the first.
func (d *daemon) findReplicaKeeper() (*identity.Keeper, error) {
	if d.replicaKeeper == nil {
		return nil, errors.New("the first store is asked without certificates")
	}
	return d.replicaKeeper, nil
}

// openReplica opens the role of a second site.
func (d *daemon) openReplica(context.Context) error {
	if err := d.lockRole(roleReplica); err != nil {
		return err
	}
	source, closeSource, err := d.firstStore(d.settings.replicaFrom)
	if err != nil {
		return err
	}
	opened, err := openOwnStore(d.settings, d.logger)
	if err != nil {
		return errors.Join(err, closeSource())
	}
	logger := d.logger.With("role", roleReplica)
	copying := replica.New(replica.Config{
		Source: source, Store: opened, PollInterval: d.settings.replicaPoll,
		Logger: logger, OnRound: d.newProgress(roleReplica).note,
	})
	scrubbing := &scrub{store: opened, interval: d.settings.verifyInterval, logger: logger}
	metrics.NewStore(d.registry, scrubbing.sample)
	metrics.NewIdentity(d.registry, roleReplica, d.findReplicaKeeper)
	metrics.NewReplica(d.registry, func() ([]metrics.ReplicaSample, bool) { return replicaSamples(copying) })
	d.firstAnswers = append(d.firstAnswers, func() error { return replicaHealth(copying) })
	d.parts = append(d.parts, part{
		run: func(ctx context.Context, ready func()) error {
			go scrubbing.run(ctx)
			go func() {
				select {
				case <-copying.Asked():
					ready()
				case <-ctx.Done():
				}
			}()
			copying.Run(ctx)
			return nil
		},
		healthy: func() error { return replicaHealth(copying) },
		close:   closeSource,
	})
	return nil
}

// firstStore is what a replica copies: by its directory, or from the drain that serves it.
func (d *daemon) firstStore(from string) (replica.Source, func() error, error) {
	if !strings.Contains(from, "://") {
		first, err := store.Open(from, store.Options{})
		if err != nil {
			return nil, nil, fmt.Errorf("--replica-from: %w", err)
		}
		source := replica.NewStoreSource(first)
		return source, source.Close, nil
	}
	parsed, err := url.Parse(from)
	isSecure := !d.settings.isInsecure
	if err != nil || parsed.Host == "" || parsed.Scheme != "https" && isSecure || parsed.Scheme != "http" && !isSecure {
		return nil, nil, &usageError{fmt.Sprintf("--replica-from %q: expected https://host:port, with --insecure "+
			"http://127.0.0.1:port, or a directory", from)}
	}
	client := &http.Client{Timeout: replicaAnswerTimeout}
	if !isSecure {
		if err := identity.CheckInsecure(parsed.Host); err != nil {
			return nil, nil, &usageError{fmt.Sprintf("--insecure: --replica-from %s", err)}
		}
		return replica.NewHTTPSource(from, client), func() error { return nil }, nil
	}
	keeper, err := d.keeperOf(identity.KindReplica)
	d.replicaKeeper = keeper
	if err != nil {
		return nil, nil, fmt.Errorf("--replica-from %q needs certificates: %w", from, err)
	}
	dialer := &net.Dialer{Timeout: 5 * time.Second}
	transport := &http.Transport{DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		config, err := keeper.ClientConfigTo(identity.KindDrain, parsed.Hostname())
		if err != nil {
			return nil, err
		}
		return (&tls.Dialer{NetDialer: dialer, Config: config}).DialContext(ctx, network, address)
	}}
	client.Transport = transport
	return replica.NewHTTPSource(from, client), func() error { transport.CloseIdleConnections(); return nil }, nil
}

func replicaSamples(copying *replica.Replica) ([]metrics.ReplicaSample, bool) {
	list, failure := copying.Progress()
	samples := make([]metrics.ReplicaSample, len(list))
	for i, p := range list {
		samples[i] = metrics.ReplicaSample{
			Stream: p.Stream, Records: p.Records, Bytes: p.Bytes,
			LagBytes: uint64(p.LagBytes), LagAge: p.LagAge, IsLagKnown: p.IsLagKnown, IsFailing: p.LastError != "",
		}
	}
	return samples, failure == ""
}

func replicaHealth(copying *replica.Replica) error {
	list, failure := copying.Progress()
	var errs []error
	if failure != "" {
		errs = append(errs, fmt.Errorf("first store: %s", failure))
	}
	for _, p := range list {
		if p.LastError != "" {
			errs = append(errs, fmt.Errorf("replica of stream %s: %s", p.Stream, p.LastError))
		}
	}
	return errors.Join(errs...)
}
