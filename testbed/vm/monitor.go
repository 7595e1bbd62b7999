package vm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	monitorTimeout = 2 * time.Minute
	probeTimeout   = 90 * time.Second
)

// SetLink takes the link of eth0 down or up, as the guest's driver sees it: the carrier goes.
func (g *Guest) SetLink(ctx context.Context, isUp bool) error {
	if err := g.monitorCommand(ctx, "set_link", map[string]any{"name": "eth0", "up": isUp}); err != nil {
		return fmt.Errorf("%s: set link: %w", g.Name, err)
	}
	return nil
}

// SetHealthWarning has the NVMe device give a critical warning (SMART / Health Information, byte 0) from now on.
func (g *Guest) SetHealthWarning(ctx context.Context, bits uint8) error {
	arguments := map[string]any{
		"path": "/machine/peripheral/" + nvmeDevice, "property": "smart_critical_warning",
		"value": bits,
	}
	if err := g.monitorCommand(ctx, "qom-set", arguments); err != nil {
		return fmt.Errorf("%s: set the warning of its NVMe device: %w", g.Name, err)
	}
	return nil
}

// monitorCommand says one thing to QEMU's monitor (QMP) and waits for the answer.
func (g *Guest) monitorCommand(ctx context.Context, command string, arguments map[string]any) error {
	dialer := net.Dialer{Timeout: monitorTimeout}
	conn, err := dialer.DialContext(ctx, "unix", g.monitor)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(monitorTimeout)); err != nil {
		return err
	}
	encoder, decoder := json.NewEncoder(conn), json.NewDecoder(conn)
	for _, request := range []map[string]any{
		{"execute": "qmp_capabilities"},
		{"execute": command, "arguments": arguments},
	} {
		if err := encoder.Encode(request); err != nil {
			return err
		}
		if err := waitAnswer(decoder); err != nil {
			return err
		}
	}
	return nil
}

// waitAnswer passes over the greeting and over events.
func waitAnswer(decoder *json.Decoder) error {
	for {
		var answer struct {
			Return *json.RawMessage
			Error  *struct{ Desc string }
		}
		switch err := decoder.Decode(&answer); {
		case err != nil:
			return err
		case answer.Error != nil:
			return errors.New(answer.Error.Desc)
		case answer.Return != nil:
			return nil
		}
	}
}

// Probe reports whether guests run by KVM here: there may be a /dev/kvm under which a kernel dies.
// The reason is a text for people.
func Probe(ctx context.Context, image Image, dir string) (accel Accel, reason string) {
	device, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return TCG, err.Error()
	}
	device.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(probeTimeout, func() { cancel(errors.New("a probe guest did not boot in time")) })
	defer timer.Stop()
	// QEMU stays, stopped, when KVM gives up: only its messages tell.
	go cancelOnText(ctx, cancel, filepath.Join(dir, "probe.qemu"), "KVM internal error")
	guest, err := Boot(ctx, Options{Name: "probe", Image: image, Dir: dir, Accel: KVM})
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return TCG, cause.Error()
		}
		return TCG, err.Error()
	}
	guest.Kill()
	return KVM, "a probe guest booted"
}

func cancelOnText(ctx context.Context, cancel context.CancelCauseFunc, path, text string) {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if content, err := os.ReadFile(path); err == nil && strings.Contains(string(content), text) {
				cancel(errors.New(text))
				return
			}
		}
	}
}
