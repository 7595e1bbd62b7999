package service

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/refusal/refusaltest"
	"github.com/farlog/farlog/pkg/control/state"
)

// stepTimeout bounds every wait of a test; it is never what a test measures.
const stepTimeout = 30 * time.Second

// pollPause is between two looks at what a test waits for.
const pollPause = 10 * time.Millisecond

// mortalLease is how long one lives that reports to a mortal instance.
const mortalLease = 2 * time.Second

// instance is a control plane in this process, on a real embedded etcd, spoken to over a real connection.
type instance struct {
	t       *testing.T
	control api.ControlServiceClient
	target  api.TargetServiceClient
	drain   api.DrainServiceClient
	conn    *grpc.ClientConn
	etcd    *etcd.Cluster
	server  *Server
	stop    func()
	answer  atomic.Value // the last to a call, as text: for who waits in vain
}

func startInstance(t *testing.T, etcd *etcd.Cluster, isSole bool) *instance {
	t.Helper()
	return startInstanceWith(t, etcd, Config{IsSole: isSole})
}

// startMortal -- one where whoever reports no more is soon taken for dead, and whoever reports late as well: on a slow
// machine any two reports may be further apart than that. A test that wants a death at a certain moment has endLife.
func startMortal(t *testing.T, etcd *etcd.Cluster, isSole bool) *instance {
	t.Helper()
	return startInstanceWith(t, etcd, Config{IsSole: isSole, Lease: mortalLease})
}

func startInstanceWith(t *testing.T, etcd *etcd.Cluster, config Config) *instance {
	t.Helper()
	config.Client, config.Logger = etcd.Client(), slog.New(slog.NewTextHandler(io.Discard, nil))
	if config.Lease == 0 {
		config.Lease = stepTimeout // who has reported once lives on, however slow the machine is
	}
	return startServer(t, etcd, New(config))
}

func startServer(t *testing.T, etcd *etcd.Cluster, server *Server) *instance {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- server.Run(ctx, listener, func() { close(ready) }) }()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	one := dialInstance(t, listener.Addr().String())
	one.etcd, one.server = etcd, server
	one.stop = sync.OnceFunc(func() {
		one.conn.Close()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(one.stop)
	return one
}

func dialInstance(t *testing.T, address string) *instance {
	t.Helper()
	one := &instance{t: t}
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUnaryInterceptor(one.ask))
	if err != nil {
		t.Fatal(err)
	}
	one.conn, one.control, one.target, one.drain = conn, api.NewControlServiceClient(conn),
		api.NewTargetServiceClient(conn), api.NewDrainServiceClient(conn)
	return one
}

func (i *instance) context() context.Context {
	ctx, cancel := context.WithTimeout(context.WithValue(i.t.Context(), patient{}, true), stepTimeout)
	i.t.Cleanup(cancel)
	return ctx
}

// ask makes each call, and keeps its answer.
func (i *instance) ask(ctx context.Context, method string, request, response any, conn *grpc.ClientConn,
	invoke grpc.UnaryInvoker, options ...grpc.CallOption,
) error {
	for {
		err := invoke(ctx, method, request, response, conn, options...)
		i.answer.Store(fmt.Sprintf("%s: %.2000v, %v", method, response, err))
		refusaltest.Check(i.t, err) // whatever the test is about
		if !api.IsBlind(err) || ctx.Value(patient{}) == nil {
			return err
		}
		select {
		case <-time.After(pollPause):
		case <-ctx.Done():
			return err
		}
	}
}

func (i *instance) create(name string) *api.Stream {
	i.t.Helper()
	response, err := i.control.CreateStream(i.context(), &api.CreateStreamRequest{Spec: &api.StreamSpec{Name: name}})
	if err != nil {
		i.t.Fatal(err)
	}
	return response.Stream
}

// acquire asks for a grant of rings on the holder's host until they are there: on a slow machine a ring may take longer
// than a call waits for it.
func (i *instance) acquire(name string) (*api.Grant, error) {
	for deadline := time.Now().Add(stepTimeout); ; {
		grant, err := i.acquireOnce(name)
		if status.Code(err) != codes.Unavailable || time.Now().After(deadline) {
			return grant, err
		}
	}
}

func (i *instance) acquireOnce(name string) (*api.Grant, error) {
	response, err := i.control.AcquireWriter(i.context(),
		&api.AcquireWriterRequest{Stream: name, Holder: &api.Holder{Host: "h", Pid: 1, Name: "test"}})
	return response.GetGrant(), err
}

