package service

import (
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd"
)

// declare applies a fabric, and one that differs. Whatever fails: asked for again it is so, and asked for once more
// nothing changes.
func (w *sweepWorld) declare(name string) {
	w.t.Helper()
	fabric := &api.Fabric{Streams: []*api.StreamSpec{
		{Name: name + "-a", TargetHost: "alpha"}, {Name: name + "-b", Policy: api.Policy_POLICY_REJECT},
	}}
	for _, policy := range []api.Policy{api.Policy_POLICY_REJECT, api.Policy_POLICY_BLOCK} {
		fabric.Streams[1].Policy = policy
		w.insist("it is applied", func() error {
			_, err := w.apply(&api.ApplyFabricRequest{Fabric: fabric})
			return err
		})
		w.insist("nothing differs", func() error {
			again, err := w.apply(&api.ApplyFabricRequest{Fabric: fabric, DryRun: true})
			if err == nil && len(again.Changes) > 0 {
				w.t.Fatalf("applied, and it differs: %s", changesText(again.Changes))
			}
			return err
		})
	}
	for _, stream := range fabric.Streams {
		w.insist(stream.Name+" is deleted", func() error {
			if err := w.delete(stream.Name); status.Code(err) != codes.NotFound {
				return err
			}
			return nil
		})
	}
}

func TestSweep_EachCallOfAFabricFailsOnce(t *testing.T) {
	sweepEtcd(t, (*sweepWorld).declare, func(string) bool { return true })
}

// bindElsewhere binds a stream to another store when its own is lost. Whatever fails: it is bound to one of the two, to
// the other one only with the loss recorded, and asked for again it is bound.
func (w *sweepWorld) bindElsewhere(name string) {
	w.t.Helper()
	id := strings.ReplaceAll(name, "/", "-") // such as sweep-2-17
	report := func(drain, store string) {
		w.insist(drain+" reports", func() error {
			return w.sendDrainReport(
				&api.Agent{Id: drain, Host: "alpha", StoreUuid: []byte(store), StoreDir: "/" + store},
			)
		})
	}
	if _, err := w.etcd.KV.Delete(w.context(), etcd.KeyLiveDrains, clientv3.WithPrefix()); err != nil {
		w.t.Fatal(err)
	}
	report(id+"-1", "first "+id[len("sweep"):])
	w.insist("it is created", func() error {
		_, err := w.control.CreateStream(w.context(), &api.CreateStreamRequest{Spec: &api.StreamSpec{Name: name}})
		return err
	})
	w.reportTarget("t1")
	w.until("it is placed", func() bool { return w.view().Rings[name] != nil })
	w.show(name, func(r *api.RingState) { r.HeadLsn, r.HeadSeq = 4096, 9 })
	w.until("its drain has it", func() bool { return w.view().Assignments[name].GetDrain() == id+"-1" })
	report(id+"-2", "other "+id[len("sweep"):])
	w.endLife(etcd.KeyLiveDrains + id + "-1")
	w.until("it is bound to the other store", func() bool {
		_, err := w.control.RebindStream(w.context(),
			&api.RebindStreamRequest{Stream: name, Drain: id + "-2", Reason: "test"})
		bound := w.view().Assignments[name]
		if isSecond := string(bound.GetStoreUuid()) == "other "+id[len("sweep"):]; isSecond &&
			bound.LostStore.GetLsn() != 4096 {
			w.t.Fatalf("bound without the loss: %v, %v", bound, err)
		} else if isSecond {
			return bound.Drain == id+"-2"
		}
		if code := status.Code(err); err != nil && code != codes.Unavailable && code != codes.Aborted &&
			code != codes.FailedPrecondition {
			w.t.Fatal(err)
		}
		return false
	})
}

func TestSweep_EachCallOfARebindingFailsOnce(t *testing.T) {
	sweepEtcd(t, (*sweepWorld).bindElsewhere, func(call string) bool { return true })
}
