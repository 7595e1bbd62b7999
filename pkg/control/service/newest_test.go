package service

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/etcd/etcdtest"
)

// lateEtcd is etcd whose events come late: none after hold is called, until whoever follows them asks how far etcd is.
// The etcd below is real.
type lateEtcd struct {
	clientv3.KV
	clientv3.Watcher

	mutex sync.Mutex
	held  chan struct{} // nil = nothing is held; closed when it goes on
}

func (l *lateEtcd) hold() {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.held = make(chan struct{})
}

func (l *lateEtcd) goOn() {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.held != nil {
		close(l.held)
	}
	l.held = nil
}

func (l *lateEtcd) await() {
	l.mutex.Lock()
	held := l.held
	l.mutex.Unlock()
	if held != nil {
		<-held
	}
}

func (l *lateEtcd) Get(ctx context.Context, key string, options ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	got, err := l.KV.Get(ctx, key, options...)
	if key == etcd.KeySeen {
		l.goOn()
	}
	return got, err
}

func (l *lateEtcd) Watch(ctx context.Context, key string, options ...clientv3.OpOption) clientv3.WatchChan {
	events, late := l.Watcher.Watch(ctx, key, options...), make(chan clientv3.WatchResponse)
	go func() {
		defer close(late)
		for event := range events {
			l.await()
			select {
			case late <- event:
			case <-ctx.Done():
			}
		}
	}()
	return late
}

func (l *lateEtcd) Close() error { return nil }

// What one control plane has made is there for whoever asks another one, however late its events come.
func TestGetStream_OfAnotherControlPlane(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Open(t, t.TempDir())
	late := &lateEtcd{KV: cluster.Client().KV, Watcher: cluster.Client().Watcher}
	client := clientv3.NewCtxClient(context.Background())
	client.KV, client.Lease, client.Watcher = late, cluster.Client().Lease, late
	one := startInstance(t, cluster, false)
	two := startServer(t, cluster, New(Config{
		Client: client, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Lease: stepTimeout,
	}))
	t.Cleanup(late.goOn)
	calls := map[string]func(name string) error{
		"get": func(name string) error {
			_, err := two.control.GetStream(two.context(), &api.GetStreamRequest{Name: name})
			return err
		},
		"report": func(name string) error {
			_, err := two.control.ReportConsumer(two.context(), &api.ReportConsumerRequest{Consumer: &api.SlowConsumer{
				Stream: name, Holder: &api.Holder{Host: "beta", Pid: 1, Name: "desk"},
			}})
			return err
		},
	}
	for name, call := range calls {
		late.hold()
		one.create(name)
		if err := call(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := call("none"); status.Code(err) != codes.NotFound {
			t.Errorf("%s of none: %v, expected NOT_FOUND", name, err)
		}
		late.goOn()
	}
}
