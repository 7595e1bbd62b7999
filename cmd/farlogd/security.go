package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/farlog/farlog/pkg/config"
	"github.com/farlog/farlog/pkg/control/access"
	"github.com/farlog/farlog/pkg/identity"
	"github.com/farlog/farlog/pkg/metrics"
)

// renewInterval is how often a control plane with an authority of its own looks whether certificates end soon.
const renewInterval = time.Hour

// security is what a daemon was told about who it is and who others are.
type security struct {
	isInsecure bool
	dir        string
	authority  string
	cert, key  string
	revoked    string
	accessFile string
	given      func(names ...string) []string // where settings are from
}

// declare makes the settings. Rules are for roles that let others in by what these may do.
func (s *security) declare(set *config.Set, hasRules bool) {
	set.String(&s.dir, "tls.dir", "", "`directory` with the certificates that farlog ca makes (default: those of the "+
		"control plane on this host, then "+identity.SystemDir+")")
	set.String(&s.authority, "tls.ca", "", "`file` with the authorities' certificates, in place of --tls-dir")
	set.String(&s.cert, "tls.cert", "", "`file` with this daemon's certificate, in place of --tls-dir")
	set.String(&s.key, "tls.key", "", "`file` with its key, in place of --tls-dir")
	set.String(&s.revoked, "tls.crl", "", "`file` with the list of revoked certificates, beside --tls-cert")
	s.given = set.Given
	set.Bool(&s.isInsecure, "insecure", false, "use no TLS and no certificates; loopback addresses only")
	if hasRules {
		set.String(&s.accessFile, "access.file", "", "YAML `file` of rules: which identity has which roles on which "+
			"streams; of a drain, for --store-serve; docs/reference/access.md has its keys")
	}
}

// namedAddress is an address, and the flag that gave it.
type namedAddress struct{ flag, address string }

// check finds settings that do not go together. addresses are all at which the daemon listens, or which it dials.
func (s *security) check(addresses []namedAddress) error {
	given := 0
	for _, path := range []string{s.authority, s.cert, s.key} {
		if path != "" {
			given++
		}
	}
	switch {
	case given != 0 && given != 3:
		return &usageError{fmt.Sprintf("--tls-ca %q, --tls-cert %q, --tls-key %q: expected all three, or --tls-dir",
			s.authority, s.cert, s.key)}
	case given != 0 && s.dir != "":
		return &usageError{fmt.Sprintf("--tls-dir %q and --tls-cert %q: expected one or the other", s.dir, s.cert)}
	case s.revoked != "" && given == 0:
		return &usageError{fmt.Sprintf("--tls-crl %q: expected beside --tls-cert (--tls-dir has its own)", s.revoked)}
	case s.isInsecure && (given != 0 || s.dir != ""):
		return &usageError{fmt.Sprintf("--insecure: expected without certificates, leave it out or %s",
			strings.Join(s.given("tls.dir", "tls.ca", "tls.cert", "tls.key"), ", "))}
	case s.isInsecure && s.accessFile != "":
		return &usageError{fmt.Sprintf("--insecure: expected without --access-file %q: without certificates nobody "+
			"is known", s.accessFile)}
	case !s.isInsecure:
		return nil
	}
	for _, one := range addresses {
		if one.address == "" || one.address == "off" {
			continue
		}
		if err := identity.CheckInsecure(one.address); err != nil {
			return &usageError{fmt.Sprintf("--insecure: %s %s; farlog ca init makes certificates", one.flag, err)}
		}
	}
	return nil
}

func (s *security) choice(control string, logger *slog.Logger, kinds ...identity.Kind) identity.Choice {
	return identity.Choice{
		Dir: s.dir, Authority: s.authority, Cert: s.cert, Key: s.key, Revoked: s.revoked, Control: control,
		Kinds: kinds, Logger: logger,
	}
}

