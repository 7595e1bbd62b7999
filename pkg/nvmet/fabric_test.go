package nvmet

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// usable says which devices may not be used.
type usable map[string]string

func (u usable) Usable(device string) error {
	if why := u[device]; why != "" {
		return errors.New(why)
	}
	return nil
}

const (
	desk7    = "nqn.2026-01.com.example:desk7"
	desk8    = "nqn.2026-01.com.example:desk8"
	trading1 = "nqn.2026-01.com.example:trading1"
)

func declaredOf(names ...string) *wish {
	w := &wish{ports: []FabricPort{{Transport: "tcp", Address: "10.7.0.2"}, {"rdma", "10.7.0.2", 4420}}}
	for _, nqn := range names {
		w.namespaces = append(w.namespaces, FabricNamespace{
			Name: nqn[len(nqn)-5:], NQN: nqn, Device: "/dev/" + nqn[len(nqn)-5:], IsEvicting: nqn == desk8,
			Hosts: []DeclaredHost{{NQN: trading1}},
		})
	}
	return w
}

// follow does on the model what applyFabric does in the kernel, and says what was refused.
func follow(t *testing.T, k *Keeper, state *State, m *model, wanted *wish) (steps []Step, refused map[string]error) {
	t.Helper()
	if err := state.claim(k.owner); err != nil {
		t.Fatal(err)
	}
	d, refused := k.accept(wanted, m.config(), state)
	if err := d.check(); err != nil {
		t.Fatal(err)
	}
	if _, err := state.Ready(d, time.Now()); err != nil {
		t.Fatal(err)
	}
	to, _ := state.Wanted(d, m.config())
	steps = Plan(m.config(), to)
	if err := m.do(steps); err != nil {
		t.Fatal(err)
	}
	state.Remember(d)
	state.Forget(d)
	return steps, refused
}

// What the fabric declares is exported at each port, again after drift, and nothing else of the kernel's is touched;
// what it declares no more goes, with its ports and the claim on the state.
func TestFabric_IsMadeSoAndRepaired(t *testing.T) {
	state, m := openState(t), newModel()
	k := NewFabricKeeper("/a", "", "", usable{}, slog.New(slog.DiscardHandler))
	foreign := &Config{
		Subsystems: []Subsystem{{NQN: "other", Namespaces: []Namespace{{NSID: 1, Device: Attrs{"path": "/dev/x"}}}}},
		Ports:      []Port{{PortID: 1, Addr: Attrs{"trtype": "loop"}, Subsystems: []string{"other"}}},
	}
	if err := m.do(Plan(m.config(), foreign)); err != nil {
		t.Fatal(err)
	}
	before := m.config()
	if _, refused := follow(t, k, state, m, declaredOf(desk7, desk8)); len(refused) > 0 {
		t.Fatalf("refused: %v", refused)
	}
	there := m.config()
	for _, nqn := range []string{desk7, desk8} {
		one := NamespaceSample{NQN: nqn, Device: "/dev/" + nqn[len(nqn)-5:]}
		if !there.exports(one, declaredOf().ports) {
			t.Errorf("%s is not exported: %+v", nqn, there)
		}
	}
	if !slices.Equal(state.Ports, []int{2, 3}) {
		t.Errorf("the ports have the numbers %v, want 2 and 3: 1 is another's", state.Ports)
	}
	if steps, _ := follow(t, k, state, m, declaredOf(desk7, desk8)); len(steps) > 0 {
		t.Errorf("again: %q, want nothing", texts(steps))
	}
	m.links["ports/2/subsystems/"+desk7] = ""
	delete(m.links, "ports/2/subsystems/"+desk7)
	m.attrs[namespacePath(desk7, 1)+"/enable"] = "0"
	if steps, refused := follow(t, k, state, m, declaredOf(desk7, desk8)); len(steps) != 2 || len(refused) > 0 {
		t.Errorf("drift is repaired by %q (%v), want the link and enable", texts(steps), refused)
	}
	if follow(t, k, state, m, &wish{}); !reflect.DeepEqual(m.config(), before) || state.Owner != "" {
		t.Errorf("left is %+v of owner %q\nwant %+v of nobody", m.config(), state.Owner, before)
	}
}

