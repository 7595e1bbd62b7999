package service

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/etcd/etcdtest"
	"github.com/farlog/farlog/pkg/hostagent"
)

// agentOf asks a control plane as a host agent does, and counts how often.
type agentOf struct {
	control                        api.ControlServiceClient
	writers                        *hostagent.Writers
	extended, checked, told, downs atomic.Int64 // questions for one, for all; messages and breaks of the watch
}

func hostTerms(said *api.WriterSettings) hostagent.Terms {
	return hostagent.Terms{Level: uint32(said.Level), Policy: uint32(said.Policy), Deadline: said.Deadline.AsDuration()}
}

func apiTerms(terms *hostagent.Terms) *api.WriterSettings {
	said := &api.WriterSettings{Level: api.Level(terms.Level), Policy: api.Policy(terms.Policy)}
	if terms.Deadline > 0 {
		said.Deadline = durationpb.New(terms.Deadline)
	}
	return said
}

func (a *agentOf) extend(ctx context.Context, request hostagent.ExtendRequest) ([]hostagent.Extension, hostagent.Terms,
	error,
) {
	a.extended.Add(1)
	response, err := a.control.ExtendWriter(ctx, &api.ExtendWriterRequest{
		Stream: request.Stream, Epoch: request.Epoch,
		Holder:    &api.Holder{Host: "h", Pid: uint32(request.PID)},
		RingUuids: request.RingUUIDs, Running: apiTerms(request.Running),
	})
	if err != nil {
		return nil, hostagent.Terms{}, err
	}
	return nil, hostTerms(response.Declared), nil
}

func (a *agentOf) check(ctx context.Context, writers []hostagent.Known) (changed []int, err error) {
	a.checked.Add(1)
	request := &api.CheckWritersRequest{Host: "h"}
	for _, one := range writers {
		request.Writers = append(request.Writers, &api.RunningWriter{
			Stream: one.Stream, Epoch: one.Epoch,
			Pid: uint32(one.PID), RingUuids: one.RingUUIDs, Running: apiTerms(one.Running),
			Declared: apiTerms(&one.Declared),
		})
	}
	response, err := a.control.CheckWriters(ctx, request)
	for _, place := range response.GetChanged() {
		changed = append(changed, int(place))
	}
	return changed, err
}

func (a *agentOf) watch(ctx context.Context, onTold func([]hostagent.Told, []string, bool), onDown func()) {
	api.Follow(ctx, func(ctx context.Context) (grpc.ServerStreamingClient[api.WatchWritersResponse], error) {
		return a.control.WatchWriters(ctx, &api.WatchWritersRequest{Host: "h"})
	}, func(message *api.WatchWritersResponse) {
		var told []hostagent.Told
		for _, one := range message.Writers {
			told = append(told, hostagent.Told{
				Stream: one.Stream, Epoch: one.Epoch, PID: int32(one.Pid),
				Declared: hostTerms(one.Declared), Running: hostTerms(one.Running), RingUUIDs: one.RingUuids,
			})
		}
		onTold(told, message.Gone, message.Snapshot)
		a.told.Add(1)
	}, func(error) {
		onDown()
		a.downs.Add(1)
	})
}

