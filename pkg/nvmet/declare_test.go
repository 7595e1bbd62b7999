package nvmet

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

const declared = `
subsystems:
- nqn: nqn.2026-01.com.example:desk7
  hosts: [nqn.2026-01.com.example:trading1, nqn.2026-01.com.example:central1]
  namespaces:
  - {nsid: 1, device: /dev/nvme0n1}
  - {nsid: 2, device: /var/lib/farlog/ring, reservations: "off", buffered_io: true}
ports:
- {id: 1, transport: rdma, address: 10.7.0.2}
- {id: 2, transport: tcp, address: "fd00::2", service: 4421}
- {id: 3, transport: loop, subsystems: []}
hosts:
- {nqn: nqn.2026-01.com.example:central1, auth: none}
`

func TestDeclaration_IsAppliedAndRemoved(t *testing.T) {
	d, err := ReadDeclaration([]byte(declared))
	if err != nil {
		t.Fatal(err)
	}
	state, m := openState(t), newModel()
	// What others have made: a subsystem on a port of ours, another port, and a host that both have.
	other := &Config{
		Hosts:      []Host{{NQN: "nqn.2026-01.com.example:trading1"}},
		Subsystems: []Subsystem{{NQN: "other", AllowedHosts: []string{"nqn.2026-01.com.example:trading1"}}},
		Ports: []Port{
			{PortID: 1, Addr: Attrs{
				"trtype": "rdma", "traddr": "10.7.0.2", "trsvcid": "4420",
				"adrfam": "ipv4",
			}, Subsystems: []string{"other"}},
			{PortID: 9, Addr: Attrs{"trtype": "loop"}, Subsystems: []string{"other"}},
		},
	}
	if err := m.do(Plan(m.config(), other)); err != nil {
		t.Fatal(err)
	}
	drawn, err := state.Ready(d, time.Now())
	if err != nil || !reflect.DeepEqual(drawn, []string{"nqn.2026-01.com.example:trading1"}) {
		t.Fatalf("keys are drawn for %v (%v), want trading1 alone: central1 has auth: none", drawn, err)
	}
	wanted, foreign := state.Wanted(d, m.config())
	if want := []string{"subsystem other", "port 9"}; !reflect.DeepEqual(foreign, want) {
		t.Errorf("foreign is %v, want %v", foreign, want)
	}
	if err := m.do(Plan(m.config(), wanted)); err != nil {
		t.Fatal(err)
	}
	trading1 := state.Keys["nqn.2026-01.com.example:trading1"]
	for path, want := range map[string]string{
		"subsystems/nqn.2026-01.com.example:desk7/attr_allow_any_host":      "0",
		"subsystems/nqn.2026-01.com.example:desk7/namespaces/1/resv_enable": "1",
		"subsystems/nqn.2026-01.com.example:desk7/namespaces/2/resv_enable": "0",
		"subsystems/nqn.2026-01.com.example:desk7/namespaces/2/buffered_io": "1",
		"subsystems/nqn.2026-01.com.example:desk7/namespaces/1/enable":      "1", "ports/2/addr_adrfam": "ipv6",
		"ports/2/addr_trsvcid": "4421", "ports/1/addr_trsvcid": "4420",
		"hosts/nqn.2026-01.com.example:trading1/dhchap_key": trading1.Host.Reveal(),
		"hosts/nqn.2026-01.com.example:central1/dhchap_key": "",
	} {
		if got := m.attrs[path]; got != want {
			t.Errorf("%s is %q, want %q", path, got, want)
		}
	}
	if got := m.linked("ports/1/subsystems"); !reflect.DeepEqual(got,
		[]string{"nqn.2026-01.com.example:desk7", "other"}) {
		t.Errorf("port 1 has %v, want both: what others put there stays", got)
	}
	state.Forget(d)
	if wanted, _ = state.Wanted(d, m.config()); len(Plan(m.config(), wanted)) > 0 {
		t.Errorf("again it does %v, want nothing", Plan(m.config(), wanted))
	}
	wanted, _ = state.Wanted(&Declaration{}, m.config())
	if err := m.do(Plan(m.config(), wanted)); err != nil {
		t.Fatal(err)
	}
	if left := m.config(); len(left.Subsystems) != 1 || len(left.Ports) != 1 || len(left.Hosts) != 1 {
		t.Errorf("left is %+v, want what others made: subsystem other, port 9, and the host that it names", left)
	}
}

