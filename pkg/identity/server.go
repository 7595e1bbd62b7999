package identity

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"

	"google.golang.org/grpc/credentials"
)

// lingerMax is how long a connection that was refused is kept, so that the reason arrives.
const lingerMax = 500 * time.Millisecond

// serverCredentials are credentials.NewTLS that tell a client that is refused why. A connection that is closed with bytes unread is reset, and the alert
// on its way is lost.
type serverCredentials struct {
	credentials.TransportCredentials
	config *tls.Config
}

// ServerCredentials are those of the control plane: mutual TLS with the certificates of now.
func (k *Keeper) ServerCredentials() credentials.TransportCredentials {
	config := k.ServerConfig("h2")
	return serverCredentials{TransportCredentials: credentials.NewTLS(config), config: config}
}

// ServerHandshake implements credentials.TransportCredentials.
func (s serverCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn := tls.Server(raw, s.config)
	err := conn.Handshake()
	state := conn.ConnectionState()
	if err == nil && state.NegotiatedProtocol != "h2" {
		err = errors.New("client does not speak HTTP/2")
	}
	if err != nil {
		linger(raw)
		raw.Close()
		return nil, nil, err
	}
	info := credentials.TLSInfo{State: state, CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}}
	return conn, info, nil
}

// Clone implements credentials.TransportCredentials.
func (s serverCredentials) Clone() credentials.TransportCredentials { return s }

// linger says that nothing more comes and reads what does until the other end closes.
func linger(raw net.Conn) {
	half, ok := raw.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil || raw.SetReadDeadline(time.Now().Add(lingerMax)) != nil {
		return
	}
	_, _ = io.Copy(io.Discard, raw) // what is said is of no interest
}
