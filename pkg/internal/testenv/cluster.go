package testenv

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc"

	apiv1 "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/identity"
	"github.com/farlog/farlog/pkg/internal/port"
)

// Cluster is one control, one target and one drain, each a process of its own.
type Cluster struct {
	Dir                    string
	StoreDir               string
	ControlAddress         string
	Control, Target, Drain *Process
	DrainArgs              []string // beyond what StartDrain gives
	TargetArgs             []string
	ControlArgs            []string
	EtcdEndpoints          []string          // of an external cluster; then there are two control planes
	Controllers            []Controller      // those
	TraceEndpoint          string            // of a collector of spans; empty = none
	LogLevel               string            // of each role; empty = info
	AuditLevel             string            // of the audit stream; empty = events are not recorded
	MetricsListen          string            // of each role; empty = off
	Metrics                map[string]string // by role: where its metrics are
	// a command that becomes each of them, such as ip netns exec NAME; empty = none
	Under []string

	tb        testing.TB
	processes []*Process // all that were started, for what they said
}

// NewCluster starts the three roles with all their files in dir.
func NewCluster(tb testing.TB, dir string, drainArgs ...string) *Cluster {
	tb.Helper()
	c := PrepareCluster(tb, dir, drainArgs...)
	c.Start()
	return c
}

// NewRemoteCluster is NewCluster with every role on a host of its own, as far as the roles can tell: the target listens
// at host, and writer and drain reach its rings by libfabric only. under is a command that becomes each of them; nil =
// none.
func NewRemoteCluster(tb testing.TB, dir, host string, under []string, drainArgs ...string) *Cluster {
	tb.Helper()
	c := PrepareRemoteCluster(tb, dir, host, under, drainArgs...)
	c.Start()
	return c
}

// PrepareRemoteCluster is NewFarCluster without starting anything: more may be said before Start.
func PrepareRemoteCluster(tb testing.TB, dir, host string, under []string, drainArgs ...string) *Cluster {
	tb.Helper()
	c := &Cluster{
		Dir: dir, StoreDir: filepath.Join(dir, "store"), tb: tb, ControlAddress: freeAddress(tb, host),
		Under: under,
	}
	c.DrainArgs = append([]string{"--host-name", "central"}, drainArgs...)
	c.TargetArgs = []string{"--host-name", "storage", "--listen", "ofi:tcp://" + freeAddress(tb, host)}
	return c
}

// NewTarget starts another target of a cluster, on a host of its own as far as the roles can tell.
func NewTarget(tb testing.TB, c *Cluster, name, host string) *Process {
	tb.Helper()
	dir := filepath.Join(c.Dir, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		tb.Fatal(err)
	}
	process, _ := StartDaemonUnder(tb, c.Under, dir, "target", "--data-dir", dir, "--control", c.ControlAddress,
		"--metrics-listen", "off",
		"--host-name", name, "--listen", "ofi:tcp://"+freeAddress(tb, host))
	return process
}

// Start starts the three roles.
func (c *Cluster) Start() {
	c.tb.Helper()
	c.tb.Cleanup(c.checkSecrets) // before the directory goes
	if c.EtcdEndpoints == nil {
		c.StartControl()
	} else {
		c.startControls()
	}
	c.StartTarget()
	c.StartDrain()
}

// Controller is one of several control planes on one etcd cluster.
type Controller struct {
	*Process
	Ready
}

// startControls starts two control planes on the cluster of etcd that was given; agents and programs know the addresses
// of both.
func (c *Cluster) startControls() {
	c.tb.Helper()
	files := identity.In(TLSDir(c.tb), identity.KindControl)
	var addresses []string
	for i := range 2 {
		dir := filepath.Join(c.Dir, fmt.Sprintf("control%d", i))
		if err := os.Mkdir(dir, 0o755); err != nil {
			c.tb.Fatal(err)
		}
		process, ready := StartDaemon(c.tb, dir, "control", "--data-dir", dir, "--listen",
			freeAddress(c.tb, "127.0.0.1"), "--metrics-listen", "127.0.0.1:0",
			"--audit-stream", c.auditStream(), "--audit-level", cmp.Or(c.AuditLevel, "persistent"), "--etcd-endpoints",
			strings.Join(c.EtcdEndpoints, ","), "--etcd-ca", files.Authority, "--etcd-cert", files.Cert,
			"--etcd-key", files.Key)
		c.Controllers, addresses = append(c.Controllers, Controller{process, ready}), append(addresses, ready.Control)
		c.processes = append(c.processes, process)
	}
	c.ControlAddress = strings.Join(addresses, ",")
}

// PrepareCluster is NewCluster without starting anything: more may be said before Start.
func PrepareCluster(tb testing.TB, dir string, drainArgs ...string) *Cluster {
	return &Cluster{
		Dir: dir, StoreDir: filepath.Join(dir, "store"), DrainArgs: drainArgs, tb: tb,
		ControlAddress: freeAddress(tb, "127.0.0.1"),
	}
}

