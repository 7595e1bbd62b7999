package service

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/access"
	"github.com/farlog/farlog/pkg/control/etcd/etcdtest"
	"github.com/farlog/farlog/pkg/identity"
)

// guarded is a control plane with TLS and rules, and an authority to make callers with.
type guarded struct {
	t         *testing.T
	dir       string
	authority *identity.Authority
	address   string
	log       *lockedBuffer
}

// lockedBuffer is a log that goroutines write.
type lockedBuffer struct {
	mutex  sync.Mutex
	buffer bytes.Buffer
}

func (b *lockedBuffer) Write(raw []byte) (int, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.buffer.Write(raw)
}

func (b *lockedBuffer) String() string {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.buffer.String()
}

func startGuarded(t *testing.T, rules string) *guarded {
	t.Helper()
	return startGuardedAt(t, rules, 0)
}

// startGuardedAt -- one that takes so many calls a second of a client; 0 = as usual.
func startGuardedAt(t *testing.T, rules string, callRate float64) *guarded {
	t.Helper()
	return startGuardedWith(t, rules, Config{CallRate: callRate})
}

func startGuardedWith(t *testing.T, rules string, config Config) *guarded {
	t.Helper()
	g := &guarded{t: t, dir: t.TempDir(), log: &lockedBuffer{}}
	var err error
	if g.authority, err = identity.InitAuthority(filepath.Join(g.dir, "tls"), "farlog", time.Now()); err != nil {
		t.Fatal(err)
	}
	logger := slog.New(slog.NewTextHandler(g.log, nil))
	keeper := g.keeper(identity.KindControl, "control1", time.Hour)
	path := filepath.Join(g.dir, "access.yaml")
	if err := os.WriteFile(path, []byte(rules), 0o644); err != nil {
		t.Fatal(err)
	}
	file, err := access.OpenFile(path, logger)
	if err != nil {
		t.Fatal(err)
	}
	config.Client, config.Logger, config.IsSole, config.Lease = etcdtest.Open(t, filepath.Join(g.dir, "etcd")).Client(),
		logger, true, stepTimeout
	config.Keeper, config.Access = keeper, file
	server := New(config)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g.address = listener.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- server.Run(ctx, listener, func() { close(ready) }) }()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return g
}

// keeper makes a certificate in a directory of its own.
func (g *guarded) keeper(kind identity.Kind, name string, validity time.Duration) *identity.Keeper {
	g.t.Helper()
	dir := filepath.Join(g.dir, "tls")
	if kind != identity.KindControl {
		dir = filepath.Join(g.dir, string(kind)+"-"+name)
	}
	if _, err := g.authority.Issue(dir, identity.Order{Kind: kind, Name: name, Validity: validity},
		time.Now()); err != nil {
		g.t.Fatal(err)
	}
	keeper, err := identity.NewKeeper(identity.In(dir, kind), slog.New(slog.DiscardHandler))
	if err != nil {
		g.t.Fatal(err)
	}
	return keeper
}

func (g *guarded) dial(keeper *identity.Keeper) *grpc.ClientConn {
	g.t.Helper()
	conn, err := api.Dial(g.address, identity.NewClientCredentials(func() (*identity.Keeper, error) {
		return keeper,
			nil
	}))
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { conn.Close() })
	return conn
}

// allowed is the table as documented: who may make which call. A column that is missing may make none but Health.
var allowed = map[string]string{
	"CreateStream":     "admin",
	"UpdateStream":     "admin",
	"DeleteStream":     "admin",
	"ApplyFabric":      "admin",
	"Backup":           "admin",
	"Restore":          "admin",
	"GetFabric":        "admin audit",
	"WatchStreams":     "append drain replay admin audit target",
	"ListStreams":      "append drain replay admin audit target",
	"GetStream":        "append drain replay admin audit target",
	"AcquireWriter":    "append",
	"ExtendWriter":     "append",
	"CheckWriters":     "append",
	"AcquireReader":    "replay",
	"ReportConsumer":   "replay", // of a route: append
	"CreateRoute":      "admin",
	"UpdateRoute":      "admin",
	"DeleteRoute":      "admin",
	"WatchRoutes":      "append drain replay admin audit target",
	"ListRoutes":       "append drain replay admin audit target",
	"GetRoute":         "append drain replay admin audit target",
	"AcquireRoute":     "append",
	"ListAgents":       "admin audit",
	"ListTargets":      "admin audit",
	"GetTarget":        "admin audit",
	"WatchTargets":     "admin audit",
	"CreateTarget":     "admin",
	"UpdateTarget":     "admin",
	"DeleteTarget":     "admin",
	"ListDrains":       "admin audit",
	"GetDrain":         "admin audit",
	"WatchDrains":      "admin audit",
	"CreateDrain":      "admin",
	"UpdateDrain":      "admin",
	"DeleteDrain":      "admin",
	"WatchRegions":     "append drain replay admin audit target",
	"WatchGrants":      "admin audit",
	"WatchEpochs":      "append drain replay admin audit target",
	"WatchWriters":     "append",
	"ListRegions":      "append drain replay admin audit target",
	"ListGrants":       "admin audit",
	"ListEpochs":       "append drain replay admin audit target",
	"ListHosts":        "admin audit",
	"ReportHost":       "append",
	"WatchRings":       "target",
	"ReportTarget":     "target",
	"WatchAssignments": "drain",
	"ReportDrain":      "drain",
	"TakeOverStream":   "admin",
	"RebindStream":     "admin",
	"ReplaceMember":    "admin",
	"AcceptLoss":       "admin",
	"WriteAudit":       "",
	"ExtendAudit":      "",
	"TakeOverAudit":    "",
	"ReadAudit":        "audit",
	"Health":           "append drain replay admin audit target none",
}

