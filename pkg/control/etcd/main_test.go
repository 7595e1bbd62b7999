package etcd

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/farlog/farlog/pkg/internal/testenv"
)

func TestMain(m *testing.M) {
	testenv.ServeChild(etcdDirVariable, openUntilKilled)
	// An etcd that finds its directory damaged leaves these behind when it refuses to start.
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("go.etcd.io/etcd/server/v3/storage/backend.(*backend).run"),
		goleak.IgnoreAnyFunction("go.etcd.io/etcd/server/v3/storage/wal.(*filePipeline).run"))
}