// FreePort is one that nobody else gets while the test's process lives. A program that is started again must listen
// where it did.
func FreePort(tb testing.TB) int {
	tb.Helper()
	free, err := port.Reserve()
	if err != nil {
		tb.Fatal(err)
	}
	return free
}

// freeAddress is host with a port of FreePort.
func freeAddress(tb testing.TB, host string) string {
	tb.Helper()
	return net.JoinHostPort(host, strconv.Itoa(FreePort(tb)))
}

// StartControl starts the control plane, after the first time at the address it had.
func (c *Cluster) StartControl() {
	c.tb.Helper()
	process, ready := StartDaemonUnder(c.tb, c.Under, c.Dir, "control",
		append([]string{
			"--data-dir", filepath.Join(c.Dir, "control"), "--listen", c.ControlAddress,
			"--metrics-listen", c.metricsListen(), "--audit-stream", c.auditStream(), "--audit-level",
			cmp.Or(c.AuditLevel, "persistent"), "--log-level", c.logLevel(), "--trace-endpoint", c.TraceEndpoint,
		}, c.ControlArgs...)...)
	c.Control, c.ControlAddress = process, ready.Control
	c.keepMetrics("control", ready)
	c.processes = append(c.processes, process)
}

// StartTarget starts the target.
func (c *Cluster) StartTarget() {
	c.tb.Helper()
	args := append([]string{
		"--data-dir", filepath.Join(c.Dir, "target"), "--control", c.ControlAddress,
		"--metrics-listen", c.metricsListen(), "--log-level", c.logLevel(), "--trace-endpoint", c.TraceEndpoint,
	}, c.TargetArgs...)
	process, ready := StartDaemonUnder(c.tb, c.Under, c.Dir, "target", args...)
	c.Target = process
	c.keepMetrics("target", ready)
	c.processes = append(c.processes, c.Target)
}

// StartDrain starts the drain; it needs no control plane once it has had one.
func (c *Cluster) StartDrain() {
	c.tb.Helper()
	args := append([]string{
		"--data-dir", filepath.Join(c.Dir, "drain"), "--store-dir", c.StoreDir, "--control",
		c.ControlAddress,
		"--metrics-listen", c.metricsListen(), "--log-level", c.logLevel(), "--trace-endpoint", c.TraceEndpoint,
	}, c.DrainArgs...)
	process, ready := StartDaemonUnder(c.tb, c.Under, c.Dir, "drain", args...)
	c.Drain = process
	c.keepMetrics("drain", ready)
	c.processes = append(c.processes, c.Drain)
}

func (c *Cluster) auditStream() string {
	if c.AuditLevel == "" {
		return "off"
	}
	return "farlog/audit"
}

func (c *Cluster) logLevel() string { return cmp.Or(c.LogLevel, "info") }

func (c *Cluster) metricsListen() string {
	if c.MetricsListen == "" {
		return "off"
	}
	return c.MetricsListen
}

func (c *Cluster) keepMetrics(role string, ready Ready) {
	if c.Metrics == nil {
		c.Metrics = map[string]string{}
	}
	c.Metrics[role] = ready.Metrics
}

// CreateStream creates a stream and gives its ring's URI.
func (c *Cluster) CreateStream(name string, args ...string) string {
	c.tb.Helper()
	MustRun(c.tb, "farlog", append([]string{"stream", "create", name, "--control", c.ControlAddress}, args...)...)
	status := c.Stream(name)
	for _, ring := range status.GetRings() {
		if ring.GetUri() != "" {
			return ring.GetUri()
		}
	}
	c.tb.Fatalf("stream %s has no ring: %s", name, status.GetReason())
	return ""
}

// Stream asks the control plane how a stream is.
func (c *Cluster) Stream(name string) *apiv1.StreamStatus {
	c.tb.Helper()
	connection := c.Dial(c.ControlAddress)
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), Timeout)
	defer cancel()
	response, err := apiv1.NewControlServiceClient(connection).GetStream(ctx, &apiv1.GetStreamRequest{Name: name})
	if err != nil {
		c.tb.Fatalf("get stream %s: %v", name, err)
	}
	return response.GetStream()
}

// Dial makes an administrator's connection to the control plane there.
func (c *Cluster) Dial(address string) *grpc.ClientConn {
	c.tb.Helper()
	choice := identity.Choice{Dir: TLSDir(c.tb), Control: address, Kinds: []identity.Kind{identity.KindAdmin}}
	connection, err := apiv1.Dial(address, identity.NewClientCredentials(choice.Finder()))
	if err != nil {
		c.tb.Fatal(err)
	}
	return connection
}
