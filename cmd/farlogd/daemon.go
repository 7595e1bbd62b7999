package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/farlog/farlog/cmd/internal/version"
	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/access"
	"github.com/farlog/farlog/pkg/identity"
	"github.com/farlog/farlog/pkg/metrics"
	"github.com/farlog/farlog/pkg/nvmet"
	"github.com/farlog/farlog/pkg/replace"
)

// part is one role, opened and ready to run. run works until ctx is done, calls ready once, and returns an error only
// when the whole daemon has to end. healthy says what is wrong, nil for nothing.
type part struct {
	run     func(ctx context.Context, ready func()) error
	healthy func() error
	close   func() error
}

// daemon is one process with some roles. Everything is opened before anything runs, so that a port in use or a
// directory that is taken ends it before it has done anything.
type daemon struct {
	settings *settings
	stdout   io.Writer
	stderr   io.Writer
	logger   *slog.Logger
	registry *prometheus.Registry

	links        []*controlLink // of the roles that report to the control plane
	loops        []*progress    // of the roles
	firstAnswers []func() error // what others than the control plane said to a role when it asked first
	ready        readyFile
	notifier     *notifier

	controlAddress  string // where the agents of this process find the control plane
	metricsAddress  string
	serveAddress    string           // where replicas read the store; "" = nowhere
	hostSocket      string           // where programs of this host ask for grants; "" without the role
	metricsListener net.Listener     // nil when off
	controlListener net.Listener     // nil without the role
	keeper          *identity.Keeper // of the control plane; nil without the role, and without TLS
	hasSweep        bool             // of counters of writers that are gone
	replicaKeeper   *identity.Keeper // of a second store that asks the first by certificates; else nil
	access          *access.File
	choice          identity.Choice // where its certificates are
	isAuthority     bool            // the control plane made them itself
	isMetricsSecure bool
	clock           *clockJumps
	nvmet           *nvmet.Keeper // nil: the kernel's NVMe target is not declared
	parts           []part
}

func newDaemon(s *settings, stdout, stderr io.Writer) *daemon {
	var level slog.Level
	if err := level.UnmarshalText([]byte(s.logLevel)); err != nil {
		level = slog.LevelInfo // cannot be: the setting was checked
	}
	d := &daemon{
		settings: s, stdout: stdout, stderr: stderr, controlAddress: s.control, ready: readyFile{path: s.readyFile},
		logger:   slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level})),
		registry: metrics.NewRegistry(version.Of()),
	}
	d.notifier = &notifier{logger: d.logger, stalled: d.stalled, isHeldUp: isHeldUpByDevice}
	d.clock = newClockJumps(d.logger)
	metrics.NewClock(d.registry, metrics.KernelClock)
	metrics.NewClockJumps(d.registry, d.clock.sample)
	metrics.NewClockKeeper(d.registry, metrics.AskKeeper())
	return d
}

func (d *daemon) run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, d.close()) }()
	for _, step := range []func() error{
		checkAddressSpace, guardMappings, d.ready.clear,
		d.listenMetrics, d.listenControl, // a start that a taken port ends leaves no directory behind
		d.chooseSecurity, d.readNVMeT,
		func() error { return makeDataDir(d.settings.dataDir) },
		d.openSecurity, d.serveMetrics,
		func() error { return d.openTraces(ctx) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	for _, role := range []struct {
		name string
		open func(context.Context) error
	}{
		{roleControl, d.openControl},
		{roleTarget, d.openNVMeT},
		{roleTarget, d.openTarget},
		{roleDrain, d.openDrain},
		{roleHost, d.openHost},
		{roleReplica, d.openReplica},
	} {
		if !d.settings.has(role.name) {
			continue
		}
		if err := role.open(ctx); err != nil {
			if ctx.Err() != nil {
				return nil // asked to stop while starting
			}
			return err
		}
	}
	return d.serve(ctx)
}

// serve runs the parts in order, each when the one before is ready, until ctx is done or one of them fails.
func (d *daemon) serve(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		d.clock.run(ctx)
		return nil
	})
	for _, one := range d.parts {
		ready := make(chan struct{})
		group.Go(func() error { return one.run(ctx, func() { close(ready) }) })
		select {
		case <-ready:
		case <-ctx.Done():
			return group.Wait()
		}
	}
	for _, link := range d.links { // a report has a deadline
		select {
		case <-link.first:
		case <-ctx.Done():
		}
	}
	for _, one := range d.loops {
		one.expect()
	}
	if err := d.notifyReady(d.announce()); err != nil {
		return err
	}
	group.Go(func() error { return d.notifier.run(ctx) })
	err := group.Wait()
	d.logger.Info("stopping", "roles", d.settings.roles)
	return err
}

// close gives everything back, the last opened first.
func (d *daemon) close() error {
	var errs []error
	for _, listener := range []net.Listener{d.controlListener, d.metricsListener} {
		if listener != nil {
			errs = append(errs, ignoreClosed(listener.Close()))
		}
	}
	for i := len(d.parts) - 1; i >= 0; i-- {
		if d.parts[i].close != nil {
			errs = append(errs, d.parts[i].close())
		}
	}
	return errors.Join(append(errs, d.ready.remove())...)
}

func (d *daemon) listenMetrics() error {
	if d.settings.metricsListen == "off" {
		return nil
	}
	listener, err := listen("metrics.listen", d.settings.metricsListen)
	if err != nil {
		return err
	}
	d.metricsListener, d.metricsAddress = listener, listener.Addr().String()
	return nil
}

func (d *daemon) serveMetrics() error {
	if d.metricsListener == nil {
		return nil
	}
	listener, err := d.secureMetrics(d.metricsListener)
	if err != nil {
		return err
	}
	server := metrics.NewServer(listener, d.registry, d.healthy)
	d.parts = append(d.parts, part{
		run: func(ctx context.Context, ready func()) error {
			ready()
			return server.Run(ctx)
		},
		healthy: func() error { return nil },
	})
	return nil
}

