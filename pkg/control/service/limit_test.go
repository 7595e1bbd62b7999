package service

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/refusal"
	"github.com/farlog/farlog/pkg/control/refusal/refusaltest"
	"github.com/farlog/farlog/pkg/identity"
)

// from dials out of another address of this host, so that it counts as another host.
func (g *guarded) from(address string) net.Conn {
	g.t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}, Timeout: stepTimeout}
	conn, err := dialer.Dial("tcp", g.address)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { conn.Close() })
	return conn
}

// One client says nothing on hundreds of connections, one sends a request that never ends, one watches and reads
// nothing, one asks without end. The one that asks is told so; another client, on the same host even, is answered every
// time.
func TestLimit_HostileClientsDoNotStarveOthers(t *testing.T) {
	t.Parallel()
	// which the flood of a slow machine exceeds as well; a burst is 400, more than the modest client asks
	g := startGuardedAt(t, "rules: []\n", 100)
	admin := api.NewControlServiceClient(g.dial(g.keeper(identity.KindAdmin, "ada", time.Hour)))
	for i := range 50 {
		if _, err := admin.CreateStream(t.Context(),
			&api.CreateStreamRequest{Spec: &api.StreamSpec{Name: fmt.Sprintf("s%d", i)}}); err != nil {
			t.Fatal(err)
		}
	}
	for range 400 {
		g.from("127.0.0.2")
	}
	g.endlessRequest(g.keeper(identity.KindHost, "slow", time.Hour))
	g.deafWatch(g.keeper(identity.KindHost, "deaf", time.Hour))

	ctx, cancel := context.WithCancel(t.Context())
	var flood sync.WaitGroup
	var refused, floods atomic.Int64
	greedy := g.keeper(identity.KindHost, "greedy", time.Hour)
	for range 8 {
		conn := api.NewControlServiceClient(g.dial(greedy))
		flood.Go(func() {
			for ctx.Err() == nil {
				_, err := conn.ListStreams(ctx, &api.ListStreamsRequest{})
				floods.Add(1)
				if reason, _ := refusaltest.Check(t, err); status.Code(err) == codes.ResourceExhausted &&
					reason == refusal.ReasonCalls {
					refused.Add(1)
				}
			}
		})
	}
	for deadline := time.Now().Add(stepTimeout); refused.Load() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nobody was ever refused")
		}
	}
	for i := range 200 {
		call, cancel := context.WithTimeout(ctx, stepTimeout)
		var err error
		if i%5 == 0 { // a write waits for the disk, flood or not
			_, err = admin.CreateStream(call, &api.CreateStreamRequest{Spec: &api.StreamSpec{Name: fmt.Sprintf("t%d",
				i)}})
		} else {
			_, err = admin.GetStream(call, &api.GetStreamRequest{Name: fmt.Sprintf("s%d", i%50)})
		}
		if err != nil {
			t.Errorf("call %d of a modest client: %v", i, err)
		}
		cancel()
	}
	cancel()
	flood.Wait()
	t.Logf("%d calls of the flood, %d refused", floods.Load(), refused.Load())
}

// endlessRequest says that a megabyte follows, and sends a byte now and then.
func (g *guarded) endlessRequest(keeper *identity.Keeper) {
	g.t.Helper()
	config, err := keeper.ClientConfig("127.0.0.1")
	if err != nil {
		g.t.Fatal(err)
	}
	config.NextProtos = []string{"http/1.1"}
	conn := tls.Client(g.from("127.0.0.3"), config)
	if _, err := io.WriteString(conn, "PUT /v1/fabric HTTP/1.1\r\nHost: x\r\nContent-Type: "+
		"application/json\r\nContent-Length: 1000000\r\n\r\n{"); err != nil {
		g.t.Fatal(err)
	}
	stopped := make(chan struct{})
	g.t.Cleanup(func() { close(stopped) })
	go func() {
		for {
			select {
			case <-time.After(100 * time.Millisecond):
				_, _ = conn.Write([]byte(" "))
			case <-stopped:
				return
			}
		}
	}()
}

// deafWatch opens watches and reads none of them.
func (g *guarded) deafWatch(keeper *identity.Keeper) {
	g.t.Helper()
	conn, err := api.Dial(g.address, identity.NewClientCredentials(func() (*identity.Keeper, error) {
		return keeper,
			nil
	}))
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { conn.Close() })
	for range 50 {
		if _, err := api.NewControlServiceClient(conn).WatchStreams(g.t.Context(),
			&api.WatchStreamsRequest{}); err != nil {
			g.t.Fatal(err)
		}
	}
}

// fromAddress is a connection of which only the other end's address and its end are known.
type fromAddress struct {
	net.Conn
	address  string
	isClosed bool
}

func (f *fromAddress) RemoteAddr() net.Addr { return clientAddress(f.address + ":1") }

func (f *fromAddress) Close() error {
	f.isClosed = true
	return nil
}

