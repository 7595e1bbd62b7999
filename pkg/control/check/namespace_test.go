package check

import (
	"slices"
	"strings"
	"testing"

	api "github.com/farlog/farlog/pkg/api/v1"
)

const tradingNQN = "nqn.2026-01.com.example:trading1"

func exporting(host string, namespaces ...*api.Namespace) *api.TargetSpec {
	return &api.TargetSpec{
		Host: host, Namespaces: namespaces,
		Ports: []*api.NamespacePort{{Transport: "tcp", Address: "10.7.0.2"}},
	}
}

func namespace(name, device string) *api.Namespace {
	return &api.Namespace{Name: name, Device: device, Subsystem: "nqn.2026-01.com.example:" + name}
}

// Each mistake in what is declared of namespaces is found in its own field, and a target without one has none.
func TestNamespaces_EachProblemInItsField(t *testing.T) {
	host := func(auth api.Authentication) []*api.NamespaceHost {
		return []*api.NamespaceHost{{Nqn: tradingNQN, Auth: auth}}
	}
	with := func(one *api.Namespace, hosts []*api.NamespaceHost) *api.Namespace {
		one.Hosts = hosts
		return one
	}
	good := exporting("a", with(namespace("x", "/dev/x"), host(0)),
		with(namespace("y", "/dev/y"), host(api.Authentication_AUTHENTICATION_BOTH)))
	for what, one := range map[string]struct {
		have   []*api.TargetSpec
		asked  *api.TargetSpec
		fields string
	}{
		"good":  {nil, good, ""},
		"again": {[]*api.TargetSpec{good}, good, ""},
		"no port": {
			nil, &api.TargetSpec{Host: "a", Namespaces: []*api.Namespace{namespace("x", "/dev/x")}},
			`ports `,
		},
		"a port twice": {nil, &api.TargetSpec{Host: "a", Ports: []*api.NamespacePort{
			{Transport: "tcp", Address: "::1"},
			{Transport: "rdma", Address: "::1"},
			{Transport: "tcp", Address: "::1", Service: 4420},
		}}, `ports[2].address "::1"`},
		"a device twice": {
			nil, exporting("a", namespace("x", "/dev/x"), namespace("y", "/dev/x")),
			`namespaces[1].device "/dev/x"`,
		},
		"all twice": {
			nil, exporting("a", namespace("x", "/dev/x"), namespace("x", "/dev/x")),
			`namespaces[1].name "x" namespaces[1].device "/dev/x" namespaces[1].subsystem ` +
				`"nqn.2026-01.com.example:x"`,
		},
		"a host twice": {
			nil, exporting("a", with(namespace("x", "/dev/x"), append(host(0), host(0)...))),
			`namespaces[0].hosts[1].nqn "` + tradingNQN + `"`,
		},
		"a host by two NQNs": {
			nil,
			exporting("a", with(namespace("x", "/dev/x"), []*api.NamespaceHost{
				{Nqn: tradingNQN, Host: "trading1"}, {Nqn: tradingNQN + "b", Host: "trading1"},
			})),
			`namespaces[0].hosts[1].host "trading1"`,
		},
		"two ways": {
			nil, exporting("a", with(namespace("x", "/dev/x"), host(0)),
				with(namespace("y", "/dev/y"), host(api.Authentication_AUTHENTICATION_NONE))),
			`namespaces[1].hosts[0].auth none`,
		},
		"another host's subsystem": {
			[]*api.TargetSpec{exporting("b", namespace("x", "/dev/x"))},
			exporting("a", namespace("w", "/dev/w"), namespace("x", "/dev/x")),
			`namespaces[1].subsystem "nqn.2026-01.com.example:x"`,
		},
		"another device": {
			[]*api.TargetSpec{exporting("a", namespace("x", "/dev/x"))},
			exporting("a", namespace("x", "/dev/y")), `namespaces[0].device "/dev/y"`,
		},
	} {
		if got := problemFields(t, one.have, one.asked); got != one.fields {
			t.Errorf("%s: problems in %s, expected in %s", what, got, one.fields)
		}
	}
}