// newLink is for a role that reports to the control plane.
func (d *daemon) newLink(role string) *controlLink {
	link := newControlLink(role)
	link.progress = d.newProgress(role)
	d.links = append(d.links, link)
	return link
}

func (d *daemon) healthy() error {
	errs := []error{d.stalled(time.Now())}
	for _, one := range d.parts {
		errs = append(errs, one.healthy())
	}
	return errors.Join(errs...)
}

// ready is what a script reads: one JSON object on one line.
type ready struct {
	Ready   bool     `json:"ready"`
	Problem string   `json:"problem,omitempty"` // why it is not
	PID     int      `json:"pid"`
	Roles   []string `json:"roles"`
	Control string   `json:"control,omitempty"`
	Metrics string   `json:"metrics,omitempty"`
	DataDir string   `json:"data_dir"`
	TLSDir  string   `json:"tls_dir,omitempty"`
	Store   string   `json:"store_dir,omitempty"`
	Serve   string   `json:"store_serve,omitempty"`
	Host    string   `json:"host_socket,omitempty"`
}

// announce says to people on stderr, and to programs on stdout and in the ready file, that the daemon is ready. It
// returns the text for people.
func (d *daemon) announce() (says string, err error) {
	s := d.settings
	message := ready{
		Ready: true, PID: os.Getpid(), Roles: s.roles, Control: d.controlAddress,
		Metrics: d.metricsAddress, DataDir: s.dataDir, TLSDir: d.choice.Dir,
	}
	if s.has(roleDrain) || s.has(roleReplica) {
		message.Store = s.storeDir
	}
	message.Host, message.Serve = d.hostSocket, d.serveAddress
	says = "ready: " + joinAnd(s.roles)
	answers := slices.Clone(d.firstAnswers)
	for _, link := range d.links {
		answers = append(answers, link.healthy)
	}
	for _, answer := range answers {
		if err := answer(); err != nil {
			message.Ready, message.Problem = false, err.Error()
			says = fmt.Sprintf("started, not ready yet, retrying: %s", err)
			break
		}
	}
	line, err := json.Marshal(message)
	if err != nil {
		return "", err
	}
	fmt.Fprintf(d.stderr, "farlogd is %s\n", says)
	fmt.Fprintf(d.stderr, "  control  %s\n", d.controlAddress)
	if s.isInsecure {
		fmt.Fprintf(d.stderr, "  insecure: no TLS and no identity: every program on this host has all roles\n")
	} else if d.choice.Dir != "" {
		fmt.Fprintf(d.stderr, "  tls      %s\n", d.choice.Dir)
	}
	if d.metricsAddress != "" {
		fmt.Fprintf(d.stderr, "  metrics  %s\n", d.metricsURL())
	}
	fmt.Fprintf(d.stderr, "  data     %s\n", s.dataDir)
	if d.hostSocket != "" {
		fmt.Fprintf(d.stderr, "  host     %s\n", d.hostSocket)
	}
	if s.has(roleControl) {
		flag := ""
		if d.controlAddress != listenDefault {
			flag = " --control " + d.controlAddress
		}
		if s.isInsecure {
			flag += " --insecure"
		}
		fmt.Fprintf(d.stderr, "next:\n  farlog%s stream create desk7/orders\n  farlog%s status\n", flag, flag)
	}
	fmt.Fprintf(d.stdout, "%s\n", line)
	return says, d.ready.write(append(line, '\n'))
}

func (d *daemon) metricsURL() string {
	if d.isMetricsSecure {
		return "https://" + d.metricsAddress + "/metrics"
	}
	return "http://" + d.metricsAddress + "/metrics"
}

// writeWhole lets a reader see the old file or the new one, never a part, also behind a power cut.
func writeWhole(path string, content []byte) error { return replace.File(path, content, 0o644) }

// writeSecret is writeWhole for the daemon's own user alone.
func writeSecret(path string, content []byte) error { return replace.File(path, content, 0o600) }

// listen opens a port; the error names the setting.
func listen(setting, address string) (net.Listener, error) {
	listener, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%s %q: port is in use: stop the process that has it, or give another address (port 0 "+
			"= any free one)", setting, address)
	}
	if err != nil {
		return nil, fmt.Errorf("%s %q: cannot listen: %w", setting, address, err)
	}
	return listener, nil
}

// makeDataDir makes the directory and finds out at once whether it can be written.
func makeDataDir(dir string) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("data.dir %q: cannot be made: %w", dir, errors.Unwrap(err))
	}
	probe, err := os.CreateTemp(dir, ".writable-*")
	if err != nil {
		return fmt.Errorf("data.dir %q: cannot be written: %w", dir, errors.Unwrap(err))
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}

func (d *daemon) dial(kind identity.Kind) (*grpc.ClientConn, error) {
	conn, err := api.Dial(d.controlAddress, d.credentials(kind))
	if err != nil {
		return nil, fmt.Errorf("control %q: %w", d.controlAddress, err)
	}
	return conn, nil
}

func (d *daemon) agent(dir string) *api.Agent {
	return &api.Agent{
		Id: d.settings.agentID(dir), Host: d.settings.hostName, Pid: uint32(os.Getpid()),
		MetricsAddress: d.metricsAddress,
	}
}

// warnOfAddresses says so when grants for this host cannot be bound to it.
func (d *daemon) warnOfAddresses() {
	if why := identity.WhyAny(d.settings.hostAddresses); why != "" {
		d.logger.Warn(why)
	}
}

func (d *daemon) dir(name string) string { return filepath.Join(d.settings.dataDir, name) }

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
