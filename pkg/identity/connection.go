package identity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
)

// ErrNoCertificates is in the error of a connection for which no certificates were found.
var ErrNoCertificates = errors.New("no certificates")

// ServerConfig is one end of a mutual TLS connection: a client without a good certificate does not get in. protocols
// are for ALPN.
func (k *Keeper) ServerConfig(protocols ...string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: protocols,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return k.serverConfig(protocols)
		},
	}
}

func (k *Keeper) serverConfig(protocols []string) (*tls.Config, error) {
	now, err := k.load()
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: protocols, Certificates: []tls.Certificate{now.pair},
		ClientCAs: now.roots, Time: k.now,
		ClientAuth: tls.RequireAndVerifyClientCert, SessionTicketsDisabled: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			return now.check(state.PeerCertificates, x509.ExtKeyUsageClientAuth, k.now())
		},
	}, nil
}

// ClientConfig is the other end: the server must be a control plane, or for certificates that are not of a farlog
// authority have the name of the host that was dialled.
func (k *Keeper) ClientConfig(host string) (*tls.Config, error) {
	return k.ClientConfigTo(KindControl, host)
}

// ClientConfigTo is ClientConfig for a server of another kind.
func (k *Keeper) ClientConfigTo(kind Kind, host string) (*tls.Config, error) {
	now, err := k.load()
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{now.pair}, RootCAs: now.roots, ServerName: host,
		Time: k.now,
		// Chain, time, revocation and name are checked in VerifyConnection: an id takes the place of the host's name.
		InsecureSkipVerify: true, //lint:ignore G402 VerifyConnection checks more
		VerifyConnection: func(state tls.ConnectionState) error {
			if err := now.check(state.PeerCertificates, x509.ExtKeyUsageServerAuth, k.now()); err != nil {
				return err
			}
			return checkServer(state.PeerCertificates[0], kind, host)
		},
	}, nil
}

func checkServer(cert *x509.Certificate, wanted Kind, host string) error {
	id, err := IDOf(cert)
	if err != nil {
		return err
	}
	if kind, _, ok := id.Kind(); !ok {
		return cert.VerifyHostname(host)
	} else if kind == wanted {
		return nil
	} else if wanted == KindControl {
		return fmt.Errorf("%s is no control plane: its certificate is that of a %s", id, kind)
	} else {
		return fmt.Errorf("%s is no %s: its certificate is that of a %s", id, wanted, kind)
	}
}

// Check finds out whether somebody who has come in is still to be let in: its certificate's time may be over, and it
// may be revoked by now.
func (k *Keeper) Check(state tls.ConnectionState) (ID, error) {
	now, err := k.load()
	if err != nil {
		return "", err
	}
	if err := now.checkAgain(state.PeerCertificates, x509.ExtKeyUsageClientAuth, k.now()); err != nil {
		return "", err
	}
	return IDOf(state.PeerCertificates[0])
}

// PeerState gives the TLS state of whoever calls; false when the connection has none.
func PeerState(ctx context.Context) (tls.ConnectionState, bool) {
	from, ok := peer.FromContext(ctx)
	if !ok {
		return tls.ConnectionState{}, false
	}
	info, ok := from.AuthInfo.(credentials.TLSInfo)
	return info.State, ok
}

// Insecure are the credentials of a connection without TLS. They are for loopback: CheckInsecure.
func Insecure() credentials.TransportCredentials { return insecure.NewCredentials() }

// CheckInsecure refuses an address, or one of several with commas, that other hosts can reach, or from which another
// host would be spoken to.
func CheckInsecure(address string) error {
	for _, one := range strings.Split(address, ",") {
		if !IsLoopback(one) {
			return fmt.Errorf("%q is not a loopback address: without certificates expected one like 127.0.0.1:7070",
				one)
		}
	}
	return nil
}

// IsLoopback tells an address that no other host reaches. A name that has to be looked up is none, but localhost.
func IsLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// clientCredentials find the certificates at each handshake: those of a control plane on this host appear when that
// starts.
type clientCredentials struct {
	find func() (*Keeper, error)
}

// NewClientCredentials makes credentials for connections to the control plane. find is asked at each handshake.
func NewClientCredentials(find func() (*Keeper, error)) credentials.TransportCredentials {
	return clientCredentials{find: find}
}

// ClientHandshake implements credentials.TransportCredentials.
func (c clientCredentials) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn,
	credentials.AuthInfo, error,
) {
	keeper, err := c.find()
	if err != nil {
		return nil, nil, err
	}
	host, _, err := net.SplitHostPort(authority)
	if err != nil {
		host = authority
	}
	config, err := keeper.ClientConfig(host)
	if err != nil {
		return nil, nil, err
	}
	return credentials.NewTLS(config).ClientHandshake(ctx, authority, conn)
}

// ServerHandshake implements credentials.TransportCredentials.
func (c clientCredentials) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("credentials of a client")
}

// Info implements credentials.TransportCredentials.
func (c clientCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

// Clone implements credentials.TransportCredentials.
func (c clientCredentials) Clone() credentials.TransportCredentials { return c }

// OverrideServerName implements credentials.TransportCredentials.
func (c clientCredentials) OverrideServerName(string) error { return nil }