// reportTarget says, as a target's daemon does, that these rings are there, and returns when that is seen: a report is
// answered once etcd has it, which is a moment before the control plane knows of it.
func (i *instance) reportTarget(id string, rings ...*api.RingState) {
	i.t.Helper()
	reported := &api.TargetState{Agent: &api.Agent{Id: id, Host: "alpha"}, Rings: rings}
	state.TargetKind.InOrder(reported) // as it is shown
	report := func() error {
		_, err := i.target.ReportTarget(i.context(), &api.ReportTargetRequest{State: reported})
		return err
	}
	i.untilReported(id, report, func(agents *api.ListAgentsResponse) bool {
		return slices.Contains(agents.TargetsAlive, id) &&
			slices.ContainsFunc(agents.Targets, func(seen *api.TargetState) bool { return proto.Equal(seen, reported) })
	})
}

func (i *instance) reportDrain(id string) {
	i.t.Helper()
	i.reportDrainOf(&api.Agent{Id: id, Host: "alpha"})
}

// reportDrainOf returns when the report is seen, too.
func (i *instance) reportDrainOf(agent *api.Agent) {
	i.t.Helper()
	i.untilReported(
		agent.Id,
		func() error { return i.sendDrainReport(agent) },
		func(agents *api.ListAgentsResponse) bool {
			return slices.Contains(agents.DrainsAlive, agent.Id) &&
				slices.ContainsFunc(agents.Drains, func(seen *api.DrainState) bool {
					return seen.Agent.Id == agent.Id && bytes.Equal(seen.Agent.StoreUuid, agent.StoreUuid)
				})
		},
	)
}

func (i *instance) sendDrainReport(agent *api.Agent) error {
	_, err := i.drain.ReportDrain(i.context(), &api.ReportDrainRequest{State: &api.DrainState{Agent: agent}})
	return err
}

// untilReported reports, and again every second until that is seen: where leases are short, one may lapse meanwhile.
func (i *instance) untilReported(id string, report func() error, isSeen func(*api.ListAgentsResponse) bool) {
	i.t.Helper()
	var next time.Time
	i.until("the report of "+id+" is seen", func() bool {
		if time.Now().After(next) {
			// Unavailable: a slow disk holds its etcd up
			if err := report(); err != nil && status.Code(err) != codes.Unavailable {
				i.t.Fatal(err)
			}
			next = time.Now().Add(time.Second)
		}
		return isSeen(i.agents())
	})
}

func (i *instance) agents() *api.ListAgentsResponse {
	i.t.Helper()
	agents, err := i.control.ListAgents(i.context(), &api.ListAgentsRequest{})
	if err != nil {
		i.t.Fatal(err)
	}
	return agents
}

// endLife ends the life of an agent as its lease does when it runs out, at the moment when a test wants it.
func (i *instance) endLife(key string) {
	i.t.Helper()
	got, err := i.etcd.Client().Get(i.context(), key)
	if err != nil || len(got.Kvs) != 1 {
		i.t.Fatalf("%s is not alive: %v, %v", key, got, err)
	}
	if _, err := i.etcd.Client().Revoke(i.context(), clientv3.LeaseID(got.Kvs[0].Lease)); err != nil {
		i.t.Fatal(err)
	}
}

func ring(stream, target string) *api.RingState {
	return &api.RingState{
		Stream: stream, Target: target, Uri: "mem:/dev/shm/" + stream,
		RingUuid: []byte("0123456789abcdef"),
		Contract: &api.Contract{Level: api.Level_LEVEL_PERSISTENT}, CapacityBytes: 1 << 20,
	}
}

// until polls a condition of the control plane through its own interface. The condition must become true for good, or
// change nothing when it comes true too early.
func (i *instance) until(what string, done func() bool) {
	i.t.Helper()
	for deadline := time.Now().Add(stepTimeout); !done(); time.Sleep(pollPause) {
		if time.Now().After(deadline) {
			i.t.Fatalf("never: %s; the last answer: %v", what, i.answer.Load())
		}
	}
}

func (i *instance) status(name string) *api.StreamStatus {
	i.t.Helper()
	response, err := i.control.GetStream(i.context(), &api.GetStreamRequest{Name: name})
	if err != nil {
		i.t.Fatal(err)
	}
	return response.Stream
}
