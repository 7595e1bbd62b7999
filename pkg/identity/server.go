package identity

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"slices"
	"time"
)

// lingerMax is how long a connection that was refused is kept, so that the reason arrives.
const lingerMax = 500 * time.Millisecond

// Handshake lets a client of the control plane in, or tells it why not: a connection that is closed with bytes unread
// is reset, and the alert on its way is lost. A client that offers nothing but HTTP/2 is given that, any other one
// HTTP/1.1.
func (k *Keeper) Handshake(ctx context.Context, raw net.Conn) (*tls.Conn, error) {
	config := &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			if len(hello.SupportedProtos) == 0 {
				return k.serverConfig(nil)
			}
			if slices.Contains(hello.SupportedProtos, "http/1.1") {
				return k.serverConfig([]string{"http/1.1"})
			}
			return k.serverConfig([]string{"h2"})
		},
	}
	conn := tls.Server(raw, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		linger(raw)
		return nil, err
	}
	return conn, nil
}

// linger says that nothing more comes and reads what does until the other end closes.
func linger(raw net.Conn) {
	half, ok := raw.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil || raw.SetReadDeadline(time.Now().Add(lingerMax)) != nil {
		return
	}
	_, _ = io.Copy(io.Discard, raw) // what is said is of no interest
}
