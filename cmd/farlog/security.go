package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/farlog/farlog/pkg/config"
	"github.com/farlog/farlog/pkg/identity"
)

// insecureText is said wherever a control plane is spoken to without TLS.
const insecureText = "insecure: no TLS and no identity: every program on this host has all roles"

func (e *environment) declareSecurity(settings *config.Set) {
	settings.String(&e.tlsDir, "tls.dir", "", "`directory` with the certificates that farlog ca makes (default: "+
		"those of the control plane on this host, then "+identity.SystemDir+")")
	settings.String(&e.tlsAuthority, "tls.ca", "", "`file` with the authorities' certificates, in place of --tls-dir")
	settings.String(&e.tlsCert, "tls.cert", "", "`file` with your certificate, in place of --tls-dir")
	settings.String(&e.tlsKey, "tls.key", "", "`file` with its key, in place of --tls-dir")
	settings.String(&e.tlsCRL, "tls.crl", "", "`file` with the list of revoked certificates, beside --tls-cert")
	e.given = settings.Given
	settings.Bool(&e.isInsecure, "insecure", false, "connect to the control plane without TLS; loopback addresses only")
}

// checkSecurity finds settings that do not go together.
func (e *environment) checkSecurity() error {
	given := 0
	for _, path := range []string{e.tlsAuthority, e.tlsCert, e.tlsKey} {
		if path != "" {
			given++
		}
	}
	switch {
	case given != 0 && given != 3:
		return usageErrorf("--tls-ca %q, --tls-cert %q, --tls-key %q: expected all three, or --tls-dir", e.tlsAuthority,
			e.tlsCert, e.tlsKey)
	case given != 0 && e.tlsDir != "":
		return usageErrorf("--tls-dir %q and --tls-cert %q: expected one or the other", e.tlsDir, e.tlsCert)
	case e.tlsCRL != "" && given == 0:
		return usageErrorf("--tls-crl %q: expected beside --tls-cert (--tls-dir has its own)", e.tlsCRL)
	case e.isInsecure && (given != 0 || e.tlsDir != ""):
		return usageErrorf("--insecure: expected without certificates, leave it out or %s",
			strings.Join(e.given("tls.dir", "tls.ca", "tls.cert", "tls.key"), ", "))
	case !e.isInsecure:
		return nil
	}
	if err := identity.CheckInsecure(e.control); err != nil {
		return usageErrorf("--insecure: --control %s", err)
	}
	return nil
}

// choice takes an administrator's certificate where there is one, else that of a trading host.
func (e *environment) choice() identity.Choice {
	kinds := e.kinds
	if kinds == nil {
		kinds = []identity.Kind{identity.KindAdmin, identity.KindHost}
	}
	return identity.Choice{
		Dir: e.tlsDir, Authority: e.tlsAuthority, Cert: e.tlsCert, Key: e.tlsKey, Revoked: e.tlsCRL,
		Control: e.control,
		Kinds:   kinds,
	}
}

func (e *environment) credentials() credentials.TransportCredentials {
	if e.isInsecure {
		return identity.Insecure()
	}
	return identity.NewClientCredentials(e.choice().Finder())
}

const hungUp = "hung up before it had said who it is"

// refusal says who did not accept whom; nil when that is not what went wrong.
func (c *controlClient) refusal(answer *status.Status) error {
	text := answer.Message()
	switch answer.Code() {
	case codes.Unauthenticated, codes.PermissionDenied:
		return fmt.Errorf("control plane %s refuses: %s", c.address, text)
	case codes.Unavailable, codes.DeadlineExceeded:
	default:
		return nil
	}
	text = described(text)
	if strings.Contains(text, "first record does not look like a TLS handshake") {
		return fmt.Errorf("control plane %s speaks no TLS: give --insecure if it was started so, and its address is "+
			"a loopback one", c.address)
	}
	if _, reason, ok := strings.Cut(text, "remote error: tls: "); ok {
		return fmt.Errorf("control plane %s refuses the certificate %s: %s", c.address, c.certificate(),
			tlsReason(reason))
	}
	if c.isInsecure && strings.Contains(text, "error reading server preface") { // which it would have sent at once
		return fmt.Errorf("control plane %s answers, and not to programs without TLS: leave --insecure out", c.address)
	}
	if _, reason, ok := strings.Cut(text, "authentication handshake failed: "); ok {
		if reason == "EOF" || strings.HasSuffix(reason, "connection reset by peer") {
			return fmt.Errorf("control plane %s %s: it is stopping, or has too many connections from this address; "+
				"try again", c.address, hungUp)
		}
		return errors.New(reason)
	}
	return nil
}

// described takes the reason out of the quotes that gRPC puts around it.
func described(text string) string {
	_, quoted, ok := strings.Cut(text, "desc = ")
	if !ok {
		return text
	}
	if prefix, err := strconv.QuotedPrefix(quoted); err == nil {
		if plain, err := strconv.Unquote(prefix); err == nil {
			return plain
		}
	}
	return text
}

// certificate is the file that was shown.
func (c *controlClient) certificate() string {
	files, err := c.choice.Files()
	if err != nil {
		return ""
	}
	return files.Cert
}

// tlsReason says what an alert of TLS means here.
func tlsReason(alert string) string {
	switch {
	case strings.HasPrefix(alert, "expired certificate"):
		return "it has expired, or is not valid yet: farlog ca renew makes a new one"
	case strings.HasPrefix(alert, "unknown certificate authority"):
		return "it is of another authority"
	case strings.HasPrefix(alert, "bad certificate"):
		return "it is revoked, or not one of a client"
	}
	return alert
}