func TestDeclaration_TellsEveryMistake(t *testing.T) {
	_, err := ReadDeclaration([]byte(`
subsystems:
- nqn: desk7
  namespaces:
  - {nsid: 0, device: nvme0n1, uuid: x, reservations: maybe}
  - {nsid: 2, device: /dev/a}
  - {nsid: 2, device: /dev/a}
- nqn: desk7
ports:
- {transport: ip, address: storage1}
- {id: 1, transport: loop, address: 10.0.0.1}
- {id: 1, transport: tcp, address: 10.0.0.1, service: 70000, subsystems: [desk8]}
hosts:
- {nqn: nqn.2026-01.com.example:a, auth: maybe, hash: md5, dhgroup: ffdhe1}
`))
	if err == nil {
		t.Fatal("it is taken")
	}
	for _, want := range []string{
		`subsystems[0].nqn: NQN "desk7": expected nqn.YEAR-MONTH`,
		"subsystems[0].namespaces[0].nsid 0: expected", `namespaces[0].device "nvme0n1": expected`,
		`namespaces[0].uuid "x": expected`, `namespaces[0].reservations "maybe": expected one of auto`,
		"namespaces[2]: namespace 2 of subsystem desk7 is there twice",
		"namespaces[2]: device /dev/a is there twice", "subsystems[1]: subsystem desk7 is there twice",
		"ports[0].id: expected", `ports[0].transport "ip": expected one of rdma`,
		`ports[0].address "storage1": expected an IP address`, "ports[1]: transport loop has no address",
		"ports[2]: port 1 is there twice", "ports[2].service 70000: expected",
		`ports[2].subsystems[0] "desk8": expected`, `hosts[0].auth "maybe": expected`, `hosts[0].hash "md5": expected`,
		`hosts[0].dhgroup "ffdhe1": expected`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("not told: %s\n%v", want, err)
		}
	}
	for raw, want := range map[string]string{
		"subsystems:\n- nqm: x\n": "line 2: field nqm",
		"subsystem: []\n":         "line 1: field subsystem", "{": "expected the keys",
		"": "it declares nothing", "# all of it was lost\n": "it declares nothing", "{}": "it declares nothing",
	} {
		if _, err := ReadDeclaration([]byte(raw)); err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "nvmet.Decl") {
			t.Errorf("%q: error %v, want one with %q and without names of ours", raw, err, want)
		}
	}
}

// To want nothing has to be said.
func TestDeclaration_OfNothingIsTakenWhenItIsSaid(t *testing.T) {
	if d, err := ReadDeclaration([]byte("subsystems: []\n")); err != nil || len(d.Subsystems) != 0 {
		t.Errorf("an empty list is read as %+v: %v", d, err)
	}
}

// A host that finds another identity after the target has booted drops the namespace.
func TestDeclaration_IdentityIsTheSameAfterABoot(t *testing.T) {
	first, _ := ReadDeclaration([]byte(declared))
	second, _ := ReadDeclaration([]byte(declared))
	if !reflect.DeepEqual(first, second) {
		t.Error("read twice it is not the same")
	}
	uuids := []string{first.Subsystems[0].Namespaces[0].UUID, first.Subsystems[0].Namespaces[1].UUID}
	if uuids[0] == uuids[1] || !uuidForm.MatchString(uuids[0]) {
		t.Errorf("UUIDs are %v, want two", uuids)
	}
}

func openState(t *testing.T) *State {
	t.Helper()
	state, err := OpenState(filepath.Join(t.TempDir(), "nvmet.json"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { state.Close() })
	return state
}

func TestState_IsKeptForItsOwnerAlone(t *testing.T) {
	d, err := ReadDeclaration([]byte(declared))
	if err != nil {
		t.Fatal(err)
	}
	state := openState(t)
	if _, err := state.Ready(d, time.Now()); err != nil {
		t.Fatal(err)
	}
	state.Forget(d)
	if err := state.Save(); err != nil {
		t.Fatal(err)
	}
	state.Close()
	again, err := OpenState(state.path)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(again.Hosts, state.Hosts) || !reflect.DeepEqual(again.Keys, state.Keys) {
		t.Errorf("read again it is %+v, want %+v", again, state)
	}
	again.Close()
	if info, err := os.Stat(state.path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode is %v (%v), want 0600", info.Mode(), err)
	}
	if err := os.Chmod(state.path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenState(state.path); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("others may read it: error %v, want one that says what to do", err)
	}
}

func TestState_NewHashDrawsNewKeys(t *testing.T) {
	d, _ := ReadDeclaration([]byte(declared))
	state := openState(t)
	state.Ready(d, time.Now())
	const host = "nqn.2026-01.com.example:trading1"
	before := *state.Keys[host]
	if drawn, _ := state.Ready(d, time.Now()); len(drawn) > 0 {
		t.Errorf("keys are drawn again for %v", drawn)
	}
	for i := range d.Hosts {
		d.Hosts[i].Hash = "sha512"
	}
	if drawn, _ := state.Ready(d, time.Now()); !slices.Equal(drawn, []string{host}) ||
		state.Keys[host].Host == before.Host {
		t.Errorf("with another hash keys are drawn for %v", drawn)
	}
}

func TestState_RotatesOneKeyOrBoth(t *testing.T) {
	state := openState(t)
	for _, one := range []struct {
		part         string
		isHost, isTo bool // which is to change
	}{{PartBoth, true, true}, {PartHost, true, false}, {PartTarget, false, true}, {PartBoth, true, true}} {
		before := HostKeys{}
		if there := state.Keys["h"]; there != nil {
			before = *there
		}
		if err := state.Rotate("h", "sha256", one.part, time.Now()); err != nil {
			t.Fatal(err)
		}
		after := state.Keys["h"]
		if (after.Host != before.Host) != one.isHost || (after.Ctrl != before.Ctrl) != one.isTo {
			t.Errorf("%s: the host's key is new: %v, the target's: %v; want %v, %v", one.part,
				after.Host != before.Host, after.Ctrl != before.Ctrl, one.isHost, one.isTo)
		}
	}
}
