package service

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/etcd/etcdtest"
)

// A stream is bound to another store for what was looked at, or not at all, and not while anybody writes the store that
// it has: each refusal leaves it with its store.
func TestRebindStream_Refusals(t *testing.T) {
	t.Parallel()
	one := startInstance(t, etcdtest.Open(t, t.TempDir()), true)
	report := func(id, store string) {
		one.reportDrainOf(&api.Agent{Id: id, Host: "alpha", StoreUuid: []byte(store), StoreDir: "/" + store})
	}
	report("d1", "first")
	one.create("a")
	seen := ring("a", "t1")
	seen.HeadLsn, seen.HeadSeq = 4096, 9
	one.reportTarget("t1", seen)
	if _, err := one.acquire("a"); err != nil {
		t.Fatal(err)
	}
	one.until("d1 has it", func() bool { return one.status("a").Assignment.GetDrain() == "d1" })
	report("d2", "second")
	request := &api.RebindStreamRequest{Stream: "a", Drain: "d2", Reason: "test"}
	if _, err := one.control.RebindStream(one.context(), request); status.Code(err) != codes.FailedPrecondition ||
		!strings.Contains(err.Error(), "drain d1 reports and writes the one that it has") {
		t.Errorf("its drain lives: %v", err)
	}
	one.endLife(etcd.KeyLiveDrains + "d1")
	one.until("its drain is gone", func() bool { return !one.status("a").DrainAlive })
	before, err := one.server.fresh()
	if err != nil {
		t.Fatal(err)
	}
	dry, err := one.control.RebindStream(one.context(),
		&api.RebindStreamRequest{Stream: "a", Drain: "d2", Reason: "test", DryRun: true})
	if err != nil || dry.Assignment.LostStore.GetLsn() != 4096 || one.status("a").Assignment.Drain != "d1" {
		t.Fatalf("dry run: %v, %v", dry, err)
	}
	report("d3", "first")
	one.until("a drain of its store has it again", func() bool { return one.status("a").Assignment.Drain == "d3" })
	if _, err := rebind(one.context(), one.server.config.Client, before,
		dry.Assignment); status.Code(err) != codes.Aborted || one.status("a").Assignment.Drain != "d3" {
		t.Errorf("given to another drain meanwhile: %v", err)
	}
	one.endLife(etcd.KeyLiveDrains + "d3")
	one.until("its drain is gone", func() bool { return !one.status("a").DrainAlive })
	done, err := one.control.RebindStream(one.context(), request)
	if err != nil || string(done.Assignment.StoreUuid) != "second" || done.Assignment.LostStore.Reason != "test" ||
		one.status("a").Assignment.Drain != "d2" {
		t.Errorf("bound as %v, %v", done, err)
	}
}