// hosted is a control plane with a stream "a" that a process of host "h" writes, and that host's agent.
func hosted(t *testing.T, etcd *etcd.Cluster, dial func(*instance) api.ControlServiceClient) (one *instance,
	agent *agentOf, request hostagent.ExtendRequest,
) {
	t.Helper()
	one = startInstance(t, etcd, true)
	one.reportTarget("t1")
	one.create("a")
	one.reportTarget("t1", ring("a", "t1"))
	grant, err := one.acquire("a")
	if err != nil {
		t.Fatal(err)
	}
	agent = &agentOf{control: dial(one)}
	agent.writers = hostagent.NewWriters(hostagent.Questions{
		Extend: agent.extend, Check: agent.check,
		Watch: agent.watch,
	}, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { agent.writers.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	terms := hostTerms(&api.WriterSettings{Level: grant.Level, Policy: grant.Policy, Deadline: grant.Deadline})
	return one, agent, hostagent.ExtendRequest{
		Stream: "a", Epoch: grant.Epoch, PID: 1,
		RingUUIDs: [][]byte{grant.Members[0].RingUuid}, Running: &terms,
	}
}

// reject has the stream declared otherwise.
func (i *instance) reject() {
	i.t.Helper()
	spec := i.status("a").Stream.Spec
	spec.Policy = api.Policy_POLICY_REJECT
	if _, err := i.control.UpdateStream(i.context(), &api.UpdateStreamRequest{Spec: spec}); err != nil {
		i.t.Fatal(err)
	}
}

// Writers that ask their host agent are answered by it alone while nothing changes, and learn of what does when they
// ask next. A watch that breaks is opened again, and tells what was missed; a writer whose stream somebody else was
// granted is not told that all is well.
func TestHostAgent_IsToldOfItsWriters(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Open(t, t.TempDir())
	var way atomic.Pointer[net.Conn]
	one, agent, request := hosted(t, etcd, func(one *instance) api.ControlServiceClient {
		dial := func(ctx context.Context, address string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
			way.Store(&conn)
			return conn, err
		}
		conn, err := grpc.NewClient("passthrough:///"+one.conn.Target(),
			grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(dial))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return api.NewControlServiceClient(conn)
	})
	one.until("the agent is told", func() bool { return agent.told.Load() == 1 })
	declared := func() hostagent.Terms {
		_, declared, err := agent.writers.Extend(t.Context(), request)
		if err != nil {
			t.Error(err)
		}
		return declared
	}
	for range 5 {
		if got := declared(); got != *request.Running {
			t.Fatalf("told %v", got)
		}
	}
	if calls := agent.extended.Load(); calls != 1 {
		t.Errorf("%d calls for five questions, expected 1", calls)
	}
	one.reject()
	one.until("it learns of another policy",
		func() bool { return declared().Policy == uint32(api.Policy_POLICY_REJECT) })
	request.Running.Policy = uint32(api.Policy_POLICY_REJECT)
	one.until("and is answered by the agent again", func() bool {
		before := agent.extended.Load()
		declared()
		return agent.extended.Load() == before
	})
	if checks := agent.checked.Load(); checks != 0 {
		t.Errorf("%d questions for all writers beside the watch", checks)
	}
	breaks := agent.downs.Load()
	(*way.Load()).Close()
	if _, err := one.control.AcquireWriter(one.context(),
		&api.AcquireWriterRequest{Stream: "a", Holder: &api.Holder{Host: "elsewhere", Pid: 1}}); err != nil {
		t.Fatal(err)
	}
	one.until("it is told that another has the stream", func() bool {
		_, _, err := agent.writers.Extend(t.Context(), request)
		return status.Code(err) == codes.FailedPrecondition
	})
	one.until("by a watch that was opened again", func() bool {
		return agent.downs.Load() > breaks &&
			agent.told.Load() > 2
	})
}

// With a control plane that has no such watch the agent asks for all writers together, and a change is learned of as
// well.
func TestHostAgent_OfAnOlderControlPlane(t *testing.T) {
	t.Parallel()
	one, agent, request := hosted(t, etcdtest.Open(t, t.TempDir()), func(one *instance) api.ControlServiceClient {
		without := func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string,
			open grpc.Streamer, options ...grpc.CallOption,
		) (grpc.ClientStream, error) {
			return open(ctx, desc, conn, method+"OfLater", options...)
		}
		conn, err := grpc.NewClient(one.conn.Target(), grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithStreamInterceptor(without))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return api.NewControlServiceClient(conn)
	})
	if _, declared, err := agent.writers.Extend(t.Context(), request); err != nil || declared != *request.Running {
		t.Errorf("told %v, %v", declared, err)
	}
	one.until("the agent asks for all", func() bool { return agent.checked.Load() > 0 })
	one.reject()
	one.until("it learns of another policy", func() bool {
		_, declared, _ := agent.writers.Extend(t.Context(), request)
		return declared.Policy == uint32(api.Policy_POLICY_REJECT)
	})
	if calls := agent.extended.Load(); agent.told.Load() != 0 || agent.downs.Load() == 0 || calls != 2 {
		t.Errorf("%d messages of a watch, %d breaks, %d questions for one writer, expected 2", agent.told.Load(),
			agent.downs.Load(), calls)
	}
}
