package control

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	api "github.com/farlog/farlog/pkg/api/v1"
)

func openEtcd(t *testing.T, dir string) *Etcd {
	t.Helper()
	etcd, err := OpenEtcd(t.Context(), EtcdOptions{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { etcd.Close() })
	return etcd
}

func TestOpenEtcd_SecondOpenNamesTheHolder(t *testing.T) {
	dir := t.TempDir()
	openEtcd(t, dir)
	_, err := OpenEtcd(t.Context(), EtcdOptions{Dir: dir})
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("pid=%d", os.Getpid())) || !strings.Contains(err.Error(), dir) {
		t.Fatalf("got %v", err)
	}
}

func TestOpenEtcd_DatabaseHeldByForeignProcess(t *testing.T) {
	dir := t.TempDir()
	if err := openEtcd(t, dir).Close(); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(filepath.Join(dir, "member", "snap", "db"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if _, err = OpenEtcd(t.Context(), EtcdOptions{Dir: dir}); err == nil || !strings.Contains(err.Error(), "locked by another process") {
		t.Fatalf("got %v", err)
	}
}

func TestOpenEtcd_StateIsKeptOverReopen(t *testing.T) {
	dir := t.TempDir()
	etcd := openEtcd(t, dir)
	if _, err := etcd.Client().Put(t.Context(), keyStreamID, "7"); err != nil {
		t.Fatal(err)
	}
	if err := etcd.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := openEtcd(t, dir).Client().Get(t.Context(), keyStreamID)
	if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "7" {
		t.Fatalf("got %v, %v", got, err)
	}
}

func TestOpenEtcd_DamagedDirectoryIsAnErrorNotAPanic(t *testing.T) {
	dir, err := os.MkdirTemp("", "farlog-etcd-") // not TempDir: what etcd had begun when it gave up may still make a file in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for deadline := time.Now().Add(killTimeout); os.RemoveAll(dir) != nil && time.Now().Before(deadline); {
			time.Sleep(10 * time.Millisecond)
		}
	})
	if err := openEtcd(t, dir).Close(); err != nil {
		t.Fatal(err)
	}
	logs, err := filepath.Glob(filepath.Join(dir, "member", "wal", "*.wal"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("no write-ahead log: %v", err)
	}
	for _, path := range logs {
		if err := os.WriteFile(path, []byte("not a log at all, but long enough to be read as one"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := OpenEtcd(t.Context(), EtcdOptions{Dir: dir}); err == nil || !strings.Contains(err.Error(), dir) {
		t.Fatalf("got %v", err)
	}
}

// A full disk is a fatal entry in etcd's log, which would end the process in silence.
func TestEtcdLogger_FatalEntryEndsItsGoroutineAndTellsWhy(t *testing.T) {
	fatal := make(chan error, 1)
	logger, err := etcdLogger(filepath.Join(t.TempDir(), etcdLogName), fatal)
	if err != nil {
		t.Fatal(err)
	}
	hasGoneOn := false
	done := make(chan struct{})
	go func() {
		defer close(done)
		logger.Fatal("failed to commit tx", zap.Error(unix.ENOSPC))
		hasGoneOn = true
	}()
	<-done
	if err := <-fatal; hasGoneOn || err.Error() != "failed to commit tx: no space left on device" {
		t.Errorf("got %v, went on: %v", err, hasGoneOn)
	}
}

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
	etcd, err := OpenEtcd(t.Context(), EtcdOptions{Endpoints: []string{cluster.Clients[0].Addr().String()}})
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

func TestOpenEtcd_NoExternalClusterThere(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := OpenEtcd(ctx, EtcdOptions{Endpoints: []string{"127.0.0.1:1"}})
	if err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Fatalf("got %v", err)
	}
}