// What is refused names its cause, stays as it is in the kernel, and keeps nothing else from being exported.
func TestFabric_RefusesWhatIsNotItsOwn(t *testing.T) {
	dir := t.TempDir()
	device, link := filepath.Join(dir, "device"), filepath.Join(dir, "link")
	if err := errors.Join(os.WriteFile(device, nil, 0o600), os.Symlink(device, link)); err != nil {
		t.Fatal(err)
	}
	foreign := &Config{Subsystems: []Subsystem{{NQN: desk7, Namespaces: []Namespace{
		{NSID: 3, Device: Attrs{"path": device}, Enable: 1},
	}}}}
	other := func(w *wish, device string) *wish {
		w.namespaces[0].Device = device
		return w
	}
	for what, one := range map[string]struct {
		wanted  *wish
		there   *Config
		devices usable
		want    string
	}{
		"a subsystem of others": {
			declaredOf(desk7, desk8), foreign, nil,
			"the kernel has it, and not from this target",
		},
		"a device of others": {
			other(declaredOf("nqn.2026-01.com.example:desk9", desk8), link), foreign, nil,
			"it is namespace 3 of subsystem " + desk7 + " already",
		},
		"a device in use": {
			declaredOf(desk7, desk8), &Config{}, usable{"/dev/desk7": "it is mounted"}, "it is mounted",
		},
	} {
		state, m := openState(t), newModel()
		k := NewFabricKeeper("/a", "", "", one.devices, slog.New(slog.DiscardHandler))
		if err := m.do(Plan(m.config(), one.there)); err != nil {
			t.Fatal(err)
		}
		before := m.config()
		_, refused := follow(t, k, state, m, one.wanted)
		cause := refused[one.wanted.namespaces[0].NQN]
		if len(refused) != 1 || cause == nil || !strings.Contains(cause.Error(), one.want) {
			t.Errorf("%s: refused is %v, want one: %s", what, refused, one.want)
		}
		if !m.config().exports(NamespaceSample{NQN: desk8, Device: "/dev/desk8"}, one.wanted.ports) {
			t.Errorf("%s: what is declared beside it is not exported", what)
		}
		if after := m.config(); len(before.Subsystems) > 0 &&
			!reflect.DeepEqual(after.Subsystems[0], before.Subsystems[0]) {
			t.Errorf("%s: the subsystem of others is %+v, it was %+v", what, after.Subsystems[0], before.Subsystems[0])
		}
	}
}

// A device that is exported stays so, whatever a check of it would say by now: its writers are connected.
func TestFabric_ExportedStays(t *testing.T) {
	state, m := openState(t), newModel()
	devices := usable{}
	k := NewFabricKeeper("/a", "", "", devices, slog.New(slog.DiscardHandler))
	follow(t, k, state, m, declaredOf(desk7))
	devices["/dev/desk7"] = "it is in use: by its own writers"
	if steps, refused := follow(t, k, state, m, declaredOf(desk7)); len(steps)+len(refused) > 0 {
		t.Errorf("steps %q, refused %v, want none", texts(steps), refused)
	}
}

// What one target or file has declared no other one removes.
func TestState_IsOfOneOwner(t *testing.T) {
	owned := func(owner string) *State {
		return &State{Owner: owner, Subsystems: []string{desk7}, path: "state.json"}
	}
	for what, one := range map[string]struct {
		state      *State
		owner      string
		want, gets string
	}{
		"nobody's":             {&State{}, "/a", "", "/a"},
		"its own":              {owned("/a"), "/a", "", "/a"},
		"a file's again":       {owned(""), "", "", ""},
		"another target's":     {owned("/a"), "/b", "give the target in /b another --nvmet-state", "/a"},
		"a file's":             {owned(""), "/a", "it has what a file declares", ""},
		"the fabric's, a file": {owned("/a"), "", "change fabric.yaml", "/a"},
	} {
		err := one.state.claim(one.owner)
		if one.want == "" && err != nil || one.want != "" && (err == nil || !strings.Contains(err.Error(), one.want)) ||
			one.state.Owner != one.gets {
			t.Errorf("%s: error %v, owner %q, want %q and %q", what, err, one.state.Owner, one.want, one.gets)
		}
	}
}

