//go:build cgo

package main

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/farlog/farlog/pkg/control/access"
	"github.com/farlog/farlog/pkg/identity"
	"github.com/farlog/farlog/pkg/loglimit"
	"github.com/farlog/farlog/pkg/replica"
)

// storeGuard says who may have what of a store that a drain serves. The drain asks nobody for it: it goes on without a
// control plane.
type storeGuard struct {
	keeper *identity.Keeper
	rules  *access.File
	logger *slog.Logger
	limit  loglimit.Limiter // by address
}

func (d *daemon) newStoreGuard() (*storeGuard, error) {
	keeper, err := d.keeperOf(identity.KindDrain)
	if err != nil {
		return nil, fmt.Errorf("store.serve %q needs certificates: %w", d.settings.storeServe, err)
	}
	guard := &storeGuard{keeper: keeper, rules: d.access, logger: d.logger.With("role", roleDrain)}
	if guard.rules == nil { // there is no control plane in this process
		guard.rules, err = access.OpenFile(d.settings.accessFile, guard.logger)
	}
	return guard, err
}

func (d *daemon) keeperOf(kind identity.Kind) (*identity.Keeper, error) {
	files, err := d.agentChoice(kind).Files()
	if err != nil {
		return nil, err
	}
	return identity.NewKeeper(files, d.logger)
}

// Identify implements replica.Guard. It is asked at each request: a certificate may have been revoked since the last
// one, and a rule changed.
func (g *storeGuard) Identify(r *http.Request) (replica.Reader, error) {
	id, err := g.keeper.Check(*r.TLS)
	if err != nil {
		return nil, err
	}
	return g.rules.Caller(id), nil
}

// Refused implements replica.Guard.
func (g *storeGuard) Refused(r *http.Request, reason error) {
	address, _, _ := net.SplitHostPort(r.RemoteAddr)
	if suppressed, isAllowed := g.limit.Allow(address, time.Now()); isAllowed {
		g.logger.Warn("records of the store refused", "peer", r.RemoteAddr, "error", reason, "not_logged", suppressed)
	}
}

// openStoreGuard lets everybody read. It is for loopback, without TLS.
type openStoreGuard struct{}

// Identify implements replica.Guard.
func (openStoreGuard) Identify(*http.Request) (replica.Reader, error) { return access.Local(), nil }

// Refused implements replica.Guard.
func (openStoreGuard) Refused(*http.Request, error) {}
