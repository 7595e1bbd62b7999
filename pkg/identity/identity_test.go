package identity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// start is when the tests' certificates are made. Their clock is a variable.
var start = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// party is one end of a connection, with a clock of its own.
type party struct {
	keeper *Keeper
	now    time.Time
}

func newAuthority(t *testing.T, domain string) *Authority {
	t.Helper()
	a, err := InitAuthority(filepath.Join(t.TempDir(), "ca"), domain, start)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (p *party) clock() time.Time { return p.now }

// newParty makes a certificate of a kind in dir, and reads it.
func newParty(t *testing.T, a *Authority, dir string, kind Kind, name string) *party {
	t.Helper()
	if _, err := a.Issue(dir, Order{Kind: kind, Name: name, Validity: time.Hour}, start); err != nil {
		t.Fatal(err)
	}
	p := &party{now: start}
	p.keeper = &Keeper{files: In(dir, kind), logger: slog.New(slog.DiscardHandler), now: p.clock}
	if _, err := p.keeper.load(); err != nil {
		t.Fatal(err)
	}
	return p
}

// meet connects two parties over a real connection and gives what each has to say; nil and nil: they speak.
func meet(t *testing.T, server, client *party, host string) (serverErr, clientErr error) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	ended := make(chan error, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			ended <- err
			return
		}
		defer conn.Close()
		secure := tls.Server(conn, server.keeper.ServerConfig())
		err = secure.HandshakeContext(context.Background())
		if err == nil {
			_, err = secure.Write([]byte("hello"))
		}
		ended <- err
	}()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	config, err := client.keeper.ClientConfig(host)
	if err != nil {
		t.Fatal(err)
	}
	_, clientErr = io.ReadAll(tls.Client(conn, config))
	conn.Close()
	return <-ended, clientErr
}

func TestConnection_WhoIsLetIn(t *testing.T) {
	a, other := newAuthority(t, "farlog"), newAuthority(t, "farlog")
	dir := a.Dir
	server := newParty(t, a, dir, KindControl, "control1")
	client := newParty(t, a, dir, KindHost, "trading1")
	expired := newParty(t, a, filepath.Join(dir, "short"), KindHost, "trading2")
	foreign := newParty(t, other, other.Dir, KindHost, "trading1")
	foreign.keeper.files.Authority = server.keeper.files.Authority // it believes ours, but is not of it
	foreign.keeper.files.Revoked = ""
	foreign.keeper.current = nil
	strangeServer := newParty(t, other, other.Dir, KindControl, "control1")
	revoked := newParty(t, a, filepath.Join(dir, "revoked"), KindHost, "trading3")
	if _, err := a.Revoke([]string{revoked.keeper.files.Cert}, start); err != nil {
		t.Fatal(err)
	}
	server.now = start.Add(2 * time.Second) // past the interval: the list is read again
	for name, test := range map[string]struct {
		server, client         *party
		serverNow              time.Duration
		wantServer, wantClient string
	}{
		"good":                      {server, client, 0, "", ""},
		"client of other authority": {server, foreign, 0, "unknown authority", "unknown certificate authority"},
		"server of other authority": {strangeServer, client, 0, "bad certificate", "unknown authority"},
		"client expired":            {server, expired, 2 * time.Hour, "expired", ""},
		"client revoked": {
			server, revoked, 0, "spiffe://farlog/farlog/host/trading3 is revoked",
			"bad certificate",
		},
	} {
		t.Run(name, func(t *testing.T) {
			one := *test.server
			one.keeper = &Keeper{files: test.server.keeper.files, logger: slog.New(slog.DiscardHandler), now: one.clock}
			one.now = test.server.now.Add(test.serverNow)
			serverErr, clientErr := meet(t, &one, test.client, "10.1.2.3")
			checkError(t, "server", serverErr, test.wantServer)
			if test.wantServer == "" || test.wantClient != "" {
				checkError(t, "client", clientErr, test.wantClient)
			} else if clientErr == nil {
				t.Error("the client did not learn that it was refused")
			}
		})
	}
}

func checkError(t *testing.T, who string, err error, want string) {
	t.Helper()
	if want == "" && err != nil {
		t.Errorf("%s: %v", who, err)
	}
	if want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		t.Errorf("%s: got %v, want %q", who, err, want)
	}
}

// Whoever has the certificate of another kind cannot pose as the control plane, even one that may serve.
func TestConnection_ServerMustBeAControlPlane(t *testing.T) {
	a := newAuthority(t, "farlog")
	client := newParty(t, a, a.Dir, KindHost, "trading1")
	for _, kind := range []Kind{KindTarget, KindDrain, KindHost, KindAdmin} {
		_, err := meet(t, newParty(t, a, a.Dir, kind, "x"), client, "127.0.0.1")
		if err == nil {
			t.Errorf("a %s passed for a control plane", kind)
		}
	}
}

