package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/identity"
)

// Everything speaks TLS with certificates of an authority, and what is done is recorded in the audit stream, as a
// control plane does it that is told nothing else. FARLOG_BENCH_INSECURE=1 is without both, to compare.
const (
	fabricOwn     = "farlog/" // begins the names of the control plane's own streams
	fabricAudit   = fabricOwn + "audit"
	fabricTarget  = "bench"  // the host of the one real target: for the audit stream, and for grants
	fabricAuditSz = 16 << 20 // bytes of the audit stream's ring: no other stream has space beside it
)

var isInsecure = os.Getenv("FARLOG_BENCH_INSECURE") != ""

// certify makes an authority.
func (f *fabric) certify() error {
	if isInsecure {
		return nil
	}
	made, err := exec.Command(filepath.Join(filepath.Dir(f.daemon), "farlog"), "ca", "init",
		f.tlsDir()).CombinedOutput()
	if err != nil {
		return fmt.Errorf("farlog ca init: %w: %s", err, made)
	}
	return nil
}

func (f *fabric) tlsDir() string { return filepath.Join(f.dir, "tls") }

// secured adds to the flags of a daemon what it needs for its connections.
func (f *fabric) secured(args ...string) []string {
	if isInsecure {
		args = append(args, "--insecure")
		if slices.Contains(args, "--listen") {
			args = append(args, "--audit-stream", "off")
		}
		return args
	}
	return append(args, "--tls-dir", f.tlsDir())
}

func (f *fabric) credentials(kind identity.Kind) credentials.TransportCredentials {
	if isInsecure {
		return identity.Insecure()
	}
	return identity.NewClientCredentials(identity.Choice{
		Dir: f.tlsDir(), Kinds: []identity.Kind{kind},
		Logger: slog.New(slog.DiscardHandler),
	}.Finder())
}

// startTarget has a real target make the ring of the audit stream, and then no other.
func (f *fabric) startTarget(ctx context.Context) (end func() error, err error) {
	args := f.secured("--control", fabricAddress, "--metrics-listen", "off", "--host-name", fabricTarget, "--data-dir",
		filepath.Join(f.dir, "target"))
	process, err := f.start("target", args...)
	if err != nil {
		return nil, err
	}
	if !isInsecure {
		err = f.beginAudit(ctx)
	}
	if err == nil {
		_, err = f.control.ApplyFabric(ctx,
			&api.ApplyFabricRequest{Fabric: &api.Fabric{Targets: []*api.TargetSpec{{
				Host:          fabricTarget,
				CapacityBytes: fabricAuditSz,
			}}}})
	}
	if err != nil {
		return nil, errors.Join(err, stopDaemon(process))
	}
	return func() error { return stopDaemon(process) }, nil
}

// beginAudit has the audit stream's ring made: that begins with the first stream there is, which goes again.
func (f *fabric) beginAudit(ctx context.Context) error {
	const first = "first"
	if _, err := f.control.CreateStream(ctx, &api.CreateStreamRequest{Spec: &api.StreamSpec{
		Name:       first,
		TargetHost: fabricTarget, RingSizeBytes: 1 << 20,
	}}); err != nil {
		return err
	}
	if err := await("the audit stream and the first one have rings",
		func() (bool, error) { return f.hasRing(ctx, fabricAudit) && f.hasRing(ctx, first), nil }); err != nil {
		return err
	}
	if err := await("the first stream may go", func() (bool, error) {
		_, err := f.control.DeleteStream(ctx, &api.DeleteStreamRequest{Name: first})
		return err == nil, nil
	}); err != nil {
		return err
	}
	return await("the first stream is gone", func() (bool, error) {
		_, err := f.control.GetStream(ctx, &api.GetStreamRequest{Name: first})
		return status.Code(err) == codes.NotFound, nil
	})
}

func (f *fabric) hasRing(ctx context.Context, stream string) bool {
	got, err := f.control.GetStream(ctx, &api.GetStreamRequest{Name: stream})
	return err == nil && len(got.Stream.RingSpecs) == 1 && len(got.Stream.RingSpecs[0].RingUuid) > 0
}
