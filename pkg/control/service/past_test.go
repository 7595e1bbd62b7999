package service

import (
	"context"
	"fmt"
	"strings"
	"testing"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd/etcdtest"
	"github.com/farlog/farlog/pkg/control/grant"
)

func (i *instance) epochs(request *api.ListEpochsRequest) *api.ListEpochsResponse {
	i.t.Helper()
	response, err := i.fabric().ListEpochs(i.context(), request)
	if err != nil {
		i.t.Fatal(err)
	}
	return response
}

// pastTexts are the epochs of a stream that were the last once, the last first.
func (i *instance) pastTexts(stream string) (texts []string) {
	i.t.Helper()
	for _, one := range i.epochs(&api.ListEpochsRequest{Stream: stream, IncludePast: true}).Epochs[0].Past {
		holder := "nobody"
		if one.Holder != nil {
			holder = one.Holder.Host + " " + one.Holder.Name
		}
		texts = append(texts, strings.TrimSpace(fmt.Sprintf("%d %s %s %s %s", one.Epoch, holder,
			strings.TrimPrefix(one.End.String(), "EPOCH_END_"), one.By, one.Reason)))
	}
	return texts
}

// Each epoch that another one takes the place of is kept with who held it, from when to when and why it ended, for as
// many as are kept of a stream; also in a backup.
func TestPastEpochs_SayWhoAndWhy(t *testing.T) {
	t.Parallel()
	one := startInstance(t, etcdtest.Open(t, t.TempDir()), true)
	one.reportTarget("t1")
	one.create("a")
	one.create("b")
	opened := func(epoch uint32) {
		t.Helper()
		seen := ring("a", "t1")
		seen.LastEpoch, seen.WriterEpoch = epoch, epoch
		one.reportTarget("t1", seen, ring("b", "t1"))
	}
	acquire := func(host, name string) {
		t.Helper()
		one.until("granted", func() bool {
			_, err := one.control.AcquireWriter(one.context(),
				&api.AcquireWriterRequest{Stream: "a", Holder: &api.Holder{
					Host: host, Pid: 7, Name: name,
					Addresses: []string{"10.0.0.1"},
				}})
			return err == nil
		})
	}
	opened(0)
	acquire("h1", "gate")
	if past := one.pastTexts("a"); len(past) != 0 {
		t.Errorf("before anything has ended: %q", past)
	}
	opened(1)
	acquire("h1", "gate") // 2
	acquire("h1", "gate") // 3
	opened(3)
	acquire("h2", "gate") // 4
	opened(4)
	takeOver(t, one, "a", "the gate hangs") // 5
	acquire("h1", "gate")                   // 6
	want := []string{
		"5 nobody REPLACED insecure", "4 h2 gate TAKEN_OVER insecure the gate hangs",
		"3 h1 gate REPLACED insecure", "2 h1 gate UNUSED insecure", "1 h1 gate RESTARTED insecure",
	}
	if past := one.pastTexts("a"); strings.Join(past, "; ") != strings.Join(want, "; ") {
		t.Errorf("past epochs:\n%s\nexpected:\n%s", strings.Join(past, "\n"), strings.Join(want, "\n"))
	}
	list := one.epochs(&api.ListEpochsRequest{IncludePast: true})
	if len(list.Epochs) != 2 || len(list.Epochs[0].Past) != 5 || len(list.Epochs[1].Past) != 0 {
		t.Fatalf("of all streams: %v", list)
	}
	checkPastTimes(t, list.Epochs[0].Past)
	if plain := one.epochs(&api.ListEpochsRequest{}); len(plain.Epochs[0].Past) != 0 {
		t.Errorf("not asked for: %v", plain)
	}
	for range grant.PastMost {
		acquire("h1", "gate")
	}
	past := one.pastTexts("a")
	if len(past) != grant.PastMost || !strings.HasPrefix(past[0], "21 ") ||
		!strings.HasPrefix(past[grant.PastMost-1], "6 ") {
		t.Errorf("after %d more: %d kept, %q", grant.PastMost, len(past), past)
	}
	restored := startInstance(t, etcdtest.Open(t, t.TempDir()), true)
	if err := restored.restore(one.backup()); err != nil {
		t.Fatal(err)
	}
	if got := restored.pastTexts("a"); strings.Join(got, "; ") != strings.Join(past, "; ") {
		t.Errorf("restored %q, expected %q", got, past)
	}
}

// takeOver has an administrator take a stream from its writer. The target here confirms no fence, so that there is no
// good answer; the fence is ordered.
func takeOver(t *testing.T, one *instance, stream, reason string) {
	t.Helper()
	ctx, cancel := context.WithCancel(one.context())
	defer cancel()
	before := one.epochs(&api.ListEpochsRequest{Stream: stream}).Epochs[0].Granted
	go one.control.TakeOverStream(ctx, &api.TakeOverStreamRequest{Stream: stream, Reason: reason})
	one.until("taken over",
		func() bool { return one.epochs(&api.ListEpochsRequest{Stream: stream}).Epochs[0].Granted > before })
}

// checkPastTimes: epochs follow each other without a gap, the last first, and keep no addresses.
func checkPastTimes(t *testing.T, past []*api.PastEpoch) {
	t.Helper()
	for i, ended := range past {
		if later := ended.EndTime.AsTime(); ended.GrantTime == nil || later.Before(ended.GrantTime.AsTime()) || i > 0 &&
			!later.Equal(past[i-1].GrantTime.AsTime()) {
			t.Errorf("epoch %d from %v to %v, the next from %v", ended.Epoch, ended.GrantTime, ended.EndTime,
				past[max(0, i-1)].GrantTime)
		}
		if len(ended.Holder.GetAddresses()) > 0 {
			t.Errorf("epoch %d keeps addresses", ended.Epoch)
		}
	}
}
