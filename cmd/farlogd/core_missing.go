//go:build !cgo

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/farlog/farlog/pkg/control/service"
	"github.com/farlog/farlog/pkg/nvmet"
)

var errCoreMissing = errors.New("this farlogd was built without the C core: build it with CGO_ENABLED=1 and a C " +
	"compiler to run target, drain or host, or to write an audit stream")

// auditWriter needs the core, as every writer does.
type auditWriter struct{ server *service.Server }

func newAudit(s *settings) (*auditWriter, error) {
	if s.auditStream == auditOff {
		return nil, nil
	}
	return nil, fmt.Errorf("%w; or record nothing: --audit-stream off", errCoreMissing)
}

func (a *auditWriter) append(context.Context, [][]byte) error { return errCoreMissing }
func (a *auditWriter) close() error                           { return nil }

func guardMappings() error { return nil }

func (d *daemon) openTarget(context.Context) error { return errCoreMissing }
func (d *daemon) openDrain(context.Context) error  { return errCoreMissing }
func (d *daemon) openHost(context.Context) error   { return errCoreMissing }

func (d *daemon) openReplica(context.Context) error { return errCoreMissing }

func (d *daemon) newFabricKeeper(*slog.Logger) *nvmet.Keeper { return nil }
