//go:build cgo

package main

import (
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