// chooseSecurity decides where the certificates of the control plane in this process are. Where none were given and it
// listens at a loopback address, or is a laptop's, it makes an authority of its own in its data directory.
func (d *daemon) chooseSecurity() error {
	s := d.settings
	if s.isInsecure || !s.has(roleControl) {
		return nil
	}
	d.choice = s.choice("", d.logger.With("role", roleControl), identity.KindControl)
	if d.choice.IsGiven() {
		return nil
	}
	_, err := os.Stat(identity.In(identity.SystemDir, identity.KindControl).Cert)
	switch {
	case err == nil && !s.isDev:
		d.choice.Dir = identity.SystemDir
	case s.isDev || identity.IsLoopback(d.controlAddress):
		d.choice.Dir, d.isAuthority = d.dir("tls"), true
	default:
		return &usageError{fmt.Sprintf("--listen %q: expected --tls-dir at an address that other hosts reach: farlog "+
			"ca init DIR makes certificates", s.listen)}
	}
	return nil
}

// openSecurity reads the certificates and rules of the control plane.
func (d *daemon) openSecurity() error {
	if d.settings.isInsecure {
		d.logger.Warn("insecure: no TLS and no identity: every program on this host has all roles")
	}
	if !d.choice.IsGiven() {
		return nil
	}
	if d.isAuthority {
		if err := identity.EnsureLocal(d.choice.Dir, time.Now()); err != nil {
			return fmt.Errorf("authority of this control plane: %w", err)
		}
	}
	files, err := d.choice.Files()
	if err != nil {
		return err
	}
	if d.keeper, err = identity.NewKeeper(files, d.choice.Logger); err != nil {
		return err
	}
	metrics.NewIdentity(d.registry, roleControl, func() (*identity.Keeper, error) { return d.keeper, nil })
	d.access, err = access.OpenFile(d.settings.accessFile, d.choice.Logger)
	return err
}

// announceSecurity tells other programs of this user where the certificates are, and renews those of an authority of
// its own.
func (d *daemon) announceSecurity() error {
	address := d.controlAddress
	if !identity.IsLoopback(address) {
		_, port, _ := net.SplitHostPort(address)
		address = net.JoinHostPort("127.0.0.1", port)
	}
	if !d.isAuthority {
		return identity.Unannounce(address)
	}
	withdraw, err := identity.Announce(address, d.choice.Dir)
	if err != nil {
		d.logger.Warn("programs of this host do not find the certificates by themselves: give them --tls-dir", "dir",
			d.choice.Dir, "error", err)
		return nil
	}
	d.parts = append(d.parts, part{run: d.renew, healthy: func() error { return nil }, close: withdraw})
	return nil
}

// renew keeps the certificates of an authority of its own from ending.
func (d *daemon) renew(ctx context.Context, ready func()) error {
	ready()
	tick := time.NewTicker(renewInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		if err := identity.EnsureLocal(d.choice.Dir, time.Now()); err != nil {
			d.logger.Error("certificates are not renewed", "dir", d.choice.Dir, "error", err)
		}
	}
}

// credentials are those by which an agent in this process speaks to the control plane. They are looked for at each
// connection: a control plane on this host may still have to start.
func (d *daemon) credentials(kind identity.Kind) credentials.TransportCredentials {
	if d.settings.isInsecure {
		return identity.Insecure()
	}
	find := d.agentChoice(kind).Finder()
	metrics.NewIdentity(d.registry, string(kind), find)
	return identity.NewClientCredentials(find)
}

func (d *daemon) agentChoice(kind identity.Kind) identity.Choice {
	choice := d.settings.choice(d.controlAddress, d.logger.With("role", string(kind)), kind)
	if d.isAuthority {
		choice.Dir = d.choice.Dir
	}
	return choice
}

// secureMetrics lets only holders of a certificate read the metrics of a daemon where other hosts reach them.
func (d *daemon) secureMetrics(listener net.Listener) (net.Listener, error) {
	if identity.IsLoopback(listener.Addr().String()) {
		return listener, nil
	}
	keeper := d.keeper
	if keeper == nil {
		files, err := d.agentChoice(identity.Kind(d.settings.roles[0])).Files()
		if err == nil {
			keeper, err = identity.NewKeeper(files, d.logger)
		}
		if err != nil {
			return nil, fmt.Errorf("metrics.listen %q is reached by other hosts and needs certificates: %w",
				d.settings.metricsListen, err)
		}
	}
	d.isMetricsSecure = true
	return tls.NewListener(listener, keeper.ServerConfig("h2", "http/1.1")), nil
}
