package identity

import (
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestKeeper_FilesAreReadAgain(t *testing.T) {
	a := newAuthority(t, "farlog")
	p := newParty(t, a, a.Dir, KindTarget, "one")
	if id := p.keeper.ID(); id != "spiffe://farlog/farlog/target/one" {
		t.Fatalf("id %s", id)
	}
	if _, err := a.Issue(a.Dir, Order{Kind: KindTarget, Name: "two"}, start); err != nil {
		t.Fatal(err)
	}
	if id := p.keeper.ID(); id != "spiffe://farlog/farlog/target/one" {
		t.Errorf("looked at the files within the interval: %s", id)
	}
	p.now = start.Add(lookInterval)
	if id := p.keeper.ID(); id != "spiffe://farlog/farlog/target/two" {
		t.Errorf("not read again: %s", id)
	}
	// The key of another certificate: the pair that fits stays in force, until one that fits is there again.
	other := newParty(t, a, filepath.Join(a.Dir, "other"), KindTarget, "three")
	raw, err := os.ReadFile(other.keeper.files.Key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.keeper.files.Key, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	p.now = p.now.Add(lookInterval)
	if id := p.keeper.ID(); id != "spiffe://farlog/farlog/target/two" ||
		!strings.Contains(p.keeper.failure, "private key does not match") {
		t.Errorf("id %s, failure %q", id, p.keeper.failure)
	}
	if raw, err = os.ReadFile(other.keeper.files.Cert); err == nil {
		err = os.WriteFile(p.keeper.files.Cert, raw, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	p.now = p.now.Add(lookInterval)
	if id := p.keeper.ID(); id != "spiffe://farlog/farlog/target/three" {
		t.Errorf("not read again after a failure: %s", id)
	}
}

// A list of revoked certificates that disappears, or is signed by somebody else, lets nobody in again.
func TestKeeper_RevokedStayRevoked(t *testing.T) {
	a, other := newAuthority(t, "farlog"), newAuthority(t, "farlog")
	server := newParty(t, a, a.Dir, KindControl, "c")
	client := newParty(t, a, filepath.Join(a.Dir, "one"), KindHost, "trading1")
	if _, err := a.Revoke([]string{client.keeper.files.Cert}, start); err != nil {
		t.Fatal(err)
	}
	state := tls.ConnectionState{PeerCertificates: []*x509.Certificate{client.keeper.current.leaf}}
	foreign, err := os.ReadFile(filepath.Join(other.Dir, revokedName))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(a.Dir, revokedName)
	for _, change := range []func() error{
		func() error { return nil },
		func() error { return os.WriteFile(path, foreign, 0o644) },
		func() error { return os.WriteFile(path, []byte("nothing"), 0o644) },
		func() error { return os.Remove(path) },
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
		server.now = server.now.Add(lookInterval)
		_, err := server.keeper.Check(state)
		checkError(t, "revoked", err, "is revoked")
	}
}

// A list from before a revocation, put in the place of the newer one, lets nobody in again; it is told, once, and what
// else is renewed beside it is taken. The newest is taken again.
func TestKeeper_AnOlderListIsRefused(t *testing.T) {
	a := newAuthority(t, "farlog")
	server := newParty(t, a, a.Dir, KindControl, "c")
	client := newParty(t, a, filepath.Join(a.Dir, "one"), KindHost, "trading1")
	var said strings.Builder
	server.keeper.logger = slog.New(slog.NewTextHandler(&said, nil))
	path := filepath.Join(a.Dir, revokedName)
	older, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Revoke([]string{client.keeper.files.Cert}, start.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	newer, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	state := tls.ConnectionState{PeerCertificates: []*x509.Certificate{client.keeper.current.leaf}}
	look := func(isRefused bool) {
		t.Helper()
		server.now = server.now.Add(lookInterval)
		_, err := server.keeper.Check(state)
		checkError(t, "revoked", err, "is revoked")
		if got := server.keeper.IsListRefused(); got != isRefused {
			t.Errorf("the list is refused: %t, want %t", got, isRefused)
		}
	}
	look(false)
	if err := os.WriteFile(path, older, 0o644); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		look(true)
	}
	if got := strings.Count(said.String(), "an older list of revoked certificates is refused"); got != 1 {
		t.Errorf("told %d times: %s", got, said.String())
	}
	before := server.keeper.NotAfter()
	if _, err := a.Issue(a.Dir, Order{Kind: KindControl, Name: "c", Validity: 2 * time.Hour}, start); err != nil {
		t.Fatal(err)
	}
	look(true)
	if !server.keeper.NotAfter().After(before) {
		t.Error("a renewed certificate beside the older list is not taken")
	}
	if err := os.WriteFile(path, newer, 0o644); err != nil {
		t.Fatal(err)
	}
	look(false)
}

// An agent that was told of a list that is not there has no certificates to connect with, and says why, until it is
// there.
func TestFinder_WaitsForTheListThatItWasToldOf(t *testing.T) {
	a := newAuthority(t, "farlog")
	newParty(t, a, a.Dir, KindTarget, "t")
	list := filepath.Join(t.TempDir(), "later.pem")
	find := Choice{
		Authority: filepath.Join(a.Dir, authorityCert), Cert: In(a.Dir, KindTarget).Cert,
		Key: In(a.Dir, KindTarget).Key, Revoked: list,
		Kinds: []Kind{KindTarget}, Logger: slog.New(slog.DiscardHandler),
	}.Finder()
	_, err := find()
	checkError(t, "without the list", err, "later.pem\" is not there")
	raw, err := os.ReadFile(filepath.Join(a.Dir, revokedName))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(list, raw, 0o644); err != nil {
		t.Fatal(err)
	}
	if keeper, err := find(); err != nil || keeper.ID() != "spiffe://farlog/farlog/target/t" {
		t.Errorf("when it is there: %v", err)
	}
}

// A control plane that starts without the list would let in again who was shut out; it does not start. Nor does anybody
// who was told of a list.
func TestKeeper_NoStartWithoutTheList(t *testing.T) {
	a := newAuthority(t, "farlog")
	newParty(t, a, a.Dir, KindControl, "c")
	newParty(t, a, a.Dir, KindHost, "h")
	told := Choice{
		Authority: filepath.Join(a.Dir, authorityCert), Cert: In(a.Dir, KindHost).Cert,
		Key: In(a.Dir, KindHost).Key, Revoked: filepath.Join(a.Dir, revokedName),
	}
	files, err := told.Files()
	if err != nil {
		t.Fatal(err)
	}
	logger := slog.New(slog.DiscardHandler)
	if err := os.Remove(files.Revoked); err != nil {
		t.Fatal(err)
	}
	for _, files := range []Files{In(a.Dir, KindControl), files} {
		_, err := NewKeeper(files, logger)
		checkError(t, "without the list", err, "crl.pem\" is not there, and without it revoked certificates")
	}
	if _, err := NewKeeper(In(a.Dir, KindHost), logger); err != nil {
		t.Errorf("who lets nobody in: %v", err)
	}
}

func TestKeeper_RefusesAKeyForEverybody(t *testing.T) {
	a := newAuthority(t, "farlog")
	files := In(a.Dir, KindHost)
	if _, err := a.Issue(a.Dir, Order{Kind: KindHost, Name: "h"}, time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(files.Key, 0o640); err != nil {
		t.Fatal(err)
	}
	_, err := NewKeeper(files, slog.New(slog.DiscardHandler))
	checkError(t, "key", err, "can be read by others than its owner: chmod 600")
}

// Root may let the group of a role read its key, as systemd and Kubernetes do; nobody else may, nor may one write it.
func TestKeyMode_RootMayLetAGroupRead(t *testing.T) {
	for _, test := range []struct {
		mode        os.FileMode
		owner, user int
		want        bool
	}{
		{0o600, 1000, 1000, true},
		{0o400, 0, 1000, true},
		{0o440, 0, 1000, true},
		{0o640, 0, 1000, true},
		{0o640, 0, 0, false},
		{0o640, 1000, 1000, false},
		{0o660, 0, 1000, false},
		{0o644, 0, 1000, false},
		{0o640, -1, 1000, false},
	} {
		if got := isKeyMode(test.mode, test.owner, test.user); got != test.want {
			t.Errorf(
				"mode %o of user %d for user %d: %v, expected %v",
				test.mode,
				test.owner,
				test.user,
				got,
				test.want,
			)
		}
	}
}