// Until the fabric is known nothing is done, and where it declares nothing the kernel is not even asked.
func TestKeeper_FabricIsIdleUntilItDeclares(t *testing.T) {
	state := filepath.Join(t.TempDir(), "nvmet.json")
	k := NewFabricKeeper("/a", state, filepath.Join(t.TempDir(), "nvmet"), usable{}, slog.New(slog.DiscardHandler))
	k.poll()
	k.Declare(nil, nil)
	k.poll()
	if sample := k.Sample(); sample != (KeeperSample{}) {
		t.Errorf("sample is %+v, want none", sample)
	}
	if _, err := os.Stat(state + ".lock"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the state was opened: %v", err)
	}
	ofFile := `{"version": 1, "subsystems": ["` + desk8 + `"], "ports": [1], "hosts": []}`
	if err := os.WriteFile(state, []byte(ofFile), 0o600); err != nil {
		t.Fatal(err)
	}
	if k.poll(); k.Sample() != (KeeperSample{}) {
		t.Errorf("beside what a file declares: sample is %+v, want none", k.Sample())
	}
	k.Declare(declaredOf(desk7).namespaces, declaredOf().ports)
	k.poll()
	seen := k.Namespaces()
	if len(seen) != 1 || seen[0].IsExported || !strings.Contains(seen[0].Error, "modprobe nvmet") &&
		!strings.Contains(seen[0].Error, "mount -t configfs") {
		t.Errorf("without a kernel's target: %+v, want it not exported and the remedy", seen)
	}
	file := filepath.Join(t.TempDir(), "nvmet.yaml")
	if err := os.WriteFile(file, []byte(declared), 0o600); err != nil {
		t.Fatal(err)
	}
	k, err := NewKeeper(file, state, "", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	k.Declare(declaredOf(desk7).namespaces, nil)
	if seen := k.Namespaces(); len(seen) != 1 || !strings.Contains(seen[0].Error, "--nvmet-file "+file) {
		t.Errorf("with a file: %+v, want a namespace that is not exported because of it", seen)
	}
}

// A device that is late or busy for a while costs no host its keys, and no subsystem in the kernel its connections.
// What is declared no more goes, also of such a namespace.
func TestFabric_RefusedKeepsKeysAndConnections(t *testing.T) {
	const trading2 = "nqn.2026-01.com.example:trading2"
	state, m, devices := openState(t), newModel(), usable{}
	k := NewFabricKeeper("/a", "", "", devices, slog.New(slog.DiscardHandler))
	wanted := declaredOf(desk7, desk8)
	wanted.namespaces[0].Hosts = []DeclaredHost{{NQN: trading1}, {NQN: trading2}}
	wanted.namespaces[1].Hosts = nil
	follow(t, k, state, m, wanted)
	keys := *state.Keys[trading2]
	expectKeys := func(when string) {
		t.Helper()
		there := state.Keys[trading2]
		if there == nil || there.Host.Reveal() != keys.Host.Reveal() || there.Ctrl.Reveal() != keys.Ctrl.Reveal() {
			t.Fatalf("%s: the keys of %s are others", when, trading2)
		}
		if !slices.ContainsFunc(m.config().Hosts, func(host Host) bool {
			return host.NQN == trading2 && host.DHCHAP["key"] == keys.Host.Reveal()
		}) {
			t.Errorf("%s: the kernel does not have %s with its key", when, trading2)
		}
	}
	m = newModel() // a boot
	devices["/dev/desk7"] = "no such file or directory"
	if _, refused := follow(t, k, state, m, wanted); len(refused) != 1 || !slices.Contains(state.Subsystems, desk7) {
		t.Errorf("refused is %v of %q, want desk7, and its name kept", refused, state.Subsystems)
	}
	expectKeys("without the device")
	delete(devices, "/dev/desk7")
	follow(t, k, state, m, wanted)
	expectKeys("with the device again")

	enable := namespacePath(desk7, 1) + "/enable"
	m.attrs[enable], m.attrs[subsystemPath(desk7)+"/attr_allow_any_host"] = "0", "1"
	devices["/dev/desk7"] = "it is in use"
	for _, want := range []int{1, 0} { // allow_any_host
		if steps, refused := follow(t, k, state, m, wanted); len(steps) != want || len(refused) != 1 {
			t.Errorf("while its device is busy: steps %q, refused %v, want %d step and desk7", texts(steps), refused,
				want)
		}
	}
	expectKeys("while its device is busy")
	wanted.namespaces[0].Hosts = wanted.namespaces[0].Hosts[:1]
	follow(t, k, state, m, wanted)
	if there := m.config(); state.Keys[trading2] != nil || state.Keys[trading1] == nil || len(there.Hosts) != 1 ||
		!slices.Equal(there.Subsystems[0].AllowedHosts, []string{trading1}) {
		t.Errorf("a host that is declared no more: left is %+v with keys of %d hosts", there, len(state.Keys))
	}
	delete(devices, "/dev/desk7")
	if steps, refused := follow(t, k, state, m, wanted); len(steps) != 1 || len(refused) > 0 || m.attrs[enable] != "1" {
		t.Errorf("no longer busy: steps %q, refused %v, want it enabled", texts(steps), refused)
	}
	if follow(t, k, state, m, declaredOf(desk8)); slices.Contains(state.Subsystems, desk7) || len(state.Keys) != 1 {
		t.Errorf("declared no more: left are %q and keys of %d hosts", state.Subsystems, len(state.Keys))
	}
}

// A host of another program is not taken over for a namespace that must not be exported.
func TestFabric_RefusedTakesNoHostOfOthers(t *testing.T) {
	state, m := openState(t), newModel()
	k := NewFabricKeeper("/a", "", "", usable{"/dev/desk7": "it is mounted"}, slog.New(slog.DiscardHandler))
	if err := m.do(Plan(m.config(), &Config{Hosts: []Host{{NQN: trading1}}})); err != nil {
		t.Fatal(err)
	}
	before := m.config().Hosts
	follow(t, k, state, m, declaredOf(desk7))
	if after := m.config().Hosts; !reflect.DeepEqual(after, before) || len(state.Keys)+len(state.Hosts) > 0 {
		t.Errorf("the host of others is %+v, it was %+v; ours are %q", after, before, state.Hosts)
	}
}
