package etcd

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

func openEtcd(t *testing.T, dir string) *Cluster {
	t.Helper()
	etcd, err := Open(t.Context(), Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { etcd.Close() })
	return etcd
}

func TestOpenEtcd_SecondOpenNamesTheHolder(t *testing.T) {
	dir := t.TempDir()
	openEtcd(t, dir)
	_, err := Open(t.Context(), Options{Dir: dir})
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("pid=%d", os.Getpid())) ||
		!strings.Contains(err.Error(), dir) {
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
	if _, err = Open(t.Context(), Options{Dir: dir}); err == nil ||
		!strings.Contains(err.Error(), "locked by another process") {
		t.Fatalf("got %v", err)
	}
}

func TestOpenEtcd_StateIsKeptOverReopen(t *testing.T) {
	dir := t.TempDir()
	etcd := openEtcd(t, dir)
	if _, err := etcd.Client().Put(t.Context(), KeyStreamID, "7"); err != nil {
		t.Fatal(err)
	}
	if err := etcd.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := openEtcd(t, dir).Client().Get(t.Context(), KeyStreamID)
	if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "7" {
		t.Fatalf("got %v, %v", got, err)
	}
}

func TestOpenEtcd_LogThatIsNoneIsDamage(t *testing.T) {
	dir := removedAtEnd(t)
	if err := openEtcd(t, dir).Close(); err != nil {
		t.Fatal(err)
	}
	logs, err := filepath.Glob(filepath.Join(dir, "member", "wal", "*.wal"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("no write-ahead log: %v", err)
	}
	for _, path := range logs {
		mustWrite(t, path, []byte("not a log at all, but long enough to be read as one"))
	}
	expectDamage(t, dir, "names no snapshot")
}

// A full disk is a fatal entry in etcd's log, which would end the process in silence.
func TestEtcdLogger_FatalEntryEndsItsGoroutineAndTellsWhy(t *testing.T) {
	fatal := make(chan error, 1)
	logger, err := newLogger(filepath.Join(t.TempDir(), logName), fatal)
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

func TestOpenEtcd_NoExternalClusterThere(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Open(ctx, Options{Endpoints: []string{"127.0.0.1:1"}})
	if err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Fatalf("got %v", err)
	}
}
