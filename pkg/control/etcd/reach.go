package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// reachMax is for one look at a member that has not answered already.
const reachMax = 2 * time.Second

// whyUnreached finds out why no member answers, of which etcd's client says only that time is over: it is not there,
// has another name, or wants TLS or none.
func whyUnreached(endpoints []string, secure *tls.Config, err error) error {
	if !errors.Is(err, context.DeadlineExceeded) && !strings.Contains(err.Error(), "deadline exceeded") {
		return err
	}
	address := strings.TrimPrefix(strings.TrimPrefix(endpoints[0], "https://"), "http://")
	conn, err := net.DialTimeout("tcp", address, reachMax)
	if err != nil {
		return err
	}
	defer conn.Close()
	if secure == nil {
		return fmt.Errorf("%s takes connections and does not answer within %s: it has no leader, is not etcd, or "+
			"wants TLS (https://%s)", address, dialTimeout, address)
	}
	config := secure.Clone()
	config.ServerName, _, _ = net.SplitHostPort(address)
	if err := conn.SetDeadline(time.Now().Add(reachMax)); err != nil {
		return err
	}
	shaken := tls.Client(conn, config)
	if err := shaken.Handshake(); err != nil {
		return fmt.Errorf("TLS with %s: %w", address, err)
	}
	return fmt.Errorf("%s speaks TLS and does not answer within %s: it has no leader, or takes no certificate like "+
		"--etcd-cert", address, dialTimeout)
}