// problemFields are the fields of what is wrong with a target that is declared beside others, with their values.
func problemFields(t *testing.T, have []*api.TargetSpec, asked *api.TargetSpec) string {
	t.Helper()
	world := World{}
	world.TargetSpecs = map[string]*api.TargetSpec{}
	for _, spec := range have {
		world.TargetSpecs[spec.Host] = spec
	}
	found, err := Fabric(world, &api.Fabric{Targets: []*api.TargetSpec{asked}})
	if err != nil {
		t.Fatal(err)
	}
	var fields []string
	for _, problem := range found.Problems {
		fields = append(fields, strings.TrimPrefix(problem.Field, "fabric.targets[0].")+" "+problem.Value)
	}
	return strings.Join(fields, " ")
}

// The rules of single fields are those of farlog.proto.
func TestNamespaces_Fields(t *testing.T) {
	spec := exporting("a", &api.Namespace{
		Name: "a b", Device: "dev/x", Subsystem: "desk7", Hosts: []*api.NamespaceHost{{Nqn: "x", Host: "a/b"}},
	}, namespace("x", "/dev/x"), &api.Namespace{
		Name: "u", Device: "/dev/u", Subsystem: "nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6",
	}, &api.Namespace{Name: "d", Device: "/dev/d", Subsystem: "nqn.2014-08.org.nvmexpress.discovery"})
	spec.Ports = append(spec.Ports, &api.NamespacePort{Transport: "fc", Address: "storage1", Service: 70000})
	found, err := Message(spec, "")
	if err != nil {
		t.Fatal(err)
	}
	var fields []string
	for _, one := range found {
		fields = append(fields, one.Field)
	}
	want := []string{
		"namespaces[0].device", "namespaces[0].hosts[0].host", "namespaces[0].hosts[0].nqn", "namespaces[0].name",
		"namespaces[0].subsystem", "namespaces[3].subsystem", "ports[1].address", "ports[1].service",
		"ports[1].transport",
	}
	slices.Sort(fields)
	if !slices.Equal(fields, want) {
		t.Errorf("problems in %q, expected %q: %v", fields, want, found)
	}
}

// A namespace that has the ring of a stream is not declared away, and a stream that wants one finds it declared.
func TestNamespaces_OfStreams(t *testing.T) {
	have := exporting("a", namespace("x", "/dev/x"))
	have.Namespaces[0].Hosts = []*api.NamespaceHost{{Nqn: tradingNQN, Host: "trading1"}}
	world := World{}
	world.TargetSpecs = map[string]*api.TargetSpec{"a": have}
	world.Rings = map[string]*api.RingSpec{"desk7/orders": {
		Subsystem: have.Namespaces[0].Subsystem, Stream: &api.Stream{Spec: &api.StreamSpec{Name: "desk7/orders"}},
	}}
	stream := func(kind, writer string) []*api.StreamSpec {
		return []*api.StreamSpec{StreamWithDefaults(&api.StreamSpec{Name: "desk7/new", Kind: kind, WriterHost: writer})}
	}
	several := stream("nvmeof", "trading1")
	several[0].Members, several[0].Needed = 2, 2
	for what, one := range map[string]struct {
		asked *api.Fabric
		want  string
	}{
		"as it is":  {&api.Fabric{Targets: []*api.TargetSpec{have}}, ""},
		"taken off": {&api.Fabric{Targets: []*api.TargetSpec{{Host: "a"}}}, "of stream desk7/orders lies in it"},
		"a stream":  {&api.Fabric{Streams: stream("nvmeof", "trading1")}, ""},
		"a stream with its target": {&api.Fabric{
			Targets: []*api.TargetSpec{exporting("b", &api.Namespace{
				Name: "y", Device: "/dev/y", Subsystem: "nqn.2026-01.com.example:y",
				Hosts: []*api.NamespaceHost{{Nqn: tradingNQN + "2", Host: "trading2"}},
			})}, Streams: stream("nvmeof", "trading2"),
		}, ""},
		"a writer elsewhere": {&api.Fabric{Streams: stream("nvmeof", "trading2")}, "does not admit host trading2"},
		"another kind":       {&api.Fabric{Streams: stream("floppy", "")}, "expected nvmeof, or none"},
		"several members":    {&api.Fabric{Streams: several}, "a stream in a namespace has one member"},
	} {
		found, err := Fabric(world, one.asked)
		if err != nil {
			t.Fatal(err)
		}
		var rules []string
		for _, problem := range found.Problems {
			rules = append(rules, problem.Rule)
		}
		if text := strings.Join(rules, "; "); (text == "") != (one.want == "") || !strings.Contains(text, one.want) {
			t.Errorf("%s: %q, expected %q", what, text, one.want)
		}
	}
}
