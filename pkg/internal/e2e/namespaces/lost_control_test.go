// Package namespaces_test proves that of a stream in a namespace nobody writes beside another one, whatever control
// plane and target forget. The control plane, its etcd and the target are real, in this process; the namespace is a
// plain file, and what the kernel would say of its export is put into the target's reports.
package namespaces_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd/etcdtest"
	"github.com/farlog/farlog/pkg/control/service"
	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/target"
)

const (
	stepTimeout = 60 * time.Second // never what a test measures
	stream      = "desk7/orders"
	subsystem   = "nqn.2026-01.com.example:desk7"
	tradingNQN  = "nqn.2026-01.com.example:trading1"
	standbyNQN  = "nqn.2026-01.com.example:trading2"
)

// site is a target with a namespace, and the control plane that it follows now.
type site struct {
	*testing.T
	device string
	target *target.Target
	dir    string

	mutex sync.Mutex
	conn  *grpc.ClientConn
}

// Invoke makes a call of the target to the control plane of now.
func (s *site) Invoke(ctx context.Context, method string, request, response any, options ...grpc.CallOption) error {
	if report, isReport := request.(*api.ReportTargetRequest); isReport && report.State != nil {
		report.State.Namespaces = []*api.NamespaceState{{
			Name: "desk7", Device: s.device, Subsystem: subsystem, Exported: true,
			Level: api.Level_LEVEL_PERSISTENT, FreeBytes: 4 << 20,
		}}
	}
	return s.control().Invoke(ctx, method, request, response, options...)
}

// NewStream opens a watch of the target.
func (s *site) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, options ...grpc.CallOption,
) (grpc.ClientStream, error) {
	return s.control().NewStream(ctx, desc, method, options...)
}

func (s *site) control() *grpc.ClientConn {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.conn
}

// startControl starts a control plane with an empty etcd. Target and test go to that from now on; stop ends it.
func (s *site) startControl() (stop func()) {
	s.Helper()
	cluster := etcdtest.Open(s.T, s.TempDir())
	server := service.New(service.Config{
		Client: cluster.Client(), Logger: slog.New(slog.DiscardHandler), IsSole: true, Lease: stepTimeout,
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	s.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- server.Run(ctx, listener, func() { close(ready) }) }()
	<-ready
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	s.must(err)
	stop = sync.OnceFunc(func() {
		conn.Close()
		cancel()
		<-ended
	})
	s.Cleanup(stop)
	s.mutex.Lock()
	s.conn = conn
	s.mutex.Unlock()
	return stop
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{T: t, device: filepath.Join(t.TempDir(), "device"), dir: t.TempDir()}
	s.must(os.WriteFile(s.device, make([]byte, 8<<20), 0o600))
	return s
}

// startTarget runs the target until the test ends.
func (s *site) startTarget() {
	s.Helper()
	one, err := target.New(target.Config{
		Dir: s.dir, Agent: &api.Agent{Id: "t1", Host: "alpha"}, Control: s, Logger: slog.New(slog.DiscardHandler),
		CountersDir: "none", Interval: 50 * time.Millisecond,
	})
	s.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- one.Run(ctx) }()
	s.Cleanup(func() {
		cancel()
		s.must(<-ended)
	})
	s.target = one
}

// declare has the namespace declared, its hosts connected, and a drain there.
func (s *site) declare() {
	s.Helper()
	_, err := api.NewControlServiceClient(s.conn).ApplyFabric(s.context(), &api.ApplyFabricRequest{Fabric: &api.Fabric{
		Targets: []*api.TargetSpec{{
			Host: "alpha", Ports: []*api.NamespacePort{{Transport: "tcp", Address: "10.7.0.2"}},
			Namespaces: []*api.Namespace{{
				Name: "desk7", Device: s.device, Subsystem: subsystem, Evict: true,
				Hosts: []*api.NamespaceHost{{Nqn: tradingNQN, Host: "trading1"}, {Nqn: standbyNQN, Host: "trading2"}},
			}},
		}},
	}})
	s.must(err)
	s.reportAgents()
}

func (s *site) reportAgents() {
	s.Helper()
	_, err := api.NewDrainServiceClient(s.conn).ReportDrain(s.context(), &api.ReportDrainRequest{
		State: &api.DrainState{Agent: &api.Agent{Id: "d1", Host: "alpha"}},
	})
	s.must(err)
	for _, host := range []string{"trading1", "trading2"} {
		_, err := api.NewHostServiceClient(s.conn).ReportHost(s.context(), &api.ReportHostRequest{
			State: &api.HostState{Host: host, Namespaces: []*api.NamespaceConnection{{
				TargetHost: "alpha", Name: "desk7", Subsystem: subsystem, Device: "/dev/nvme1n1",
			}}},
		})
		s.must(err)
	}
}

func (s *site) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *site) context() context.Context {
	ctx, cancel := context.WithTimeout(s.Context(), stepTimeout)
	s.Cleanup(cancel)
	return ctx
}

