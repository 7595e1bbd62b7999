package service

import (
	"net/url"
	"os"
	"sync"
	"testing"

	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd"
)

// TestOpenEtcd_ExternalCluster runs a control plane on an etcd of another owner, over the network, and takes that away.
func TestOpenEtcd_ExternalCluster(t *testing.T) {
	config := embed.NewConfig()
	config.Dir, config.LogLevel, config.LogOutputs = t.TempDir(), "panic", []string{os.DevNull}
	config.ListenPeerUrls = nil
	config.ListenClientUrls = []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	cluster, err := embed.StartEtcd(config)
	if err != nil {
		t.Fatal(err)
	}
	stop := sync.OnceFunc(cluster.Close)
	t.Cleanup(stop)
	<-cluster.Server.ReadyNotify()
	etcd, err := etcd.Open(t.Context(), etcd.Options{Endpoints: []string{cluster.Clients[0].Addr().String()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { etcd.Close() })
	one := startInstance(t, etcd, false)
	one.create("a")
	one.reportTarget("t1", ring("a", "t1"))
	if grant, err := one.acquire("a"); err != nil || grant.Epoch != 1 {
		t.Fatalf("got %v, %v", grant, err)
	}
	stop()
	one.until("that etcd is away is said", func() bool {
		_, err := one.control.ListStreams(t.Context(), &api.ListStreamsRequest{})
		return status.Code(err) == codes.Unavailable
	})
}
