package service

import (
	"bytes"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd/etcdtest"
	"github.com/farlog/farlog/pkg/control/grant"
)

// The answer to a grant is lost, and it is asked for again, with the same id: by either control plane the same epoch
// and the same token are given, and its target is told nothing new. Another id, another holder, and a grant that is not
// the newest any more are another wish.
func TestAcquireWriter_SameRequestID(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Open(t, t.TempDir())
	one, two := startInstance(t, etcd, false), startInstance(t, etcd, false)
	one.create("a")
	one.reportTarget("t1")
	one.until("stream is placed", func() bool { return len(one.status("a").RingSpecs) == 1 })
	state := remoteRing("a", "t1")
	state.EpochFenced, state.EpochAdmitted = 100, 100 // whatever is asked of it, it has done
	one.reportTarget("t1", state)
	for _, instance := range []*instance{one, two} {
		instance.until("the ring is bound", func() bool {
			return len(instance.status("a").Rings) == 1 && len(instance.status("a").RingSpecs[0].RingUuid) > 0
		})
	}
	id, other := api.NewRequestID(), api.NewRequestID()
	acquire := func(at *instance, id string, pid uint32) *api.Grant {
		t.Helper()
		response, err := at.control.AcquireWriter(at.context(),
			&api.AcquireWriterRequest{
				Stream: "a", RequestId: id, Transport: "ofi",
				Holder: &api.Holder{Host: "beta", Pid: pid},
			})
		if err != nil {
			t.Fatal(err)
		}
		return response.Grant
	}
	first := acquire(one, id, 7)
	told := one.untilAdmission(first.Epoch)
	for _, at := range []*instance{one, two} {
		again := acquire(at, id, 7)
		if again.Epoch != first.Epoch || !bytes.Equal(again.Members[0].Token, first.Members[0].Token) ||
			again.Members[0].Uri != first.Members[0].Uri || len(again.Members[0].Token) != grant.TokenLen {
			t.Errorf("granted %v, and again %v", first, again)
		}
	}
	if now := one.untilAdmission(first.Epoch); len(now.Grants) != 1 ||
		!bytes.Equal(now.Grants[0].Token, told.Grants[0].Token) {
		t.Errorf("the target was told %v, and now %v", told, now)
	}
	if grant := acquire(one, id, 8); grant.Epoch != first.Epoch+1 {
		t.Errorf("another process has epoch %d, after %d", grant.Epoch, first.Epoch)
	}
	if grant := acquire(one, id, 7); grant.Epoch != first.Epoch+2 {
		t.Errorf("of a grant that is not the newest any more: epoch %d, after %d", grant.Epoch, first.Epoch+1)
	}
	if grant := acquire(one, other, 7); grant.Epoch != first.Epoch+3 {
		t.Errorf("by another id: epoch %d, after %d", grant.Epoch, first.Epoch+2)
	}
	if grant := acquire(one, "", 7); grant.Epoch != first.Epoch+4 {
		t.Errorf("without an id: epoch %d, after %d", grant.Epoch, first.Epoch+3)
	}
	if grant := acquire(one, "", 7); grant.Epoch != first.Epoch+5 {
		t.Errorf("without an id, again: epoch %d, after %d", grant.Epoch, first.Epoch+4)
	}
}

// A grant without takeover is refused while that lives, and given to the same process, when the writer
// is gone, and where it fences nobody because the ring's lock decides.
func TestAcquireWriter_SparesTheLiving(t *testing.T) {
	t.Parallel()
	one := startFar(t)
	state := remoteRing("a", "t1")
	report := func(epoch uint32, isHeld bool) {
		state.EpochFenced, state.EpochAdmitted, state.WriterEpoch, state.WriterHeld = 100, 100, epoch, isHeld
		state.ObserveTime = timestamppb.Now()
		one.reportTarget("t1", state)
		one.until("it is seen", func() bool {
			seen := one.status("a").Rings[0]
			return seen.WriterHeld == isHeld && seen.WriterEpoch == epoch
		})
	}
	acquire := func(pid uint32, transport string, isSparing bool) (uint32, error) {
		response, err := one.control.AcquireWriter(one.context(), &api.AcquireWriterRequest{
			Stream: "a", Transport: transport, NoTakeover: isSparing, Holder: &api.Holder{Host: "beta", Pid: pid},
		})
		return response.GetGrant().GetEpoch(), err
	}
	report(0, false)
	if epoch, err := acquire(1, "ofi", true); err != nil || epoch != 1 {
		t.Fatal(epoch, err)
	}
	report(1, true)
	if epoch, err := acquire(2, "ofi", true); status.Code(err) != codes.FailedPrecondition || !api.IsWriterLiving(err) {
		t.Errorf("while it lives: epoch %d, %v", epoch, err)
	}
	if epoch, err := acquire(2, "mem", true); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("from its target's host, which would fence it, too: epoch %d, %v", epoch, err)
	}
	if granted := one.status("a").EpochGranted; granted != 1 {
		t.Errorf("what was refused has taken epochs: %d are granted", granted)
	}
	if epoch, err := acquire(1, "ofi", true); err != nil || epoch != 2 {
		t.Errorf("to the same process: epoch %d, %v", epoch, err)
	}
	report(2, true)
	if epoch, err := acquire(2, "ofi", false); err != nil || epoch != 3 {
		t.Errorf("a takeover: epoch %d, %v", epoch, err)
	}
	report(3, false)
	if epoch, err := acquire(4, "ofi", true); err != nil || epoch != 4 {
		t.Errorf("when it is gone: epoch %d, %v", epoch, err)
	}
	state.Error = "admit a client of another host: no answer"
	report(4, true)
	one.until("it has an error", func() bool { return one.status("a").Rings[0].Error != "" })
	for _, transport := range []string{"ofi", "mem"} {
		if epoch, err := acquire(5, transport, true); status.Code(err) != codes.Unavailable ||
			!strings.Contains(err.Error(), "is not known: target t1: admit a client") {
			t.Errorf("by %s, of a ring of which its target cannot say it: epoch %d, %v", transport, epoch, err)
		}
	}
	if granted := one.status("a").EpochGranted; granted != 4 {
		t.Errorf("a writer of whom nothing is known was fenced: epoch %d is granted", granted)
	}
}
