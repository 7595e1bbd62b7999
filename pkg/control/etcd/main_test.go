package etcd

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(etcdDirVariable); dir != "" {
		if err := openUntilKilled(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	// An etcd that finds its directory damaged leaves these behind when it refuses to start.
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("go.etcd.io/etcd/server/v3/storage/backend.(*backend).run"),
		goleak.IgnoreAnyFunction("go.etcd.io/etcd/server/v3/storage/wal.(*filePipeline).run"))
}