// until repeats what may have to wait for somebody's report.
func (s *site) until(what string, isSo func() bool) {
	s.Helper()
	for deadline := time.Now().Add(stepTimeout); !isSo(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.Fatalf("not within %s: %s", stepTimeout, what)
		}
	}
}

// acquire asks for a grant on a host, with no more time than is given for a confirmation.
func (s *site) acquire(host string, wait time.Duration) (*api.Grant, error) {
	ctx, cancel := context.WithTimeout(s.Context(), wait)
	defer cancel()
	response, err := api.NewControlServiceClient(s.conn).AcquireWriter(ctx, &api.AcquireWriterRequest{
		Stream: stream, Holder: &api.Holder{Host: host, Pid: 1},
	})
	return response.GetGrant(), err
}

func (s *site) backup() (entries []*api.BackupEntry) {
	s.Helper()
	calls, err := api.NewControlServiceClient(s.conn).Backup(s.context(), &api.BackupRequest{})
	s.must(err)
	for {
		entry, err := calls.Recv()
		if errors.Is(err, io.EOF) {
			return entries
		}
		s.must(err)
		entries = append(entries, entry)
	}
}

func (s *site) restore(entries []*api.BackupEntry) {
	s.Helper()
	calls, err := api.NewControlServiceClient(s.conn).Restore(s.context())
	s.must(err)
	for _, entry := range entries {
		s.must(calls.Send(entry))
	}
	_, err = calls.CloseAndRecv()
	s.must(err)
}

// evicted are the hosts that the target wants out, which are out afterwards.
func (s *site) evicted() (hosts []uint64) {
	s.Helper()
	formers, err := s.target.ExportedRings().Formers(s.device)
	s.must(err)
	for _, former := range formers {
		if former.IsFenced && !former.IsOut {
			s.must(s.target.ExportedRings().Out(former))
			hosts = append(hosts, former.Host)
		}
	}
	return hosts
}

// hasForgotten reports whether the list that the target was sent last has no ring.
func (s *site) hasForgotten() bool {
	raw, err := os.ReadFile(filepath.Join(s.dir, "wanted.json"))
	return err == nil && !strings.Contains(string(raw), stream)
}

// TestLostControl_FormerWriterIsEvictedAllTheSame: trading1 has a grant and is opening the ring. The control plane
// loses its etcd, the target is sent an empty list, and then what a backup of before the grant has. trading2 is not let
// in before trading1 is evicted, and trading1's epoch opens nothing afterwards.
func TestLostControl_FormerWriterIsEvictedAllTheSame(t *testing.T) {
	s := newSite(t)
	stop := s.startControl()
	s.startTarget()
	s.declare()
	s.until("the stream is created", func() bool {
		_, err := api.NewControlServiceClient(s.conn).CreateStream(s.context(), &api.CreateStreamRequest{
			Spec: &api.StreamSpec{Name: stream, Kind: "nvmeof", RingSizeBytes: 1 << 20},
		})
		return err == nil || status.Code(err) == codes.AlreadyExists
	})
	var entries []*api.BackupEntry
	var former *api.Grant
	s.until("trading1 has a grant", func() bool {
		entries = s.backup()
		one, err := s.acquire("trading1", stepTimeout)
		former = one
		return err == nil
	})
	stop()

	s.startControl()
	s.until("the target was sent an empty list", s.hasForgotten)
	s.restore(entries)
	s.reportAgents()
	s.until("trading2 is refused because of trading1", func() bool {
		one, err := s.acquire("trading2", time.Second)
		if err == nil {
			t.Fatalf("trading2 was granted epoch %d while trading1 may be opening the ring", one.Epoch)
		}
		return strings.Contains(err.Error(), "on host trading1 has not closed it, and that host is being evicted")
	})
	if hosts := s.evicted(); len(hosts) != 1 || hosts[0] != farlog.HostNumber(tradingNQN) {
		t.Fatalf("to be evicted are %v, want trading1", hosts)
	}
	var next *api.Grant
	s.until("trading2 is let in", func() bool {
		one, err := s.acquire("trading2", 10*time.Second)
		next = one
		return err == nil
	})
	if next.Epoch <= former.Epoch {
		t.Errorf("trading2 has epoch %d, and trading1 had %d", next.Epoch, former.Epoch)
	}
	s.open(former.Epoch, farlog.ErrFenced)
	s.open(next.Epoch, nil)
	s.open(former.Epoch, farlog.ErrFenced)
}

// open writes a record by a grant's epoch; or is refused.
func (s *site) open(epoch uint32, want error) {
	s.Helper()
	writer, err := farlog.OpenWriter("nvme:"+s.device+"?ring="+stream, farlog.WriterOptions{
		Level: farlog.LevelPosted, Epoch: epoch, CountersDir: "none", Deadline: stepTimeout,
	})
	if !errors.Is(err, want) {
		s.Fatalf("open with epoch %d: %v, want %v", epoch, err, want)
	}
	if err == nil {
		_, err = writer.Append(farlog.Entry{Data: []byte("order")}, stepTimeout)
		s.must(errors.Join(err, writer.Close()))
	}
}
