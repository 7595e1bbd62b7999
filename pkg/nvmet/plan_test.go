package nvmet

import (
	"errors"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// world is what configurations are drawn from: names for the model, real ones for a kernel.
type world struct {
	keys, paths, uuids, addresses, transports []string

	hasTLS bool
}

var modelWorld = world{
	[]string{"", "DHHC-1:00:one:", "DHHC-1:00:two:"},
	[]string{"/dev/a", "/dev/b"},
	[]string{"x", "y"},
	[]string{"10.0.0.1", "10.0.0.2"},
	[]string{"rdma", "tcp", "loop"},
	true,
}

// draw draws parts of a configuration whose names begin with label.
type draw struct {
	world
	t     *rapid.T
	label string
}

func (d draw) pick(what string, choices ...string) string {
	return rapid.SampledFrom(choices).Draw(d.t, d.label+what)
}

func (d draw) flag(what string) bool { return rapid.Bool().Draw(d.t, d.label+what) }

// drawConfig names every attribute that it varies, so that two configurations of it are the same only when they are.
func (w world) drawConfig(t *rapid.T, label string) *Config {
	c, draw := &Config{}, draw{w, t, label}
	for _, nqn := range []string{"host-a", "host-b", "host-c"} {
		if draw.flag(nqn) {
			key := draw.pick("key", w.keys...)
			c.Hosts = append(c.Hosts, Host{NQN: nqn, DHCHAP: Attrs{
				"key": key, "ctrl_key": draw.pick("ctrl_key", "", key),
				"hash":    draw.pick("hash", "hmac(sha256)", "hmac(sha512)"),
				"dhgroup": draw.pick("dhgroup", "null", "ffdhe2048"),
			}})
		}
	}
	for _, nqn := range []string{"sub-a", "sub-b", "sub-c"} {
		if draw.flag(nqn) {
			c.Subsystems = append(c.Subsystems, draw.subsystem(nqn, c.Hosts))
		}
	}
	for id := 1; id <= 3; id++ {
		if draw.flag("port") {
			c.Ports = append(c.Ports, draw.port(id, c.Subsystems))
		}
	}
	c.sort()
	return c
}

func (d draw) subsystem(nqn string, hosts []Host) Subsystem {
	s := Subsystem{NQN: nqn, Attr: Attrs{
		"allow_any_host": d.pick("any", "0", "1"),
		"serial":         d.pick("serial", "1", "2"), "qid_max": "128",
	}}
	s.Attr["cntlid_min"], s.Attr["cntlid_max"] = "1", "100"
	if d.flag("cntlid") {
		s.Attr["cntlid_min"], s.Attr["cntlid_max"] = "200", "300"
	}
	for _, host := range hosts {
		if s.Attr["allow_any_host"] == "0" && d.flag("allowed") {
			s.AllowedHosts = append(s.AllowedHosts, host.NQN)
		}
	}
	for nsid := 1; nsid <= 2; nsid++ {
		if d.flag("namespace") {
			s.Namespaces = append(s.Namespaces, Namespace{
				NSID:   nsid,
				Device: Attrs{"path": d.pick("path", d.paths...), "uuid": d.pick("uuid", d.uuids...)},
				Resv:   Attrs{"enable": d.pick("resv", "0", "1")}, Enable: number(d.pick("enable", "0", "1")),
				ANAGrpID:   number(d.pick("ana_grpid", "1", "2")),
				BufferedIO: number(d.pick("buffered", "0", "1")),
			})
		}
	}
	return s
}

func (d draw) port(id int, subsystems []Subsystem) Port {
	transport := d.pick("trtype", d.transports...)
	p := Port{
		PortID: id, Addr: Attrs{
			"trtype": transport, "adrfam": "ipv4",
			"traddr": d.pick("traddr", d.addresses...), "trsvcid": strconv.Itoa(4420 + id),
			"tsas": tsasGiven[transport], "treq": d.pick("treq", "not specified", "required"),
		},
		Param: Attrs{"inline_data_size": "-1"},
	}
	if transport == "tcp" && d.hasTLS && d.flag("tls") {
		p.Addr["tsas"], p.Addr["treq"] = "tls1.3", d.pick("treq", "required", "not required")
	}
	p.ANAGroups = []ANAGroup{{GrpID: 1, ANA: Attrs{"state": d.pick("state", "optimized", "inaccessible")}}}
	if d.flag("group") {
		p.ANAGroups = append(p.ANAGroups, ANAGroup{
			GrpID: 2,
			ANA:   Attrs{"state": d.pick("state", "optimized", "inaccessible")},
		})
	}
	if d.flag("referral") {
		p.Referrals = []Referral{{
			Name: "other", Enable: number(d.pick("enable", "0", "1")),
			Addr: Attrs{
				"trtype": "tcp", "adrfam": "ipv4", "traddr": d.pick("traddr", d.addresses...),
				"trsvcid": "4420", "treq": "not specified",
			},
		}}
	}
	for _, s := range subsystems {
		if d.flag("subsystem") {
			p.Subsystems = append(p.Subsystems, s.NQN)
		}
	}
	return p
}

// From any state to any other: each step is one that the kernel takes at that point, the end is what it would have been
// from nothing, and nothing is left to do. So it is when the way was broken off anywhere and begun again.
func TestPlan_FromAnyStateToAnyOther(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before, after := modelWorld.drawConfig(t, "before "), modelWorld.drawConfig(t, "after ")
		direct, m := newModel(), newModel()
		if err := direct.do(Plan(direct.config(), after)); err != nil {
			t.Fatalf("from nothing: %v", err)
		}
		if err := m.do(Plan(m.config(), before)); err != nil {
			t.Fatalf("from nothing to what is before: %v", err)
		}
		steps := Plan(m.config(), after)
		whole := newModel()
		if err := errors.Join(whole.do(Plan(whole.config(), before)), whole.do(steps)); err != nil {
			t.Fatalf("%v\nof %v", err, steps)
		}
		if left := Plan(whole.config(), after); len(left) > 0 {
			t.Fatalf("after all of %v\nthere should be nothing left to do, but is %v", steps, left)
		}
		cut := rapid.IntRange(0, len(steps)).Draw(t, "cut")
		if err := m.do(steps[:cut]); err != nil {
			t.Fatalf("%v\nof %v", err, steps)
		}
		rest := Plan(m.config(), after)
		if err := m.do(rest); err != nil {
			t.Fatalf("begun again behind step %d: %v\nof %v\nbehind %v", cut, err, rest, steps[:cut])
		}
		if got, want := m.config(), direct.config(); !reflect.DeepEqual(got, want) {
			t.Fatalf("it is %+v\nwant  %+v\nby %v", got, want, append(steps[:cut:cut], rest...))
		}
		if left := Plan(m.config(), after); len(left) > 0 {
			t.Fatalf("nothing should be left to do: %v", left)
		}
	})
}

