package service

import (
	"crypto/tls"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/identity"
	"github.com/farlog/farlog/pkg/internal/testenv"
)

// TestOpenEtcd_ClusterOfThreeOverTLS runs a control plane on such a cluster, and goes on when a member dies. A client
// without a certificate of the authority does not come in.
func TestOpenEtcd_ClusterOfThreeOverTLS(t *testing.T) {
	t.Parallel()
	authority, err := identity.InitAuthority(filepath.Join(t.TempDir(), "tls"), "farlog", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := authority.Issue(authority.Dir, identity.Order{
		Kind: identity.KindControl, Name: "etcd",
		Hosts: []string{"127.0.0.1"},
	}, time.Now()); err != nil {
		t.Fatal(err)
	}
	files := identity.In(authority.Dir, identity.KindControl)
	endpoints, kills := testenv.StartEtcd(t, files)
	cluster, err := etcd.Open(t.Context(), etcd.Options{
		Endpoints: endpoints, Authority: files.Authority,
		Cert: files.Cert, Key: files.Key,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cluster.Close() })
	one := startInstance(t, cluster, false)
	one.create("before")
	kills[0]()
	one.until("a stream is made by two of three members", func() bool {
		_, err := one.control.CreateStream(one.context(),
			&api.CreateStreamRequest{Spec: &api.StreamSpec{Name: "after"}})
		return err == nil
	})
	if list, err := one.control.ListStreams(one.context(), &api.ListStreamsRequest{}); err != nil ||
		len(list.Streams) != 2 {
		t.Errorf("got %v, %v", list.GetStreams(), err)
	}
	if _, err := etcd.Open(t.Context(), etcd.Options{
		Endpoints: endpoints[1:],
		Authority: files.Authority,
	}); err == nil {
		t.Error("a client without a certificate came in")
	}
	_, err = etcd.Open(t.Context(), etcd.Options{Endpoints: endpoints[1:]})
	var unknown *tls.CertificateVerificationError
	if err == nil || !errors.As(err, &unknown) && !strings.Contains(err.Error(), "reach etcd") {
		t.Errorf("a cluster of another authority: %v", err)
	}
}