// waitsForRing are the calls that wait for a ring once they are let in. There is none here: they end UNAVAILABLE or by
// their deadline, which is short for who is let in only.
var waitsForRing = map[string]bool{
	"AcquireWriter": true, "AcquireReader": true, "TakeOverStream": true,
	"ReadAudit": true,
}

// TestGuard_EachRoleOnEachCall makes each call as somebody who has exactly one role, and as somebody who has none, over
// real connections: it is let in exactly where the table says.
func TestGuard_EachRoleOnEachCall(t *testing.T) {
	t.Parallel()
	rules := "rules:\n"
	for _, role := range access.Roles {
		rules += fmt.Sprintf("- {identities: [spiffe://farlog/farlog/host/%s], roles: [%s]}\n", role, role)
	}
	rules += "- {identities: [spiffe://farlog/farlog/host/none], roles: []}\n"
	g := startGuarded(t, rules)
	if len(trials()) != len(allowed) {
		t.Fatalf("%d calls are tried, the table has %d", len(trials()), len(allowed))
	}
	// The stream is there for everybody.
	if err := trials()["CreateStream"](t.Context(), g.dial(g.keeper(identity.KindAdmin, "ada",
		time.Hour))); err != nil {
		t.Fatal(err)
	}
	for _, role := range append([]access.Role{"none"}, access.Roles...) {
		conn := g.dial(g.keeper(identity.KindHost, string(role), time.Hour))
		for name, try := range trials() {
			want := strings.Contains(" "+allowed[name]+" ", " "+string(role)+" ")
			limit := stepTimeout
			if want && waitsForRing[name] {
				limit = 300 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			err := try(ctx, conn)
			cancel()
			if got := status.Code(err) != codes.PermissionDenied; got != want {
				t.Errorf("%s as %s: let in %v (%v)", name, role, got, err)
			}
			if code := status.Code(err); code == codes.Unauthenticated || code == codes.Unimplemented ||
				code == codes.Internal {
				t.Errorf("%s as %s: %v", name, role, err)
			}
		}
	}
}

// Somebody with a role on some streams sees, names and writes no other one.
func TestGuard_StreamsOfARole(t *testing.T) {
	t.Parallel()
	g := startGuarded(t,
		"rules:\n- {identities: [spiffe://farlog/farlog/host/desk7], roles: [append], streams: [desk7/*]}\n")
	admin := api.NewControlServiceClient(g.dial(g.keeper(identity.KindAdmin, "ada", time.Hour)))
	desk7 := api.NewControlServiceClient(g.dial(g.keeper(identity.KindHost, "desk7", time.Hour)))
	for _, name := range []string{"desk7/orders", "desk8/orders"} {
		if _, err := admin.CreateStream(t.Context(),
			&api.CreateStreamRequest{Spec: &api.StreamSpec{Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	list, err := desk7.ListStreams(t.Context(), &api.ListStreamsRequest{})
	if err != nil || len(list.Streams) != 1 || list.Streams[0].Stream.Spec.Name != "desk7/orders" {
		t.Errorf("listed %v, %v", list.GetStreams(), err)
	}
	for _, stream := range []string{"desk8/orders", "desk9/none"} {
		if _, err := desk7.GetStream(t.Context(),
			&api.GetStreamRequest{Name: stream}); status.Code(err) != codes.PermissionDenied {
			t.Errorf("get %s: %v", stream, err)
		}
		if _, err := desk7.AcquireWriter(t.Context(),
			&api.AcquireWriterRequest{Stream: stream}); status.Code(err) != codes.PermissionDenied {
			t.Errorf("acquire %s: %v", stream, err)
		}
	}
	_, err = desk7.GetStream(t.Context(), &api.GetStreamRequest{Name: "desk7/none"})
	if status.Code(err) != codes.NotFound || strings.Contains(err.Error(), "desk8") {
		t.Errorf("got %v, want NOT_FOUND that tells of no other desk", err)
	}
}

// An agent whose certificate is for one host cannot speak for another one, and so gets none of its tokens.
func TestGuard_AgentsSpeakForTheirHost(t *testing.T) {
	t.Parallel()
	g := startGuarded(t, "rules: []\n")
	conn := g.dial(g.keeper(identity.KindTarget, "storage1", time.Hour))
	report := func(id, host string) error {
		state := &api.TargetState{Agent: &api.Agent{Id: id, Host: host}}
		_, err := api.NewTargetServiceClient(conn).ReportTarget(t.Context(), &api.ReportTargetRequest{State: state})
		return err
	}
	if err := report("storage1-0000aaaa", "storage1"); err != nil {
		t.Error(err)
	}
	for _, err := range []error{report("storage2-0000aaaa", "storage2"), report("storage2-0000aaaa", "storage1")} {
		if status.Code(err) != codes.PermissionDenied {
			t.Errorf("got %v", err)
		}
	}
}

// A watch ends when its caller's certificate is revoked, and its holder does not come in again.
func TestGuard_RevokedWhileWatching(t *testing.T) {
	t.Parallel()
	g := startGuarded(t, "rules: []\n")
	keeper := g.keeper(identity.KindTarget, "storage1", time.Hour)
	conn := g.dial(keeper)
	target := api.NewTargetServiceClient(conn)
	ctx, cancel := context.WithTimeout(t.Context(), stepTimeout)
	defer cancel()
	watch, err := target.WatchRings(ctx, &api.WatchRingsRequest{Agent: &api.Agent{
		Id:   "storage1-0000aaaa",
		Host: "storage1",
	}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Recv(); err != nil {
		t.Fatal(err)
	}
	if _, err := g.authority.Revoke([]string{keeper.Files().Cert}, time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Recv(); status.Code(err) != codes.Unauthenticated ||
		!strings.Contains(err.Error(), "is revoked") {
		t.Errorf("the watch ended by %v", err)
	}
	if _, err := target.ReportTarget(ctx, &api.ReportTargetRequest{}); status.Code(err) != codes.Unauthenticated {
		t.Errorf("on the open connection: %v", err)
	}
	if _, err := api.NewTargetServiceClient(g.dial(keeper)).ReportTarget(ctx,
		&api.ReportTargetRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("on a new connection: %v", err)
	}
}

// A certificate that ends while its holder is connected is good for nothing from then on.
func TestGuard_ExpiredWhileConnected(t *testing.T) {
	t.Parallel()
	g := startGuarded(t, "rules: []\n")
	client := api.NewControlServiceClient(g.dial(g.keeper(identity.KindAdmin, "ada", 4*time.Second)))
	if _, err := client.ListStreams(t.Context(), &api.ListStreamsRequest{}); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(stepTimeout); ; time.Sleep(50 * time.Millisecond) {
		_, err := client.ListStreams(t.Context(), &api.ListStreamsRequest{})
		if status.Code(err) == codes.Unauthenticated && strings.Contains(err.Error(), "expired") {
			return
		}
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("got %v", err)
		}
	}
}

// Whoever speaks no TLS, or has no certificate, does not get in.
func TestGuard_NoCertificate(t *testing.T) {
	t.Parallel()
	g := startGuarded(t, "rules: []\n")
	conn, err := api.Dial(g.address, identity.Insecure())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := api.NewControlServiceClient(conn).ListStreams(t.Context(),
		&api.ListStreamsRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("without TLS: %v", err)
	}
	raw, err := net.Dial("tcp", g.address)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	if _, err := raw.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	answer, _ := io.ReadAll(raw)
	if bytes.Contains(answer, []byte("farlog")) {
		t.Errorf("answered %q", answer)
	}
}

// A refusal says what it is about: whoever has to give the role looks for a stream, or for a route, of that name.
func TestMayAsk_NamesRoutesAsRoutes(t *testing.T) {
	caller := access.Rules{{
		Identities: []string{"spiffe://bank/desk7"}, Roles: []access.Role{access.RoleAppend},
		Streams: []string{"desk7/*"},
	}}.Caller("spiffe://bank/desk7")
	for _, test := range []struct {
		method  string
		request any
		text    string
	}{
		{
			api.ControlService_AcquireRoute_FullMethodName, &api.AcquireRouteRequest{Route: "desk8/all"},
			`has not the role append on route "desk8/all"`,
		},
		{
			api.ControlService_AcquireWriter_FullMethodName, &api.AcquireWriterRequest{Stream: "desk8/orders"},
			`has not the role append on stream "desk8/orders"`,
		},
		{
			api.ControlService_DeleteRoute_FullMethodName, &api.DeleteRouteRequest{Name: "desk7/all"},
			`has not the role admin on route "desk7/all": `,
		},
		{api.ControlService_AcquireRoute_FullMethodName, &api.AcquireRouteRequest{Route: "desk7/all"}, ""},
	} {
		err := mayAsk(caller, test.method, test.request)
		if (err == nil) != (test.text == "") || err != nil && !strings.Contains(err.Error(), test.text) {
			t.Errorf("%s: %v, expected %q", test.method, err, test.text)
		}
	}
}
