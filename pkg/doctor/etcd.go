package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

const askTimeout = 3 * time.Second // for the answer of one member

const (
	healthMax  = 4096
	expirySoon = 14 * 24 * time.Hour
	etcdCure   = "systemctl status etcd, on that host; etcdctl endpoint status"
)

// Etcd is an external cluster, and the files by which it knows the one who asks, as farlogd control is given them.
type Etcd struct {
	Endpoints            []string // host:port, or https://host:port
	Authority, Cert, Key string
}

// Examine asks each member for its health. A cluster that has lost its majority fails; a member less is a warning.
func (e Etcd) Examine(ctx context.Context) []Finding {
	client, err := e.client()
	if err != nil {
		return []Finding{{
			"etcd", Fail, err.Error(),
			"give --etcd-ca, --etcd-cert and --etcd-key as to farlogd control",
		}}
	}
	defer client.CloseIdleConnections()
	var findings []Finding
	healthy := 0
	for _, endpoint := range e.Endpoints {
		ends, err := askHealth(ctx, client, endpoint)
		name := "etcd " + withoutPassword(endpoint)
		switch {
		case err != nil:
			findings = append(findings, Finding{name, Warn, err.Error(), etcdCure})
			continue
		case !ends.IsZero() && time.Until(ends) < expirySoon:
			findings = append(findings, Finding{
				name, Warn,
				"healthy, and its certificate ends on " + ends.UTC().Format(time.RFC3339),
				"renew it by the authority of that cluster",
			})
		default:
			findings = append(findings, Finding{name, OK, "healthy", ""})
		}
		healthy++
	}
	text := fmt.Sprintf("%d of %d members are healthy", healthy, len(e.Endpoints))
	if healthy <= len(e.Endpoints)/2 {
		return append(findings, Finding{"etcd", Fail, text + ": no majority, nothing can be changed", etcdCure})
	}
	return append(findings, Finding{"etcd", OK, text, ""})
}

func (e Etcd) client() (*http.Client, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if e.Authority != "" {
		raw, err := os.ReadFile(e.Authority)
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(raw) {
			return nil, fmt.Errorf("%q: expected certificates in PEM", e.Authority)
		}
	}
	if e.Cert != "" || e.Key != "" {
		pair, err := tls.LoadX509KeyPair(e.Cert, e.Key)
		if err != nil {
			return nil, fmt.Errorf("certificate %q and key %q: %w", e.Cert, e.Key, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return &http.Client{Timeout: askTimeout, Transport: &http.Transport{TLSClientConfig: config}}, nil
}

// askHealth asks one member by the address at which it serves clients. ends: its certificate's end, where it has one.
func askHealth(ctx context.Context, client *http.Client, endpoint string) (ends time.Time, err error) {
	if !strings.Contains(endpoint, "://") {
		endpoint = "http://" + endpoint
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, endpoint+"/health", nil)
	if err != nil { // which has the address in it, as it was given
		return ends, errors.New("expected host:port or https://host:port")
	}
	answer, err := client.Do(request)
	if err != nil {
		if failure := new(url.Error); errors.As(err, &failure) {
			err = failure.Err // without the address, which the line begins with
		}
		return ends, fmt.Errorf("does not answer: %w", err)
	}
	defer answer.Body.Close()
	var said struct{ Health, Reason string }
	raw, err := io.ReadAll(io.LimitReader(answer.Body, healthMax))
	if err == nil {
		err = json.Unmarshal(raw, &said)
	}
	switch {
	case err != nil:
		return ends, fmt.Errorf("its answer is none of etcd's: %s: %w", answer.Status, err)
	case said.Health != "true":
		return ends, fmt.Errorf("it says that it is not healthy: %s", said.Reason)
	}
	if answer.TLS != nil && len(answer.TLS.PeerCertificates) > 0 {
		ends = answer.TLS.PeerCertificates[0].NotAfter
	}
	return ends, nil
}

// withoutPassword is an address as it may be shown: without a name and a password that somebody has put before the
// host. It may be none of a URL's form.
func withoutPassword(endpoint string) string {
	begin := 0
	if at := strings.Index(endpoint, "://"); at >= 0 {
		begin = at + len("://")
	}
	if at := strings.LastIndexByte(endpoint, '@'); at >= begin {
		return endpoint[:begin] + "***" + endpoint[at:]
	}
	return endpoint
}