// A certificate that ended or was revoked since its holder came in is found out.
func TestCheck_LaterThanTheHandshake(t *testing.T) {
	a := newAuthority(t, "farlog")
	server := newParty(t, a, a.Dir, KindControl, "c")
	client := newParty(t, a, filepath.Join(a.Dir, "one"), KindHost, "trading1")
	state := tls.ConnectionState{PeerCertificates: []*x509.Certificate{client.keeper.current.leaf}}
	if id, err := server.keeper.Check(state); err != nil || id != "spiffe://farlog/farlog/host/trading1" {
		t.Errorf("got %s, %v", id, err)
	}
	server.now = start.Add(2 * time.Hour)
	_, err := server.keeper.Check(state)
	checkError(t, "expired", err, "expired")
	server.now = start
	if _, err := a.Revoke([]string{client.keeper.files.Cert}, start); err != nil {
		t.Fatal(err)
	}
	server.now = start.Add(lookInterval)
	_, err = server.keeper.Check(state)
	checkError(t, "revoked", err, "is revoked")
	if _, err := server.keeper.Check(tls.ConnectionState{}); err == nil {
		t.Error("nobody passed for somebody")
	}
}

// A clock that jumps shuts everybody out while it is wrong, lets a revoked one in at no time, and does no lasting harm.
func TestCheck_ClockJumps(t *testing.T) {
	a := newAuthority(t, "farlog")
	server := newParty(t, a, a.Dir, KindControl, "c")
	client := newParty(t, a, filepath.Join(a.Dir, "one"), KindHost, "trading1")
	other := newParty(t, a, filepath.Join(a.Dir, "two"), KindHost, "trading2")
	if _, err := a.Revoke([]string{other.keeper.files.Cert}, start); err != nil {
		t.Fatal(err)
	}
	good := tls.ConnectionState{PeerCertificates: []*x509.Certificate{client.keeper.current.leaf}}
	bad := tls.ConnectionState{PeerCertificates: []*x509.Certificate{other.keeper.current.leaf}}
	for _, jump := range []time.Duration{
		lookInterval, -48 * time.Hour, 0, 365 * 24 * time.Hour, lookInterval,
		-24 * 365 * time.Hour, 2 * lookInterval,
	} {
		server.now = start.Add(jump)
		_, err := server.keeper.Check(good)
		if isRight := jump >= 0 && jump < time.Hour; (err == nil) != isRight {
			t.Errorf("clock off by %s: %v", jump, err)
		}
		if _, err := server.keeper.Check(bad); err == nil {
			t.Errorf("clock off by %s: a revoked certificate is good", jump)
		}
	}
}

// What is revoked is said so wherever the authority has put its list, also when the certificate itself is gone; the
// authority cannot revoke itself.
func TestRevoke_IsShown(t *testing.T) {
	a := newAuthority(t, "farlog")
	dir := filepath.Join(a.Dir, "host-one")
	newParty(t, a, dir, KindHost, "one")
	gone := newParty(t, a, filepath.Join(a.Dir, "host-gone"), KindHost, "gone")
	if _, err := a.Revoke([]string{In(dir, KindHost).Cert, gone.keeper.files.Cert}, start); err != nil {
		t.Fatal(err)
	}
	_, err := a.Revoke([]string{filepath.Join(a.Dir, authorityCert)}, start)
	checkError(t, "itself", err, "is that of the authority itself")
	if err := os.RemoveAll(filepath.Join(a.Dir, "host-gone")); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{
		dir: "spiffe://farlog good, spiffe://farlog/farlog/host/one revoked",
		a.Dir: "spiffe://farlog good, spiffe://farlog/farlog/host/one revoked, serial " +
			NewListed(gone.keeper.current.leaf).Serial + " revoked",
	} {
		list, err := ListIssued(dir)
		if err != nil {
			t.Fatal(err)
		}
		var texts []string
		for _, one := range list {
			texts = append(texts, string(one.ID)+" "+one.State(start))
		}
		if got := strings.Join(texts, ", "); got != want {
			t.Errorf("%s: got %s, want %s", dir, got, want)
		}
	}
}

func TestRenew_KeepsWhatACertificateSays(t *testing.T) {
	a := newAuthority(t, "bank.example")
	order := Order{
		Kind: KindTarget, Name: "storage1", Hosts: []string{"storage1.example", "10.0.0.1"},
		Validity: time.Hour,
	}
	before, err := a.Issue(a.Dir, order, start)
	if err != nil {
		t.Fatal(err)
	}
	if made, err := a.Renew(a.Dir, time.Hour, start.Add(time.Minute), start); err != nil || len(made) != 0 {
		t.Errorf("renewed %d that do not end soon, %v", len(made), err)
	}
	opened, err := OpenAuthority(a.Dir)
	if err != nil {
		t.Fatal(err)
	}
	later := start.Add(50 * time.Minute)
	made, err := opened.Renew(a.Dir, 0, time.Time{}, later)
	if err != nil || len(made) != 1 {
		t.Fatalf("renewed %d, %v", len(made), err)
	}
	after := made[0]
	if nameOf(after) != "spiffe://bank.example/farlog/target/storage1" || after.DNSNames[0] != before.DNSNames[0] ||
		!after.IPAddresses[0].Equal(before.IPAddresses[0]) || !after.NotAfter.Equal(later.Add(ValidityDefault)) ||
		after.SerialNumber.Cmp(before.SerialNumber) == 0 {
		t.Errorf("got %s, %v, %v, until %s", nameOf(after), after.DNSNames, after.IPAddresses, after.NotAfter)
	}
}

