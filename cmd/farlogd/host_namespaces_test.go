//go:build cgo

package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/nvmehost"
)

// What the control plane names becomes ways to connect: rdma first, with the key of the target where one is needed, and
// only by the NQN by which the target admits this host.
func TestHostNamespaces_SpecsOfWhatIsDeclared(t *testing.T) {
	root := t.TempDir()
	const nqn = "nqn.2026-01.com.example:trading1"
	for name, text := range map[string]string{"hostnqn": nqn, "hostid": "f81d4fae-7dec-11d0-a765-00a0c91e6bf6"} {
		path := filepath.Join(root, "etc/nvme", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h := newHostNamespaces(nvmehost.Kernel{Root: root}, "/keys", slog.New(slog.DiscardHandler))
	defer h.connections.Close()
	one := &api.HostNamespace{
		TargetHost: "storage1", Name: "desk7", Subsystem: "nqn.2026-01.com.example:desk7", HostNqn: nqn,
		Auth: api.Authentication_AUTHENTICATION_BOTH,
		Ports: []*api.NamespacePort{
			{Transport: "tcp", Address: "10.7.0.2", Service: 4421}, {Transport: "rdma", Address: "10.7.0.2"},
		},
	}
	specs, err := h.specsOf(one)
	if err != nil || len(specs) != 2 || specs[0].Transport != "rdma" || specs[1].Port != 4421 ||
		specs[0].KeyFile != "/keys/storage1.key" || specs[0].HostNQN != nqn || specs[0].Check() != nil {
		t.Errorf("%+v, %v, want rdma, then tcp at port 4421, with the key of storage1", specs, err)
	}
	one.Auth = api.Authentication_AUTHENTICATION_NONE
	if specs, err := h.specsOf(one); err != nil || specs[0].KeyFile != "" {
		t.Errorf("without authentication: %+v, %v, want no key file", specs, err)
	}
	one.HostNqn = "nqn.2026-01.com.example:other"
	h.follow([]*api.HostNamespace{one})
	states := h.states()
	if len(states) != 1 || states[0].Device != "" || !strings.Contains(states[0].Error, "this host's NQN is "+nqn+
		", and the target admits host nqn.2026-01.com.example:other") {
		t.Errorf("by another NQN: %v, want it not connected and why", states)
	}
	if samples := h.samples(); len(samples) != 1 || samples[0].IsConnected {
		t.Errorf("samples %+v, want one that is not connected", samples)
	}
}

// A granted ring in a namespace is handed over when the namespace answers: after an eviction all connections end, and
// the device of before may still be there for a moment. A ring elsewhere is not waited for.
func TestHostNamespaces_GrantWaitsForTheNamespace(t *testing.T) {
	h := newHostNamespaces(nvmehost.Kernel{Root: t.TempDir()}, "/keys", slog.New(slog.DiscardHandler))
	defer h.connections.Close()
	const nqn = "nqn.2026-01.com.example:desk7"
	h.read = func(string) error { t.Error("read for a ring elsewhere"); return nil }
	for _, uri := range []string{"mem:/dev/shm/a", "nvme:/dev/nvme1n1?ring=a", "ofi:tcp://nqn.example:1/a"} {
		if err := h.waitReadable(t.Context(), uri); err != nil {
			t.Errorf("%s: %v", uri, err)
		}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := h.waitReadable(ended, "nvme:"+nqn+"/1?ring=a"); err == nil || !strings.Contains(err.Error(), nqn) {
		t.Errorf("not connected: %v", err)
	}
	connectFake(t, h.kernel.Root, nqn)
	reads := 0
	h.read = func(path string) error {
		if path != "/dev/nvme1n1" {
			t.Errorf("read %s", path)
		}
		if reads++; reads < 3 {
			return errors.New("input/output error")
		}
		return nil
	}
	if err := h.waitReadable(t.Context(), "nvme:"+nqn+"/1?ring=a"); err != nil || reads != 3 {
		t.Errorf("after %d reads: %v, want the third", reads, err)
	}
	answer := make(chan struct{})
	defer close(answer)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	h.read = func(string) error { cancel(); <-answer; return nil }
	if err := h.waitReadable(ctx, "nvme:"+nqn+"/1?ring=a"); err == nil || !strings.Contains(err.Error(), "no answer") {
		t.Errorf("a device that answers nothing: %v", err)
	}
	file := filepath.Join(t.TempDir(), "block")
	if err := os.WriteFile(file, make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := readBlock(file); err != nil {
		t.Errorf("a block: %v", err)
	}
	if err := readBlock(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("no device: no error")
	}
}

// connectFake has a namespace connected as /dev/nvme1n1, as sysfs shows it.
func connectFake(t *testing.T, root, nqn string) {
	t.Helper()
	for path, text := range map[string]string{
		"sys/class/nvme/nvme1/subsysnqn": nqn, "sys/class/nvme/nvme1/transport": "tcp",
		"sys/class/nvme/nvme1/state": "live", "sys/block/nvme1n1/nsid": "1",
		"sys/block/nvme1n1/device/subsysnqn": nqn,
	} {
		if err := os.MkdirAll(filepath.Join(root, filepath.Dir(path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, path), []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