// An address has only so many connections whose ends are known, of which some may end and make space for others.
func TestLimit_ConnectionsOfAnAddress(t *testing.T) {
	t.Parallel()
	c := newConnLimiter()
	promote := func(address string) (*trackedConn, bool) {
		v := c.track(&fromAddress{address: address})
		return v, v.promote()
	}
	var last *trackedConn
	for range connectionsMax {
		var ok bool
		if last, ok = promote("10.0.0.1"); !ok {
			t.Fatal("refused before there were too many")
		}
	}
	refused, ok := promote("10.0.0.1")
	if ok {
		t.Error("one too many came in")
	}
	refused.release()
	if _, ok := promote("10.0.0.2"); !ok {
		t.Error("another address paid for it")
	}
	last.release()
	last.release() // a connection may be closed twice
	if _, ok := promote("10.0.0.1"); !ok {
		t.Error("one that left made no space")
	}
	if _, ok := promote("10.0.0.1"); ok {
		t.Error("one that was closed twice made space for two")
	}
}

// Unauthenticated connections keep nobody out: where there are too many the oldest is closed, never an authenticated
// one.
func TestLimit_UnauthenticatedGoFirst(t *testing.T) {
	t.Parallel()
	c := newConnLimiter()
	var conns []*fromAddress
	var known []*trackedConn
	for i := range 3 * unauthenticatedMax {
		conn := &fromAddress{address: "10.0.0.1"}
		v := c.track(conn)
		if i%3 == 0 {
			if !v.promote() {
				t.Fatal("unauthenticated connections kept out an authenticated one")
			}
			known = append(known, v)
		}
		conns = append(conns, conn)
	}
	pending, closed := 0, 0
	for i, conn := range conns {
		if i%3 == 0 {
			if conn.isClosed {
				t.Fatal("somebody known was closed")
			}
			continue
		}
		if pending++; conn.isClosed {
			closed++
			if pending > unauthenticatedMax {
				t.Fatal("one of the last was closed before one of the first")
			}
		}
	}
	if pending-closed != unauthenticatedMax {
		t.Errorf("%d unauthenticated connections are left, expected %d", pending-closed, unauthenticatedMax)
	}
	for _, v := range known {
		v.release()
	}
	if len(c.authenticated) != 0 || len(c.unauthenticated["10.0.0.1"]) != unauthenticatedMax {
		t.Errorf("%d addresses are known, %d unauthenticated connections, when those that were known have left",
			len(c.authenticated), len(c.unauthenticated["10.0.0.1"]))
	}
}

// More silent connections than an address may have, without any certificate: who has one comes in from the same
// address.
func TestLimit_SilentConnectionsKeepNobodyOut(t *testing.T) {
	t.Parallel()
	g := startGuarded(t, "rules: []\n")
	for range connectionsMax + unauthenticatedMax {
		g.from("127.0.0.1")
	}
	ctx, cancel := context.WithTimeout(t.Context(), stepTimeout)
	defer cancel()
	if _, err := api.NewControlServiceClient(g.dial(g.keeper(identity.KindHost, "h", time.Hour))).ListStreams(ctx,
		&api.ListStreamsRequest{}); err != nil {
		t.Error(err)
	}
}

// A body of which a byte comes now and then ends; one that gets on is given the same time again for every so many
// bytes, however long it takes.
func TestPaced_DrippedBodyEnds(t *testing.T) {
	t.Parallel()
	const readMost = 32 << 10 // io.Copy's
	send := func(limit time.Duration, chunk, chunks int) (said string, given int64) {
		var deadlines atomic.Int64
		ended := make(chan error, 1) // the client may see a reset connection in place of the answer
		server := httptest.NewServer(http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
			deadline := func(at time.Time) error {
				if !at.IsZero() {
					deadlines.Add(1)
				}
				return http.NewResponseController(response).SetReadDeadline(at)
			}
			_, err := io.Copy(io.Discard, &paced{ReadCloser: request.Body, deadline: deadline, limit: limit})
			ended <- err
		}))
		defer server.Close()
		reader, writer := io.Pipe()
		defer reader.Close()
		go func() {
			for range chunks {
				if _, err := writer.Write(make([]byte, chunk)); err != nil {
					return
				}
				time.Sleep(time.Millisecond) // the pace itself, not a wait
			}
			writer.Close()
		}()
		if response, err := http.Post(server.URL, "application/json", reader); err == nil {
			response.Body.Close()
		}
		return fmt.Sprint(<-ended), deadlines.Load()
	}
	if got, given := send(300*time.Millisecond, 1, 50_000); got != errBodySlow.Error() || given != 1 {
		t.Errorf("a byte now and then: %s, %d times", got, given)
	}
	const chunks = 20
	if got, given := send(stepTimeout, bodyPaceBytes, chunks); got != "<nil>" ||
		given < chunks*bodyPaceBytes/(bodyPaceBytes+readMost) {
		t.Errorf("one that gets on: %s, %d times for %d chunks", got, given, chunks)
	}
}

