package control

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/identity"
)

// memberVariable makes the test's own program a member of an etcd cluster: what it is to be, as JSON.
const memberVariable = "FARLOG_TEST_ETCD_MEMBER"

// member is what a process of the cluster is told.
type member struct {
	Name, Dir, Initial string
	Client, Peer       url.URL
	Files              identity.Files
}

// serveMember runs until it is killed.
func serveMember(text string) error {
	var m member
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return err
	}
	config := embed.NewConfig()
	config.Name, config.Dir, config.LogLevel, config.LogOutputs = m.Name, m.Dir, "panic", []string{os.DevNull}
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{m.Client}, []url.URL{m.Client}
	config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{m.Peer}, []url.URL{m.Peer}
	config.ClientTLSInfo = transport.TLSInfo{CertFile: m.Files.Cert, KeyFile: m.Files.Key, TrustedCAFile: m.Files.Authority, ClientCertAuth: true}
	config.PeerTLSInfo = config.ClientTLSInfo
	config.InitialCluster = m.Initial
	server, err := embed.StartEtcd(config)
	if err != nil {
		return err
	}
	<-server.Server.ReadyNotify()
	fmt.Println("ready")
	return <-server.Err()
}

// startMembers starts an etcd cluster of three processes over TLS, clients and peers, and gives its endpoints and what kills each member.
func startMembers(t *testing.T, files identity.Files) (endpoints []string, kills []func()) {
	t.Helper()
	var members []member
	var initial []string
	for i := range 3 {
		one := member{Name: fmt.Sprintf("m%d", i), Dir: t.TempDir(), Client: freeURL(t), Peer: freeURL(t), Files: files}
		members, initial, endpoints = append(members, one), append(initial, one.Name+"="+one.Peer.String()), append(endpoints, one.Client.String())
	}
	var outputs []io.Reader
	for _, one := range members {
		one.Initial = strings.Join(initial, ",")
		text, err := json.Marshal(one)
		if err != nil {
			t.Fatal(err)
		}
		process := exec.Command(os.Args[0])
		process.Env = append(os.Environ(), memberVariable+"="+string(text))
		process.Stderr = os.Stderr
		output, err := process.StdoutPipe()
		if err == nil {
			err = process.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		kill := sync.OnceFunc(func() {
			process.Process.Kill()
			process.Wait()
		})
		t.Cleanup(kill)
		outputs, kills = append(outputs, output), append(kills, kill)
	}
	for i, output := range outputs {
		if line, err := bufio.NewReader(output).ReadString('\n'); line != "ready\n" {
			t.Fatalf("member %d did not start: %v", i, err)
		}
	}
	return endpoints, kills
}

func freeURL(t *testing.T) url.URL {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return url.URL{Scheme: "https", Host: listener.Addr().String()}
}

// TestOpenEtcd_ClusterOfThreeOverTLS runs a control plane on such a cluster, and goes on when a member dies. A client without a certificate of the
// authority does not come in.
func TestOpenEtcd_ClusterOfThreeOverTLS(t *testing.T) {
	t.Parallel()
	authority, err := identity.InitAuthority(filepath.Join(t.TempDir(), "tls"), "farlog", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := authority.Issue(authority.Dir, identity.Order{Kind: identity.KindControl, Name: "etcd", Hosts: []string{"127.0.0.1"}}, time.Now()); err != nil {
		t.Fatal(err)
	}
	files := identity.In(authority.Dir, identity.KindControl)
	endpoints, kills := startMembers(t, files)
	etcd, err := OpenEtcd(t.Context(), EtcdOptions{Endpoints: endpoints, Authority: files.Authority, Cert: files.Cert, Key: files.Key})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { etcd.Close() })
	one := startInstance(t, etcd, false)
	one.create("before")
	kills[0]()
	one.until("a stream is made by two of three members", func() bool {
		_, err := one.control.CreateStream(one.context(), &api.CreateStreamRequest{Spec: &api.StreamSpec{Name: "after"}})
		return err == nil
	})
	if list, err := one.control.ListStreams(one.context(), &api.ListStreamsRequest{}); err != nil || len(list.Streams) != 2 {
		t.Errorf("got %v, %v", list.GetStreams(), err)
	}
	if _, err := OpenEtcd(t.Context(), EtcdOptions{Endpoints: endpoints[1:], Authority: files.Authority}); err == nil {
		t.Error("a client without a certificate came in")
	}
	_, err = OpenEtcd(t.Context(), EtcdOptions{Endpoints: endpoints[1:]})
	var unknown *tls.CertificateVerificationError
	if err == nil || !errors.As(err, &unknown) && !strings.Contains(err.Error(), "reach etcd") {
		t.Errorf("a cluster of another authority: %v", err)
	}
}
