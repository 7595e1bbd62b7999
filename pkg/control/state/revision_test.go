package state

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/etcd/etcdtest"
)

// A watch that resumes far behind gets 1,000 revisions a message, each under a header with etcd's present revision. The
// view's revision is what guards compare with: it must be that of the view's contents, or they hold on what is old.
func TestMirror_RevisionIsThatOfItsContents(t *testing.T) {
	cluster := etcdtest.Open(t, t.TempDir())
	ctx := t.Context()
	put := func(key, value string) int64 {
		t.Helper()
		done, err := cluster.Client().Put(ctx, key, value)
		if err != nil {
			t.Fatal(err)
		}
		return done.Header.Revision
	}
	stream := &api.Stream{Spec: &api.StreamSpec{Name: "desk7/orders", Members: 1}, StreamId: 1}
	ring := func(target string) string {
		value, err := etcd.Encode(&api.RingSpec{Target: target, Stream: stream})
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
	value, err := etcd.Encode(stream)
	if err != nil {
		t.Fatal(err)
	}
	put(etcd.KeyStreams+"desk7/orders", value)
	put(etcd.KeyRings+"desk7/orders", ring("A"))
	m := NewMirror(cluster.Client(), slog.New(slog.NewTextHandler(io.Discard, nil)))
	first, err := m.readAll(ctx)
	if err != nil {
		t.Fatal(err)
	}
	m.publish(first, nil)
	for i := range 1500 {
		put(fmt.Sprintf("%sother%04d", etcd.KeyEpochs, i), "1")
	}
	replaced := put(etcd.KeyRings+"desk7/orders", ring("B"))
	behind := 0
	watch := cluster.Client().Watch(clientv3.WithRequireLeader(ctx), etcd.KeyRoot, clientv3.WithPrefix(),
		clientv3.WithRev(first.Revision+1))
	for message := range watch {
		if err := message.Err(); err != nil {
			t.Fatal(err)
		}
		m.applyEvents(&message)
		now, _ := m.Load()
		if now.Rings["desk7/orders"].Target == "B" {
			break
		}
		behind++
		if now.Revision >= replaced {
			t.Errorf("the view says revision %d and shows the ring of before revision %d", now.Revision, replaced)
		}
		done, err := cluster.Client().Txn(ctx).If(RingsUnchanged(now, "desk7/orders")...).Commit()
		if err != nil {
			t.Fatal(err)
		}
		if done.Succeeded {
			t.Errorf("a guard holds on a ring that was replaced at revision %d", replaced)
		}
	}
	if now, _ := m.Load(); behind == 0 || now.Revision != replaced {
		t.Errorf("%d messages before the last, revision %d: expected some, and %d", behind, now.Revision, replaced)
	}
}

// Whoever waits for a revision that changed nothing of ours, as in an etcd that has other users, does not wait for
// ever.
func TestMirror_WaitsForARevisionOfOthers(t *testing.T) {
	etcd := etcdtest.Open(t, t.TempDir())
	m := NewMirror(etcd.Client(), slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	var following sync.WaitGroup
	following.Go(func() { m.Run(ctx) })
	defer following.Wait()
	defer cancel()
	if _, err := m.Wait(ctx, func(v *View) bool { return v.Revision > 0 }); err != nil {
		t.Fatal(err)
	}
	other, err := etcd.Client().Put(ctx, "/other/program", "1")
	if err != nil {
		t.Fatal(err)
	}
	waiting, stop := context.WithTimeout(ctx, 30*time.Second)
	defer stop()
	if err := m.WaitRevision(waiting, other.Header.Revision); err != nil {
		t.Errorf("wait for revision %d: %v", other.Header.Revision, err)
	}
}