func TestLimit_SharesAreByIdentityAndAddress(t *testing.T) {
	t.Parallel()
	l := newLimiter(10)
	at := func(address string) context.Context {
		return peer.NewContext(t.Context(), &peer.Peer{Addr: clientAddress(address + ":5")})
	}
	began := time.Now()
	exhaust := func(c client) (count int) {
		for l.call(c) == nil && count < 10000 {
			count++
		}
		return count
	}
	method := api.ControlService_ListStreams_FullMethodName
	ada := clientOf(at("10.0.0.1"), "ada", method)
	if count := exhaust(ada); count < 40 || count > 41+int(10*time.Since(began).Seconds()) {
		t.Errorf("%d calls at once, expected the burst of 40", count)
	}
	for _, c := range []client{
		clientOf(at("10.0.0.2"), "ada", method), clientOf(at("10.0.0.1"), "bob", method),
		clientOf(at("10.0.0.1"), "ada", api.TargetService_ReportTarget_FullMethodName),
	} {
		if err := l.call(c); err != nil {
			t.Errorf("%v paid for another one: %v", c, err)
		}
	}
	var ends []func()
	for range watchesMax {
		end, err := l.watch(ada)
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, end)
	}
	_, err := l.watch(ada)
	if reason, _ := refusaltest.Check(t, err); status.Code(err) != codes.ResourceExhausted ||
		reason != refusal.ReasonWatches {
		t.Errorf("one watch too many: %v", err)
	}
	ends[0]()
	if _, err := l.watch(ada); err != nil {
		t.Error(err)
	}
}

// A message that is too large is refused without being looked at, over gRPC and over HTTP.
func TestLimit_MessageSize(t *testing.T) {
	t.Parallel()
	g := startGuarded(t, "rules: []\n")
	keeper := g.keeper(identity.KindAdmin, "ada", time.Hour)
	control := api.NewControlServiceClient(g.dial(keeper))
	large := &api.CreateStreamRequest{Spec: &api.StreamSpec{Name: string(make([]byte, api.RequestLenMax+1))}}
	_, err := control.CreateStream(t.Context(), large, grpc.MaxCallSendMsgSize(2*api.RequestLenMax))
	checkTooLarge(t, "gRPC", err, strconv.Itoa(proto.Size(large)))
	_, err = control.CreateStream(t.Context(), large, grpc.MaxCallSendMsgSize(2*api.RequestLenMax),
		grpc.UseCompressor(gzip.Name))
	checkTooLarge(t, "gRPC, packed", err, strconv.Itoa(proto.Size(large)))
	large.Spec.Name += large.Spec.Name
	_, err = control.CreateStream(t.Context(), large, grpc.MaxCallSendMsgSize(4*api.RequestLenMax))
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("what is not even read: %v", err)
	}
	restore, err := control.Restore(t.Context(), grpc.MaxCallSendMsgSize(2*api.RequestLenMax))
	if err != nil {
		t.Fatal(err)
	}
	entry := &api.BackupEntry{Key: "spec/streams/a", Value: large.Spec.Name[:api.RequestLenMax]}
	if err := restore.Send(entry); err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	_, err = restore.CloseAndRecv()
	checkTooLarge(t, "a message of several", err, strconv.Itoa(proto.Size(entry)))
	config, err := keeper.ClientConfig("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	config.NextProtos = []string{"http/1.1"}
	conn := tls.Client(g.from("127.0.0.1"), config)
	go func() { // the server may hang up before all of it is sent
		fmt.Fprintf(conn, "POST /v1/streams HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n{\"spec\":{\"name\":\"",
			2*api.RequestLenMax)
		_, _ = io.CopyN(conn, zeros{}, 2*api.RequestLenMax)
	}()
	answer := make([]byte, 4096)
	if err := conn.SetReadDeadline(time.Now().Add(stepTimeout)); err != nil {
		t.Fatal(err)
	}
	count, err := conn.Read(answer)
	if err != nil && !errors.Is(err, io.EOF) || string(answer[:min(count, 12)]) != "HTTP/1.1 413" {
		t.Errorf("HTTP: %q, %v", answer[:count], err)
	}
}

// checkTooLarge wants of a refusal that it says what is too large, how large it is, and how large it may be.
func checkTooLarge(t *testing.T, name string, err error, length string) {
	t.Helper()
	reason, field := refusaltest.Check(t, err)
	if status.Code(err) != codes.ResourceExhausted || reason != refusal.ReasonMessageLen || field != "message" {
		t.Errorf("%s: %v, of %s %s", name, err, reason, field)
		return
	}
	if got, want := problemsIn(err), fmt.Sprintf("message=%s: expected at most %d bytes", length,
		api.RequestLenMax); len(got) != 1 || got[0] != want {
		t.Errorf("%s: %q, want %q", name, got, want)
	}
}

type zeros struct{}

func (zeros) Read(into []byte) (int, error) {
	for i := range into {
		into[i] = '0'
	}
	return len(into), nil
}
