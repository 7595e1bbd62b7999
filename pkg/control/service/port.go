package service

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/farlog/farlog/pkg/identity"
)

const (
	connectMax  = 5 * time.Second // for a client to say who it is and what it speaks
	acceptPause = 100 * time.Millisecond
)

// port is one listener for two protocols. A client that speaks HTTP/2 only is taken for gRPC, which speaks nothing
// else; one that also or only offers HTTP/1.1, as browsers, curl and libraries do, gets that, for JSON, Connect and
// gRPC-Web. With TLS the handshake tells (ALPN), without it the first bytes.
type port struct {
	net.Listener
	keeper  *identity.Keeper // nil: no TLS
	grpc    *half
	http    *half
	conns   sync.WaitGroup
	limiter *connLimiter
}

// half is the listener of one of the protocols.
type half struct {
	address net.Addr
	conns   chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

func newHalf(address net.Addr) *half {
	return &half{address: address, conns: make(chan net.Conn), closed: make(chan struct{})}
}

// Accept implements net.Listener.
func (h *half) Accept() (net.Conn, error) {
	select {
	case conn := <-h.conns:
		return conn, nil
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (h *half) Close() error {
	h.once.Do(func() { close(h.closed) })
	return nil
}

// Addr implements net.Listener.
func (h *half) Addr() net.Addr { return h.address }

func newPort(listener net.Listener, keeper *identity.Keeper) *port {
	return &port{
		Listener: listener, keeper: keeper, grpc: newHalf(listener.Addr()), http: newHalf(listener.Addr()),
		limiter: newConnLimiter(),
	}
}

// run accepts until the listener is closed.
func (p *port) run(ctx context.Context) error {
	defer p.conns.Wait()
	for {
		conn, err := p.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil { // too many open files, for one: it passes
			select {
			case <-time.After(acceptPause):
				continue
			case <-ctx.Done():
				return nil
			}
		}
		tracked := p.limiter.track(conn)
		p.conns.Go(func() { p.sort(ctx, counted{conn, tracked.release}, tracked) })
	}
}

// sort finds out what a client speaks and hands it on.
func (p *port) sort(ctx context.Context, conn net.Conn, tracked *trackedConn) {
	ctx, cancel := context.WithTimeout(ctx, connectMax)
	defer cancel()
	var isGRPC bool
	var err error
	if p.keeper != nil {
		var secure *tls.Conn
		if secure, err = p.keeper.Handshake(ctx, conn); err == nil {
			conn, isGRPC = secure, secure.ConnectionState().NegotiatedProtocol == "h2"
		}
	} else {
		conn, isGRPC, err = peek(conn)
	}
	if err != nil || !tracked.promote() {
		_ = conn.Close()
		return
	}
	to := p.http
	if isGRPC {
		to = p.grpc
	}
	select {
	case to.conns <- conn:
	case <-to.closed:
		_ = conn.Close()
	}
}

// peeked is a connection whose first bytes were looked at.
type peeked struct {
	net.Conn
	reader *bufio.Reader
}

// Read implements net.Conn.
func (p *peeked) Read(into []byte) (int, error) { return p.reader.Read(into) }

// prefaceStart begins every connection of HTTP/2, and no request of HTTP/1.
const prefaceStart = "PRI "

func peek(conn net.Conn) (net.Conn, bool, error) {
	if err := conn.SetReadDeadline(time.Now().Add(connectMax)); err != nil {
		return conn, false, err
	}
	reader := bufio.NewReader(conn)
	start, err := reader.Peek(len(prefaceStart))
	if err != nil {
		return conn, false, err
	}
	return &peeked{Conn: conn, reader: reader}, string(start) == prefaceStart, conn.SetReadDeadline(time.Time{})
}

// handshaken are the credentials of connections whose handshake was made by the port.
type handshaken struct {
	credentials.TransportCredentials
}

// ServerHandshake implements credentials.TransportCredentials.
func (h handshaken) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secure, ok := conn.(*tls.Conn)
	if !ok {
		return nil, nil, errors.New("connection has no TLS")
	}
	return conn, tlsInfo(secure.ConnectionState()), nil
}

// Clone implements credentials.TransportCredentials.
func (h handshaken) Clone() credentials.TransportCredentials { return h }

func tlsInfo(state tls.ConnectionState) credentials.TLSInfo {
	return credentials.TLSInfo{
		State:          state,
		CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
	}
}
