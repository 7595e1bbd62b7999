package service

import (
	"context"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd/etcdtest"
)

const tradingNQN = "nqn.2026-01.com.example:trading1"

func exportingTarget(host, name string) *api.TargetSpec {
	return &api.TargetSpec{
		Host:  host,
		Ports: []*api.NamespacePort{{Transport: "tcp", Address: "10.7.0.2"}},
		Namespaces: []*api.Namespace{{
			Name: name, Device: "/dev/" + name, Subsystem: "nqn.2026-01.com.example:" + name,
			Hosts: []*api.NamespaceHost{{Nqn: tradingNQN}},
		}},
	}
}

// What is declared reaches the targets of the host and no others, also when it changes; until they report it exported
// it is drift, for each control plane.
func TestNamespaces_ReachTheirTargetAndAreReported(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Open(t, t.TempDir())
	one, other := startInstance(t, cluster, true), startInstance(t, cluster, false)
	fabric := &api.Fabric{Targets: []*api.TargetSpec{exportingTarget("alpha", "desk7")}}
	if _, err := one.apply(&api.ApplyFabricRequest{Fabric: fabric}); err != nil {
		t.Fatal(err)
	}
	told := func(host string) (next func() []string) {
		ctx, cancel := context.WithCancel(one.context())
		t.Cleanup(cancel)
		stream, err := one.target.WatchRings(ctx, &api.WatchRingsRequest{Agent: &api.Agent{Id: "t" + host, Host: host}})
		if err != nil {
			t.Fatal(err)
		}
		return func() (names []string) {
			message, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			for _, namespace := range message.Namespaces {
				names = append(names, namespace.Name)
			}
			return names
		}
	}
	alpha, beta := told("alpha"), told("beta")
	if got, none := alpha(), beta(); !slices.Equal(got, []string{"desk7"}) || len(none) > 0 {
		t.Errorf("alpha is told %q and beta %q, want desk7 and none", got, none)
	}
	state := &api.TargetState{Agent: &api.Agent{Id: "talpha", Host: "alpha"}, Namespaces: []*api.NamespaceState{{
		Name: "desk7", Subsystem: "nqn.2026-01.com.example:desk7", Device: "/dev/desk7", Error: "it is mounted",
	}}}
	one.tellTarget(&api.ReportTargetRequest{State: state})
	isDrift := func(i *instance, reason string) {
		i.until("drift "+reason, func() bool {
			answer, err := i.apply(&api.ApplyFabricRequest{Fabric: fabric, DryRun: true})
			return err == nil && (reason == "" && len(answer.Drift) == 0 || reason != "" &&
				slices.ContainsFunc(answer.Drift, func(one *api.Drift) bool { return one.Reason == reason }))
		})
	}
	for _, i := range []*instance{one, other} {
		isDrift(i, "namespace desk7: it is mounted")
	}
	state.Namespaces[0].Exported, state.Namespaces[0].Error = true, ""
	one.tellTarget(&api.ReportTargetRequest{State: state})
	for _, i := range []*instance{one, other} {
		isDrift(i, "")
		got, err := i.fabric().GetTarget(i.context(), &api.GetTargetRequest{Host: "alpha"})
		if err != nil || len(got.Target.Agents[0].Namespaces) != 1 || !got.Target.Agents[0].Namespaces[0].Exported {
			t.Errorf("it is shown as %v, %v, want it exported", got, err)
		}
	}
	spec := exportingTarget("alpha", "desk7")
	spec.Namespaces = append(spec.Namespaces, exportingTarget("alpha", "desk8").Namespaces...)
	if _, err := one.fabric().UpdateTarget(one.context(), &api.UpdateTargetRequest{Spec: spec}); err != nil {
		t.Fatal(err)
	}
	for got := []string(nil); len(got) != 2; {
		if got = alpha(); len(got) == 0 {
			t.Fatal("alpha is told that it has none")
		}
	}
}

// A target that is declared alone is checked beside all others, as in a file.
func TestNamespaces_OfOneTargetAreChecked(t *testing.T) {
	t.Parallel()
	one := startInstance(t, etcdtest.Open(t, t.TempDir()), false)
	create := func(spec *api.TargetSpec) error {
		_, err := one.fabric().CreateTarget(one.context(), &api.CreateTargetRequest{Spec: spec})
		return err
	}
	if err := create(exportingTarget("alpha", "desk7")); err != nil {
		t.Fatal(err)
	}
	refused := func(what string, err error, field string) {
		t.Helper()
		if problems := problemsIn(err); status.Code(err) != codes.InvalidArgument || len(problems) != 1 ||
			!strings.HasPrefix(problems[0], field) {
			t.Errorf("%s: %v with %q, want a problem of %s", what, err, problems, field)
		}
	}
	refused("another host's subsystem", create(exportingTarget("beta", "desk7")), "spec.namespaces[0].subsystem=")
	moved := exportingTarget("alpha", "desk7")
	moved.Namespaces[0].Device = "/dev/other"
	_, err := one.fabric().UpdateTarget(one.context(), &api.UpdateTargetRequest{Spec: moved})
	refused("another device", err, "spec.namespaces[0].device=")
}

// A host that a namespace names is told of it, with the ports that lead to it, and shows how its connection is; another
// host is not.
func TestNamespaces_HostIsToldWhatToConnect(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Open(t, t.TempDir())
	one, other := startInstance(t, cluster, false), startInstance(t, cluster, false)
	spec := exportingTarget("alpha", "desk7")
	spec.Namespaces[0].Hosts[0].Host = "trading1"
	if _, err := one.fabric().CreateTarget(one.context(), &api.CreateTargetRequest{Spec: spec}); err != nil {
		t.Fatal(err)
	}
	report := func(host string, connections ...*api.NamespaceConnection) []*api.HostNamespace {
		answer, err := api.NewHostServiceClient(one.conn).ReportHost(one.context(), &api.ReportHostRequest{
			State: &api.HostState{Host: host, Namespaces: connections},
		})
		if err != nil {
			t.Fatal(err)
		}
		return answer.Namespaces
	}
	told := report("trading1")
	if len(told) != 1 || told[0].TargetHost != "alpha" || told[0].Subsystem != "nqn.2026-01.com.example:desk7" ||
		told[0].HostNqn != tradingNQN || told[0].Auth != api.Authentication_AUTHENTICATION_BOTH ||
		len(told[0].Ports) != 1 {
		t.Errorf("trading1 is told %v, want the namespace with its port", told)
	}
	if told := report("trading2"); len(told) > 0 {
		t.Errorf("trading2 is told %v, want none", told)
	}
	report("trading1", &api.NamespaceConnection{Name: "desk7", Device: "/dev/nvme1n1"})
	other.until("another control plane shows it", func() bool {
		list, err := other.fabric().ListHosts(other.context(), &api.ListHostsRequest{Host: "trading1"})
		return err == nil && len(list.Hosts) == 1 && len(list.Hosts[0].Namespaces) == 1 &&
			list.Hosts[0].Namespaces[0].Device == "/dev/nvme1n1"
	})
}
