//go:build cgo

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/metrics"
	"github.com/farlog/farlog/pkg/nvmehost"
)

// hostNamespaces keeps the namespaces connected that the fabric declares for this host. Without a control plane it goes
// on with what it was told last.
type hostNamespaces struct {
	kernel      nvmehost.Kernel
	keys        string // the directory
	logger      *slog.Logger
	connections *nvmehost.Connections
	read        func(path string) error // a block of a device
}

func newHostNamespaces(kernel nvmehost.Kernel, keys string, logger *slog.Logger) *hostNamespaces {
	h := &hostNamespaces{kernel: kernel, keys: keys, logger: logger, read: readBlock}
	h.connections = nvmehost.NewConnections(kernel, h.log)
	return h
}

func (h *hostNamespaces) log(wanted nvmehost.Wanted, event nvmehost.Event) {
	attrs := []any{"namespace", wanted.Name, "target_host", wanted.Target, "subsystem", wanted.NQN}
	switch {
	case event.Err == nil:
		h.logger.Info("connected a namespace", append(attrs, "device", event.Device.Path, "transport",
			event.Device.Controller.Transport)...)
		for _, warning := range event.Device.Warnings {
			h.logger.Warn("a connection does not suit a ring", append(attrs, "warning", warning)...)
		}
	case event.IsLost:
		h.logger.Warn("lost a namespace, reconnecting", append(attrs, "error", oneLine(event.Err))...)
	default:
		h.logger.Warn("a namespace is not connected", append(attrs, "error", oneLine(event.Err))...)
	}
}

// follow keeps connected what the control plane names, and nothing else.
func (h *hostNamespaces) follow(told []*api.HostNamespace) {
	wanted := make([]nvmehost.Wanted, len(told))
	for i, one := range told {
		wanted[i] = nvmehost.Wanted{Target: one.TargetHost, Name: one.Name, NQN: one.Subsystem}
		wanted[i].Specs, wanted[i].Err = h.specsOf(one)
	}
	h.connections.Follow(wanted)
}

// specsOf are the ways to a namespace, over rdma before tcp.
func (h *hostNamespaces) specsOf(one *api.HostNamespace) (specs []nvmehost.Spec, err error) {
	for _, transport := range []string{"rdma", "tcp"} {
		for _, port := range one.Ports {
			if port.Transport != transport {
				continue
			}
			spec := nvmehost.Spec{
				NQN: one.Subsystem, Transport: transport, Address: port.Address, Port: int(port.Service),
				KeyFile: h.keyFile(one), Times: nvmehost.TimesDefault,
			}
			if spec, err = h.kernel.WithHost(spec); err != nil {
				return nil, err
			}
			if spec.HostNQN != one.HostNqn {
				return nil, fmt.Errorf("this host's NQN is %s, and the target admits host %s: write that into "+
					"/etc/nvme/hostnqn, with an id in /etc/nvme/hostid, or declare %s", spec.HostNQN, one.HostNqn,
					spec.HostNQN)
			}
			specs = append(specs, spec)
		}
	}
	if len(specs) == 0 {
		return nil, errors.New("it has no port of transport rdma or tcp")
	}
	return specs, nil
}

// keyFile is where the operator puts the keys that the target has generated for this host.
func (h *hostNamespaces) keyFile(one *api.HostNamespace) string {
	if one.Auth == api.Authentication_AUTHENTICATION_NONE {
		return ""
	}
	return filepath.Join(h.keys, one.TargetHost+".key")
}

// states are how they are, for the control plane.
func (h *hostNamespaces) states() (states []*api.NamespaceConnection) {
	for _, one := range h.connections.List() {
		state := &api.NamespaceConnection{
			TargetHost: one.Wanted.Target, Name: one.Wanted.Name, Subsystem: one.Wanted.NQN, Device: one.Device.Path,
			Transport: one.Device.Controller.Transport,
		}
		if one.Err != nil {
			state.Error = strings.ToValidUTF8(fmt.Sprintf("%.1000s", oneLine(one.Err)), "?")
		}
		states = append(states, state)
	}
	return states
}

func (h *hostNamespaces) samples() (samples []metrics.HostNamespaceSample) {
	for _, one := range h.connections.List() {
		samples = append(samples, metrics.HostNamespaceSample{
			Target: one.Wanted.Target, Name: one.Wanted.Name, Subsystem: one.Wanted.NQN,
			IsConnected: one.Device.Path != "",
		})
	}
	return samples
}

// namespaceRetryPause is between two looks at a namespace that does not answer.
const namespaceRetryPause = 100 * time.Millisecond

// waitReadable waits until the namespace that a granted ring lies in answers; of a ring elsewhere it does not wait.
// When the former writer's host was evicted for the grant, the connections of all hosts ended: a device that answers
// after the grant is of a connection after that, and not one that is just going.
func (h *hostNamespaces) waitReadable(ctx context.Context, uri string) error {
	path, isThere := strings.CutPrefix(uri, "nvme:nqn.")
	nqn, _, _ := strings.Cut("nqn."+path, "/")
	if !isThere {
		return nil
	}
	for {
		err := h.readNamespace(ctx, nqn)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(namespaceRetryPause):
		case <-ctx.Done():
			return fmt.Errorf("the ring lies in a namespace of subsystem %s, which does not answer: %w", nqn, err)
		}
	}
}

// readNamespace reads a block of a namespace, and returns early when ctx is done: a device that answers nothing holds
// who reads it for as long as its timeouts are.
func (h *hostNamespaces) readNamespace(ctx context.Context, nqn string) error {
	device, err := h.kernel.Find(nqn, 1)
	if err != nil {
		return err
	}
	answered := make(chan error, 1)
	go func() { answered <- h.read(device.Path) }()
	select {
	case err := <-answered:
		return err
	case <-ctx.Done():
		return fmt.Errorf("device %s: no answer", device.Path)
	}
}

// readBlock reads past the page cache.
func readBlock(path string) error {
	const length = 4096
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	defer unix.Close(fd)
	block, err := unix.Mmap(-1, 0, length, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return fmt.Errorf("memory for a block: %w", err)
	}
	defer unix.Munmap(block)
	if n, err := unix.Pread(fd, block, 0); err != nil || n != length {
		return fmt.Errorf("read %s: %d bytes: %w", path, n, err)
	}
	return nil
}
