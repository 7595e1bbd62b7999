package testenv

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/farlog/farlog/pkg/identity"
)

// memberVariable makes a test's own program a member of an etcd cluster: what it is to be, as JSON.
const memberVariable = "FARLOG_TEST_ETCD_MEMBER"

// member is what a process of the cluster is told.
type member struct {
	Name, Dir, Initial string
	Client, Peer       url.URL
	Files              identity.Files
}

// ServeMember makes this process a member of an etcd cluster, for ever, when that is what it was started for. TestMain
// calls it first.
func ServeMember() { ServeChild(memberVariable, serveMember) }

func serveMember(text string) error {
	var m member
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return err
	}
	config := embed.NewConfig()
	config.Name, config.Dir, config.LogLevel, config.LogOutputs = m.Name, m.Dir, "panic", []string{os.DevNull}
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{m.Client}, []url.URL{m.Client}
	config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{m.Peer}, []url.URL{m.Peer}
	config.ClientTLSInfo = transport.TLSInfo{
		CertFile: m.Files.Cert, KeyFile: m.Files.Key,
		TrustedCAFile: m.Files.Authority, ClientCertAuth: true,
	}
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

// StartEtcd starts an etcd cluster of three processes over TLS, clients and peers, and gives its endpoints and what
// kills each member. The test's own program is a member when it is started as one: ServeMember.
func StartEtcd(tb testing.TB, files identity.Files) (endpoints []string, kills []func()) {
	tb.Helper()
	var members []member
	var initial []string
	for i := range 3 {
		one := member{
			Name: fmt.Sprintf("m%d", i), Dir: tb.TempDir(), Client: freeURL(tb), Peer: freeURL(tb),
			Files: files,
		}
		members, initial, endpoints = append(members, one), append(initial, one.Name+"="+one.Peer.String()),
			append(endpoints, one.Client.String())
	}
	var outputs []*bufio.Reader
	for _, one := range members {
		one.Initial = strings.Join(initial, ",")
		text, err := json.Marshal(one)
		if err != nil {
			tb.Fatal(err)
		}
		output, kill := StartChild(tb, memberVariable, string(text))
		outputs, kills = append(outputs, output), append(kills, kill)
	}
	for i, output := range outputs {
		if line, err := output.ReadString('\n'); line != "ready\n" {
			tb.Fatalf("member %d did not start: %v", i, err)
		}
	}
	return endpoints, kills
}

func freeURL(tb testing.TB) url.URL {
	tb.Helper()
	return url.URL{Scheme: "https", Host: freeAddress(tb, "127.0.0.1")}
}
