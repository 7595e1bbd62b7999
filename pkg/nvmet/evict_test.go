package nvmet

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// fakeRings are rings of devices, each with its last writer; out is called where one is said to be out.
type fakeRings struct {
	formers map[string][]Former
	out     func(Former) error
}

func (f fakeRings) Number(nqn string) uint64                { return uint64(len(nqn)) }
func (f fakeRings) Formers(device string) ([]Former, error) { return f.formers[device], nil }
func (f fakeRings) Out(former Former) error                 { return f.out(former) }
func evictDeclaration(device, hostA, hostB, takeover string) string {
	return "subsystems:\n- nqn: nqn.2026-01.com.example:desk\n  hosts: [" + hostA + ", " + hostB + "]\n  takeover: " +
		takeover + "\n  namespaces: [{nsid: 1, device: " + device +
		", reservations: 'off'}]\nports: [{id: 1, transport: loop}]\n"
}

const (
	evictSubsystem = "nqn.2026-01.com.example:desk"
	evictHostA     = "nqn.2026-01.com.example:a"
	evictHostB     = "nqn.2026-01.com.example:host-b"
)

func mustDeclare(t *testing.T, text string) *Declaration {
	t.Helper()
	declared, err := ReadDeclaration([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return declared
}

// On the kernel: while the ring is told, the subsystem with all that hangs on it is not there; then the host is not
// allowed, whatever is declared, until it is readmitted.
func TestKernel_EvictedStaysOut(t *testing.T) {
	kernel, devices := onKernel(t)
	state, err := OpenState(filepath.Join(t.TempDir(), "state.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	declared := mustDeclare(t, evictDeclaration(devices[0], evictHostA, evictHostB, "none"))
	if _, err := Apply(kernel, state, declared, false, time.Now()); err != nil {
		t.Fatal(err)
	}
	before := read(t, kernel)
	var told []string
	rings := fakeRings{formers: map[string][]Former{devices[0]: {
		{Ring: "a", Host: uint64(len(evictHostA)), Epoch: 7},
		{Ring: "b", Host: uint64(len(evictHostB)), Epoch: 8},
		{Ring: "closed", Host: uint64(len(evictHostA)), Epoch: 9, IsOut: true},
	}}}
	rings.out = func(former Former) error {
		told = append(told, former.Ring)
		if now := read(t, kernel); len(now.Subsystems) != 0 {
			t.Errorf("while ring %s is told there is subsystem %s", former.Ring, now.Subsystems[0].NQN)
		}
		return nil
	}
	done, err := Evict(kernel, state, evictSubsystem, evictHostA, rings)
	if err != nil || !slices.Equal(told, []string{"a"}) || !slices.Equal(done.Rings, told) {
		t.Fatalf("evicted with error %v, rings told: %q, want a", err, told)
	}
	after := read(t, kernel)
	if hosts := after.Subsystems[0].AllowedHosts; !slices.Equal(hosts, []string{evictHostB}) {
		t.Errorf("allowed are %q, want b alone", hosts)
	}
	after.Subsystems[0].AllowedHosts = before.Subsystems[0].AllowedHosts
	if left := Plan(after, before); len(left) > 0 {
		t.Errorf("but for the host it is not what it was: %q", texts(left))
	}
	change, err := Apply(kernel, state, declared, false, time.Now())
	if err != nil || len(change.Steps) > 0 || !strings.Contains(strings.Join(change.Notes, "\n"),
		"readmit "+evictHostA) {
		t.Errorf("applied again: error %v, steps %q, notes %q; want no step and a word of the host", err,
			texts(change.Steps), change.Notes)
	}
	if err := Readmit(state, evictSubsystem, evictHostA); err != nil {
		t.Fatal(err)
	}
	if change, err = Apply(kernel, state, declared, false, time.Now()); err != nil || len(change.Steps) != 1 {
		t.Errorf("readmitted and applied: error %v, steps %q, want one", err, texts(change.Steps))
	}
}

// On the kernel: somebody else has taken the host from the list, and its controllers stay. It is taken out all the same
// while a ring has it as its last writer.
func TestKernel_EvictsWhoIsAllowedNoMore(t *testing.T) {
	kernel, devices := onKernel(t)
	state, err := OpenState(filepath.Join(t.TempDir(), "state.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	if _, err := Apply(kernel, state, mustDeclare(t, evictDeclaration(devices[0], evictHostA, evictHostB, "none")),
		false, time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(kernel.root, "subsystems", evictSubsystem, "allowed_hosts",
		evictHostA)); err != nil {
		t.Fatal(err)
	}
	var told []string
	rings := fakeRings{formers: map[string][]Former{devices[0]: {{Ring: "a", Host: uint64(len(evictHostA)), Epoch: 7}}}}
	rings.out = func(former Former) error {
		told = append(told, former.Ring)
		if now := read(t, kernel); len(now.Subsystems) != 0 {
			t.Errorf("while ring %s is told there is subsystem %s", former.Ring, now.Subsystems[0].NQN)
		}
		return nil
	}
	if _, err := Evict(kernel, state, evictSubsystem, evictHostA, rings); err != nil ||
		!slices.Equal(told, []string{"a"}) {
		t.Fatalf("evicted with error %v, rings told: %q, want a", err, told)
	}
	if now := read(t, kernel); !slices.Equal(now.Subsystems[0].AllowedHosts, []string{evictHostB}) ||
		!slices.Equal(state.Evicted[evictSubsystem], []string{evictHostA}) {
		t.Errorf("allowed are %q, evicted %q; want b alone, and a", now.Subsystems[0].AllowedHosts,
			state.Evicted[evictSubsystem])
	}
}

// Who is not allowed and was the last writer of no ring that still waits for it is refused: a name that was mistyped
// ends the connections of all others otherwise.
func TestEvict_WhoMayHaveReachedIt(t *testing.T) {
	state := &State{Evicted: map[string][]string{evictSubsystem: {"nqn.2026-01.com.example:evicted"}}}
	subsystem := Subsystem{
		NQN: evictSubsystem, AllowedHosts: []string{evictHostB},
		Namespaces: []Namespace{{NSID: 1, Device: Attrs{"path": "/dev/x"}}, {NSID: 2, Device: Attrs{"path": "/dev/y"}}},
	}
	a := uint64(len(evictHostA))
	for _, one := range []struct {
		host      string
		formers   map[string][]Former
		isReached bool
	}{
		{evictHostB, nil, true},
		{"nqn.2026-01.com.example:evicted", nil, true},
		{evictHostA, nil, false},
		{evictHostA, map[string][]Former{"/dev/y": {{Ring: "b", Host: a + 100}, {Ring: "a", Host: a}}}, true},
		{evictHostA, map[string][]Former{"/dev/y": {{Ring: "a", Host: a, IsOut: true}}}, false},
	} {
		err := subsystem.checkReached(state, one.host, fakeRings{formers: one.formers})
		if (err == nil) != one.isReached {
			t.Errorf("host %s, last writers %v: error %v", one.host, one.formers, err)
		}
		if err != nil && !strings.Contains(err.Error(), "expected one of "+evictHostB) {
			t.Errorf("error %v, want who is allowed", err)
		}
	}
}

// Who was evicted is out after a boot, too.
func TestState_EvictedIsNotWanted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	state, err := OpenState(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := state.evict(evictSubsystem, evictHostA); err != nil {
		t.Fatal(err)
	}
	state.Close()
	if state, err = OpenState(path); err != nil { // as after a boot
		t.Fatal(err)
	}
	defer state.Close()
	declared := mustDeclare(t, evictDeclaration("/dev/x", evictHostA, evictHostB, "none"))
	if wanted, _ := state.Wanted(declared, &Config{}); !slices.Equal(wanted.Subsystems[0].AllowedHosts,
		[]string{evictHostB}) {
		t.Errorf("wanted are hosts %q, want b alone", wanted.Subsystems[0].AllowedHosts)
	}
	if !slices.Equal(declared.Subsystems[0].Hosts, []string{evictHostA, evictHostB}) {
		t.Errorf("the declaration itself was changed: %q", declared.Subsystems[0].Hosts)
	}
	if err := Readmit(state, evictSubsystem, evictHostB); err == nil ||
		!strings.Contains(err.Error(), "expected one of "+evictHostA) {
		t.Errorf("readmit of one that is not out: error %v, want who is", err)
	}
	if err := Readmit(state, evictSubsystem, evictHostA); err != nil || len(state.Evicted) != 0 {
		t.Errorf("readmit: error %v, %v is left", err, state.Evicted)
	}
}

func TestWants_WhoIsToGo(t *testing.T) {
	there := &Config{Subsystems: []Subsystem{{
		NQN:        evictSubsystem,
		Namespaces: []Namespace{{NSID: 1, Enable: 1, Device: Attrs{"path": "/dev/x"}}},
	}}}
	a, b := uint64(len(evictHostA)), uint64(len(evictHostB))
	rings := fakeRings{formers: map[string][]Former{"/dev/x": {
		{Ring: "living", Host: a, Epoch: 1},
		{Ring: "closed", Host: a, Epoch: 1, IsOut: true, IsFenced: true},
		{Ring: "wanted", Host: b, Epoch: 3, IsFenced: true},
	}}}
	for _, one := range []struct {
		takeover string
		resv     Attrs
		want     int
	}{{"evict", nil, 1}, {"evict", Attrs{"enable": "0"}, 1}, {"evict", Attrs{"enable": "1"}, 0}, {"none", nil, 0}} {
		there.Subsystems[0].Namespaces[0].Resv = one.resv
		found, err := wants(there, mustDeclare(t, evictDeclaration("/dev/x", evictHostA, evictHostB, one.takeover)),
			rings)
		if err != nil || len(found) != one.want || (one.want == 1 &&
			(found[0].host != evictHostB || found[0].ring != "wanted")) {
			t.Errorf("takeover %s, reservations %v: %v, error %v; want %d", one.takeover, one.resv, found, err,
				one.want)
		}
	}
	rings.formers["/dev/x"][2].IsShared = true // a reservation fences none of many rings
	there.Subsystems[0].Namespaces[0].Resv = Attrs{"enable": "1"}
	if found, err := wants(there, mustDeclare(t, evictDeclaration("/dev/x", evictHostA, evictHostB, "evict")),
		rings); err != nil || len(found) != 1 || found[0].ring != "wanted" {
		t.Errorf("a ring that shares its namespace, with reservations: %v, error %v; want it", found, err)
	}
	there.Subsystems[0].Namespaces[0].Resv = nil
	rings.formers["/dev/x"][2].Host = 999
	if _, err := wants(there, mustDeclare(t, evictDeclaration("/dev/x", evictHostA, evictHostB, "evict")),
		rings); err == nil || !strings.Contains(err.Error(), "is none of subsystem") {
		t.Errorf("a host that is not declared: error %v", err)
	}
	rings.formers["/dev/x"][2].HostNQN = "nqn.2026-01.com.example:gone" // it was granted the ring, so its name is known
	if found, err := wants(there, mustDeclare(t, evictDeclaration("/dev/x", evictHostA, evictHostB, "evict")),
		rings); err != nil || len(found) != 1 || found[0].host != "nqn.2026-01.com.example:gone" {
		t.Errorf("a host that is declared no more: %v, error %v; want it", found, err)
	}
	there.Subsystems[0].AllowedHosts = append(there.Subsystems[0].AllowedHosts, "nqn.2026-01.com.example:gone")
	if found, err := wants(there, mustDeclare(t, evictDeclaration("/dev/x", evictHostA, evictHostB, "evict")),
		rings); err == nil || len(found) != 0 ||
		!strings.Contains(err.Error(), "admits host nqn.2026-01.com.example:gone") {
		t.Errorf("a host that is declared no more and still admitted: %v, error %v; want nobody, and its name", found,
			err)
	}
	if _, err := ReadDeclaration([]byte(evictDeclaration("/dev/x", evictHostA, evictHostB, "maybe"))); err == nil ||
		!strings.Contains(err.Error(), `subsystems[0].takeover "maybe": expected one of none, evict`) {
		t.Errorf("takeover: maybe: error %v", err)
	}
}

// A device that is in two subsystems, whatever it is called there: a host that goes from one of them may still write by
// the other.
func TestEvict_DeviceOfAnotherSubsystem(t *testing.T) {
	root := t.TempDir()
	kernel, device, link := &Kernel{root}, filepath.Join(root, "device"), filepath.Join(root, "link")
	if err := errors.Join(os.WriteFile(device, []byte("ring"), 0o600), os.Symlink(device, link)); err != nil {
		t.Fatal(err)
	}
	makeSubsystem(t, root, evictSubsystem, device, "0", evictHostA)
	makeSubsystem(t, root, evictSubsystem+"2", link, "0")
	state, err := OpenState(filepath.Join(root, "state.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	rings := fakeRings{out: func(Former) error { t.Error("a ring was told"); return nil }}
	if _, err := Evict(kernel, state, evictSubsystem, evictHostA, rings); err == nil ||
		!strings.Contains(err.Error(), "is namespace 1 of subsystem "+evictSubsystem+"2 as well") {
		t.Errorf("error %v, want that the device is in another subsystem", err)
	}
	if now := read(t, kernel); len(state.Evicted) != 0 || len(now.Subsystems) != 2 {
		t.Errorf("evicted are %v, of %d subsystems; want that nothing has changed", state.Evicted,
			len(now.Subsystems))
	}
}

// makeSubsystem lays one with one namespace out in a directory, as the kernel shows it.
func makeSubsystem(t *testing.T, root, nqn, device, isAnyAllowed string, hosts ...string) {
	t.Helper()
	subsystem := filepath.Join(root, "subsystems", nqn)
	namespace := filepath.Join(subsystem, "namespaces", "1")
	err := errors.Join(os.MkdirAll(namespace, 0o700), os.WriteFile(filepath.Join(namespace, "device_path"),
		[]byte(device), 0o600),
		os.WriteFile(filepath.Join(namespace, "enable"), []byte("1"), 0o600),
		os.WriteFile(filepath.Join(subsystem, "attr_allow_any_host"), []byte(isAnyAllowed), 0o600))
	for _, host := range hosts {
		allowed := filepath.Join(subsystem, "allowed_hosts")
		err = errors.Join(err, os.MkdirAll(allowed, 0o700),
			os.Symlink(filepath.Join(root, "hosts", host), filepath.Join(allowed, host)))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// An expulsion that fails is not tried again at once: each try ends the connections of all hosts of the subsystem.
func TestKeeper_FailedExpulsionHasAPause(t *testing.T) {
	root := t.TempDir()
	makeSubsystem(t, root, evictSubsystem, "/dev/x", "1") // which lets anybody in, by which it fails
	k := &Keeper{
		root: root, state: filepath.Join(root, "state.json"), takeoverAfter: make(map[string]time.Time),
		declared: mustDeclare(t, evictDeclaration("/dev/x", evictHostA, evictHostB, "evict")),
		rings: fakeRings{formers: map[string][]Former{"/dev/x": {{
			Ring: "wanted", Host: uint64(len(evictHostB)),
			Epoch: 3, IsFenced: true,
		}}}},
	}
	if _, err := k.evictWanted(); err == nil || !strings.Contains(err.Error(), "nobody can be kept out of it") {
		t.Fatalf("error %v, want that the subsystem lets anybody in", err)
	}
	if _, err := k.evictWanted(); err != nil {
		t.Errorf("tried again at once: %v", err)
	}
	k.takeoverAfter[evictSubsystem] = time.Now()
	if _, err := k.evictWanted(); err == nil {
		t.Error("not tried again after the pause")
	}
}

// What is not there, or nobody was let into, changes nothing.
func TestEvict_NotThere(t *testing.T) {
	root := t.TempDir()
	kernel := &Kernel{root}
	state, err := OpenState(filepath.Join(root, "state.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	rings := fakeRings{out: func(Former) error { return errors.New("told") }}
	if _, err := Evict(kernel, state, evictSubsystem, evictHostA, rings); err == nil ||
		!strings.Contains(err.Error(), "the kernel does not have it") {
		t.Errorf("error %v, want that there is no such subsystem", err)
	}
	if len(state.Evicted) != 0 {
		t.Errorf("evicted are %v", state.Evicted)
	}
}