func TestInitAuthority_NeverTwice(t *testing.T) {
	a := newAuthority(t, "farlog")
	_, err := InitAuthority(a.Dir, "farlog", start)
	checkError(t, "again", err, "is there already")
	_, err = a.Issue(a.Dir, Order{Kind: KindHost, Name: "h", Validity: 20 * 365 * 24 * time.Hour}, start)
	checkError(t, "longer than the authority", err, "expected no more than 2036-11-")
	_, err = InitAuthority(filepath.Join(a.Dir, "new"), "Farlog", start)
	checkError(t, "domain", err, `trust domain "Farlog": expected small letters`)
	_, err = OpenAuthority(filepath.Join(a.Dir, "none"))
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestID_OfCertificates(t *testing.T) {
	uri := func(text string) *url.URL {
		parsed, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return parsed
	}
	for name, test := range map[string]struct {
		cert x509.Certificate
		want ID
	}{
		"spiffe": {x509.Certificate{
			URIs:     []*url.URL{uri("https://x"), uri("spiffe://bank/ns/desk7")},
			DNSNames: []string{"a"},
		}, "spiffe://bank/ns/desk7"},
		"dns":    {x509.Certificate{DNSNames: []string{"a", "b"}}, "dns:a"},
		"two":    {x509.Certificate{URIs: []*url.URL{uri("spiffe://bank/a"), uri("spiffe://bank/b")}}, ""},
		"nobody": {x509.Certificate{}, ""},
	} {
		if got, err := IDOf(&test.cert); got != test.want || (err == nil) != (test.want != "") {
			t.Errorf("%s: got %s, %v", name, got, err)
		}
	}
	for id, want := range map[ID]Kind{
		"spiffe://farlog/farlog/admin/ada": KindAdmin, "spiffe://bank.example/farlog/target/s1": KindTarget,
		"spiffe://bank/admin/ada": "", "spiffe://bank/farlog/king/ada": "", "spiffe://bank/farlog/admin/": "",
		"dns:farlog/admin/ada":             "",
		"spiffe://bank/x/farlog/admin/ada": "", "spiffe://bank": "",
	} {
		if kind, _, ok := id.Kind(); kind != want || ok != (want != "") {
			t.Errorf("%s: kind %q", id, kind)
		}
	}
}

func TestInsecure_LoopbackOnly(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1:7070": true, "127.8.8.8:1": true, "[::1]:7070": true, "localhost:7070": true,
		"0.0.0.0:7070": false, ":7070": false, "[::]:7070": false, "10.0.0.1:7070": false, "control1:7070": false,
		"localhost": false,
	} {
		if got := CheckInsecure(address) == nil; got != want {
			t.Errorf("%s: allowed %v", address, got)
		}
	}
}

// Programs of one user find the certificates of a control plane on this host; a directory that others could write is
// not believed.
func TestAnnounce_FoundByItsAddress(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", "")
	t.Setenv("TMPDIR", t.TempDir())
	dir := filepath.Join(t.TempDir(), "tls")
	if err := EnsureLocal(dir, time.Now()); err != nil {
		t.Fatal(err)
	}
	withdraw, err := Announce("127.0.0.1:7070", dir)
	if err != nil {
		t.Fatal(err)
	}
	choice := Choice{Control: "localhost:7070", Kinds: []Kind{KindAdmin}, SystemDir: filepath.Join(dir, "none")}
	if files, err := choice.Files(); err != nil || files.Dir() != dir {
		t.Errorf("got %+v, %v", files, err)
	}
	choice.Control = "127.0.0.1:7071"
	if _, err := choice.Files(); !errors.Is(err, ErrNoCertificates) {
		t.Errorf("another address: %v", err)
	}
	choice.Control = "127.0.0.1:7070"
	if err := os.Chmod(announceDirs()[0], 0o777); err != nil {
		t.Fatal(err)
	}
	_, err = choice.Files()
	checkError(t, "writable by others", err, "expected one of this user's alone")
	if err := errors.Join(os.Chmod(announceDirs()[0], 0o700), withdraw()); err != nil {
		t.Fatal(err)
	}
	if _, err := choice.Files(); !errors.Is(err, ErrNoCertificates) {
		t.Errorf("withdrawn: %v", err)
	}
	if _, err := Announce("127.0.0.1:7070", dir); err != nil {
		t.Fatal(err)
	}
	if err := Unannounce("127.0.0.1:7070"); err != nil {
		t.Fatal(err)
	}
	if _, err := choice.Files(); !errors.Is(err, ErrNoCertificates) {
		t.Errorf("taken back: %v", err)
	}
	choice.SystemDir = t.TempDir()
	if _, err := choice.Files(); !errors.Is(err, ErrNoCertificates) {
		t.Errorf("an empty folder of the system: %v", err)
	}
	if err := os.WriteFile(filepath.Join(choice.SystemDir, "target.crt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = choice.Files()
	checkError(t, "a folder without this kind", err, "expected admin.crt there")
}