// A port is opened for a subsystem when all else is done.
func TestPlan_LetsInLast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel()
		if err := m.do(Plan(m.config(), modelWorld.drawConfig(t, "before "))); err != nil {
			t.Fatal(err)
		}
		isOpen := false
		for _, step := range Plan(m.config(), modelWorld.drawConfig(t, "after ")) {
			isOpening := step.Op == Link && strings.HasPrefix(step.Path, "ports/")
			if isOpen && !isOpening && !strings.HasPrefix(step.Path, "ports/") {
				t.Fatalf("%s comes after a port was opened", step)
			}
			isOpen = isOpen || isOpening
		}
	})
}

func TestPlan_HostThatIsNotAllowedAnyMoreLosesItsConnections(t *testing.T) {
	before := &Config{
		Hosts: []Host{{NQN: "host-a"}, {NQN: "host-b"}},
		Subsystems: []Subsystem{{
			NQN: "sub", Attr: Attrs{"qid_max": "128"},
			AllowedHosts: []string{"host-a", "host-b"},
		}},
	}
	after := &Config{Hosts: before.Hosts, Subsystems: []Subsystem{{NQN: "sub", AllowedHosts: []string{"host-b"}}}}
	steps := Plan(before, after)
	want := []string{"unlink subsystems/sub/allowed_hosts/host-a", "write subsystems/sub/attr_qid_max = 128"}
	if got := texts(steps); !reflect.DeepEqual(got, want) {
		t.Errorf("steps are %q, want %q", got, want)
	}
}

func TestPlan_NewKeyTakesNothingOutOfUse(t *testing.T) {
	before := &Config{Hosts: []Host{{NQN: "host-a", DHCHAP: Attrs{"key": "DHHC-1:00:one:"}}}}
	after := &Config{Hosts: []Host{{NQN: "host-a", DHCHAP: Attrs{"key": "DHHC-1:00:two:"}}}}
	want := []string{"write hosts/host-a/dhchap_key = (secret)"}
	if got := texts(Plan(before, after)); !reflect.DeepEqual(got, want) {
		t.Errorf("steps are %q, want %q", got, want)
	}
}

func texts(steps []Step) (list []string) {
	for _, step := range steps {
		list = append(list, step.String())
	}
	return list
}

// The kernel forgets a key only with its host, which goes for that moment from where it is allowed.
func TestPlan_KeyThatIsToGoTakesItsHostOutAndBack(t *testing.T) {
	m := newModel()
	state := func(key string) *Config {
		return &Config{
			Hosts:      []Host{{NQN: "host", DHCHAP: Attrs{"key": key}}},
			Subsystems: []Subsystem{{NQN: "sub", AllowedHosts: []string{"host"}}},
		}
	}
	if err := m.do(Plan(m.config(), state("DHHC-1:00:one:"))); err != nil {
		t.Fatal(err)
	}
	steps := Plan(m.config(), state(""))
	want := []string{
		"unlink subsystems/sub/allowed_hosts/host", "rmdir hosts/host", "mkdir hosts/host",
		"link subsystems/sub/allowed_hosts/host -> hosts/host",
	}
	if got := texts(steps); !reflect.DeepEqual(got, want) {
		t.Errorf("steps are %q, want %q", got, want)
	}
	if err := m.do(steps); err != nil || m.attrs["hosts/host/dhchap_key"] != "" ||
		len(Plan(m.config(), state(""))) > 0 {
		t.Errorf("afterwards the key is %q, and there is to do %v: %v", m.attrs["hosts/host/dhchap_key"],
			Plan(m.config(), state("")), err)
	}
}
