package service

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/etcd/etcdtest"
	"github.com/farlog/farlog/pkg/control/fabric"
	"github.com/farlog/farlog/pkg/control/pattern"
)

const auditName = pattern.SystemPrefix + "audit"

// withAudit is a control plane that has made a stream of its own, as one does that writes an audit stream, and has no
// target yet.
func withAudit(t *testing.T) (*instance, *clientv3.Client) {
	t.Helper()
	etcd := etcdtest.Open(t, t.TempDir())
	one := startInstance(t, etcd, true)
	spec, err := fabric.CompleteStream(&api.StreamSpec{Name: auditName})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := fabric.CreateStream(t.Context(), etcd.Client(), spec); err != nil {
		t.Fatal(err)
	}
	one.until("the audit stream is known", func() bool {
		_, err := one.control.GetStream(one.context(), &api.GetStreamRequest{Name: auditName})
		return err == nil
	})
	return one, etcd.Client()
}

func (i *instance) backup() (entries []*api.BackupEntry) {
	i.t.Helper()
	stream, err := i.control.Backup(i.context(), &api.BackupRequest{})
	for err == nil {
		var entry *api.BackupEntry
		if entry, err = stream.Recv(); err == nil {
			entries = append(entries, entry)
		}
	}
	if !errors.Is(err, io.EOF) {
		i.t.Fatal(err)
	}
	return entries
}

func (i *instance) restore(entries []*api.BackupEntry) error {
	stream, err := i.control.Restore(i.context())
	for _, entry := range entries {
		if err == nil {
			err = stream.Send(entry)
		}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		i.t.Fatal(err)
	}
	_, err = stream.CloseAndRecv()
	return err
}

func (i *instance) stream(name string) *api.Stream {
	i.t.Helper()
	got, err := i.control.GetStream(i.context(), &api.GetStreamRequest{Name: name})
	if err != nil {
		i.t.Fatal(err)
	}
	return got.Stream.Stream
}

// A control plane that has begun an audit stream, and nothing in it yet, takes a backup: the stream of the backup is
// the one that has a ring.
func TestRestore_BesideAnAuditStream(t *testing.T) {
	t.Parallel()
	before, _ := withAudit(t)
	before.create("a")
	entries := before.backup()
	after, _ := withAudit(t)
	if err := after.restore(entries); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", auditName} {
		if was, is := before.stream(name), after.stream(name); was.Salt != is.Salt || was.StreamId != is.StreamId {
			t.Errorf("stream %s: was %v, is %v", name, was, is)
		}
	}
	if err := after.restore(entries); status.Code(err) != codes.FailedPrecondition ||
		!strings.Contains(err.Error(), "has streams") {
		t.Errorf("again: %v", err)
	}
}

// One whose audit stream has a ring may have records in it, which must not be lost; and one that is not in the
// backup would share its id with another.
func TestRestore_NotOverAnAuditStreamWithARing(t *testing.T) {
	t.Parallel()
	before, _ := withAudit(t)
	before.create("a")
	entries := before.backup()
	after, client := withAudit(t)
	ring, err := etcd.Encode(&api.RingSpec{
		Target: "t", Stream: after.stream(auditName),
		RingUuid: []byte("0123456789abcdef"),
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Put(t.Context(), etcd.KeyRings+auditName, ring); err != nil {
		t.Fatal(err)
	}
	after.until("the ring is seen", func() bool {
		got, err := after.control.GetStream(after.context(), &api.GetStreamRequest{Name: auditName})
		return err == nil && len(got.Stream.RingSpecs) > 0
	})
	if err := after.restore(entries); status.Code(err) != codes.FailedPrecondition ||
		!strings.Contains(err.Error(), "has a ring already") {
		t.Errorf("with a ring: %v", err)
	}
	without := slices.DeleteFunc(slices.Clone(entries),
		func(entry *api.BackupEntry) bool { return strings.HasSuffix(entry.Key, auditName) })
	other, _ := withAudit(t)
	if err := other.restore(without); status.Code(err) != codes.FailedPrecondition ||
		!strings.Contains(err.Error(), "is not in the backup") {
		t.Errorf("not in the backup: %v", err)
	}
}
