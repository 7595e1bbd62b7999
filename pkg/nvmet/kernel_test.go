package nvmet

import (
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// onKernel gives the kernel's own target, empty, where FARLOG_TEST_NVMET names two block devices whose contents may go:
// in a guest of the testbed (nvmet-config). What is there on a machine is not for a test to remove.
func onKernel(t *testing.T) (*Kernel, []string) {
	t.Helper()
	devices := filepath.SplitList(os.Getenv("FARLOG_TEST_NVMET"))
	if len(devices) != 2 {
		t.Skip("FARLOG_TEST_NVMET is not set: expected two block devices, DEVICE:DEVICE, on a machine whose NVMe " +
			"target may be emptied")
	}
	kernel, err := Open(Root)
	if err != nil {
		t.Fatal(err)
	}
	clear := func() { bring(t, kernel, &Config{}) }
	clear()
	t.Cleanup(clear)
	return kernel, devices
}

// fataler is of testing and of rapid.
type fataler interface {
	Helper()
	Fatalf(string, ...any)
}

// bring takes all steps to a state, and proves that none is left.
func bring(t fataler, kernel *Kernel, to *Config) *Config {
	t.Helper()
	there := read(t, kernel)
	steps := Plan(there, to)
	if _, err := kernel.Apply(steps); err != nil {
		t.Fatalf("%v\nof %q", err, texts(steps))
	}
	there = read(t, kernel)
	if left := Plan(there, to); len(left) > 0 {
		t.Fatalf("it should be so already, but there is to do: %q", texts(left))
	}
	return there
}

func read(t fataler, kernel *Kernel) *Config {
	t.Helper()
	there, err := kernel.Read()
	if err != nil {
		t.Fatalf("%v", err)
	}
	for i := range there.Ports {
		there.Ports[i].Param = nil // a transport puts its own choice there, and leaves it
	}
	return there
}

// From any state of the kernel to any other, broken off anywhere and begun again: it is what it would be from nothing.
func TestKernel_FromAnyStateToAnyOther(t *testing.T) {
	kernel, devices := onKernel(t)
	w := world{
		paths: devices, uuids: []string{uuidOf("a", 1), uuidOf("a", 2)},
		addresses: []string{"127.0.0.1", "127.0.0.2"}, transports: []string{"tcp", "loop"}, keys: []string{""},
	}
	for range 2 {
		key, err := NewKey("sha256")
		if err != nil {
			t.Fatal(err)
		}
		w.keys = append(w.keys, key.Reveal())
	}
	rapid.Check(t, func(t *rapid.T) {
		before, after := w.drawConfig(t, "before "), w.drawConfig(t, "after ")
		bring(t, kernel, before)
		steps := Plan(read(t, kernel), after)
		if _, err := kernel.Apply(steps[:rapid.IntRange(0, len(steps)).Draw(t, "cut")]); err != nil {
			t.Fatalf("%v\nof %q", err, texts(steps))
		}
		got := bring(t, kernel, after)
		bring(t, kernel, &Config{})
		if want := bring(t, kernel, after); !reflect.DeepEqual(got, want) {
			t.Fatalf("it is %+v\nwant  %+v", got.WithoutKeys(), want.WithoutKeys())
		}
	})
}

// What was saved is there again after the target was emptied, attribute by attribute, and saved again it is the same.
func TestKernel_SavedIsRestored(t *testing.T) {
	kernel, devices := onKernel(t)
	declared, err := ReadDeclaration([]byte("subsystems:\n- nqn: nqn.2026-01.com.example:a\n  hosts: " +
		"[nqn.2026-01.com.example:h]\n  namespaces: [{nsid: 1, device: " + devices[0] + "}, {nsid: 2, device: " +
		devices[1] + ", reservations: \"off\"}]\nports: [{id: 7, transport: tcp, address: 127.0.0.1}, {id: 8, " +
		"transport: loop}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	state := openState(t)
	if change, err := Apply(kernel, state, declared, false, time.Now()); err != nil || len(change.Steps) == 0 {
		t.Fatalf("%d steps: %v", len(change.Steps), err)
	}
	if change, err := Apply(kernel, state, declared, false, time.Now()); err != nil || len(change.Steps) != 0 {
		t.Fatalf("again: %q: %v", texts(change.Steps), err)
	}
	for _, name := range []string{"dhchap_key", "dhchap_ctrl_key"} {
		if info, err := os.Stat(kernel.path("hosts/nqn.2026-01.com.example:h/" + name)); err != nil ||
			info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v (%v), want 0600", name, info.Mode(), err)
		}
	}
	saved := save(t, kernel)
	bring(t, kernel, &Config{})
	config, err := ReadSaved(saved)
	if err != nil {
		t.Fatal(err)
	}
	if change, err := Restore(kernel, config, false); err != nil || len(change.Notes) > 0 {
		t.Fatalf("restore: notes %q: %v", change.Notes, err)
	}
	if again := save(t, kernel); string(again) != string(saved) {
		t.Errorf("it was %s\nis  %s", saved, again)
	}
	if change, err := Apply(kernel, state, declared, false, time.Now()); err != nil || len(change.Steps) != 0 {
		t.Fatalf("declared and restored are not the same: %q: %v", texts(change.Steps), err)
	}
	if _, err := Remove(kernel, state, false); err != nil {
		t.Fatal(err)
	}
	if left := read(t, kernel); len(left.Hosts)+len(left.Ports)+len(left.Subsystems) > 0 {
		t.Errorf("left is %+v", left.WithoutKeys())
	}
}

func save(t *testing.T, kernel *Kernel) []byte {
	t.Helper()
	there, err := kernel.Read()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := there.Saved()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// The kernel's answer comes with the object, the attribute, and a remedy.
func TestKernel_RefusalsAreExplained(t *testing.T) {
	kernel, _ := onKernel(t)
	namespace := func(device string) *Config {
		return &Config{Subsystems: []Subsystem{{
			NQN:        "sub",
			Namespaces: []Namespace{{NSID: 1, Enable: 1, Device: Attrs{"path": device}}},
		}}}
	}
	port := func(addr Attrs) *Config {
		return &Config{
			Subsystems: []Subsystem{{NQN: "sub"}},
			Ports:      []Port{{PortID: 1, Addr: addr, Subsystems: []string{"sub"}}},
		}
	}
	for what, one := range map[string]struct {
		to   *Config
		want string
	}{
		"no device": {
			namespace("/dev/nonexistent"),
			`subsystem sub namespace 1: write enable "1": no such file or directory: device_path names nothing`,
		},
		"a directory": {namespace("/dev"), `subsystem sub namespace 1: write enable "1": `},
		"no address": {
			port(Attrs{"trtype": "tcp", "adrfam": "ipv4", "traddr": "192.0.2.1", "trsvcid": "4420"}),
			"port 1: open it for subsystem sub: cannot assign requested address: no interface of this host",
		},
		"no transport": {
			port(Attrs{"adrfam": "ipv4"}),
			"port 1: open it for subsystem sub: invalid argument: the transport's module is missing",
		},
		"a wrong word": {port(Attrs{"trtype": "smoke"}), `port 1: write addr_trtype "smoke": invalid argument`},
		"a wrong key": {
			&Config{Hosts: []Host{{NQN: "h", DHCHAP: Attrs{"key": "secret"}}}},
			"host h: write dhchap_key: invalid argument: expected a form",
		},
		"no attribute": {
			&Config{Hosts: []Host{{NQN: "h", DHCHAP: Attrs{"other": "1"}}}},
			`host h: write dhchap_other "1": no such file or directory: this kernel's NVMe target has no DH-HMAC-CHAP`,
		},
	} {
		bring(t, kernel, &Config{})
		_, err := kernel.Apply(Plan(read(t, kernel), one.to))
		if err == nil || len(err.Error()) < len(one.want) || err.Error()[:len(one.want)] != one.want {
			t.Errorf("%s: error %v, want one that begins with %s", what, err, one.want)
		}
	}
}

// On the kernel itself, what the fabric declares is exported, stays as it is, is repaired, and goes.
func TestKernel_FabricIsMadeSo(t *testing.T) {
	kernel, devices := onKernel(t)
	bring(t, kernel, &Config{Ports: []Port{{PortID: 1, Addr: Attrs{"trtype": "loop"}}}})
	k := NewFabricKeeper("/a", filepath.Join(t.TempDir(), "nvmet.json"), Root, usable{devices[1]: "it is in use"},
		slog.New(slog.DiscardHandler))
	namespaces := []FabricNamespace{
		{Name: "a", Device: devices[0], NQN: "nqn.2026-01.com.example:a", Hosts: []DeclaredHost{{NQN: trading1}}},
		{Name: "b", Device: devices[1], NQN: "nqn.2026-01.com.example:b"},
	}
	k.Declare(namespaces, []FabricPort{{Transport: "tcp", Address: "127.0.0.1"}, {"tcp", "127.0.0.1", 4421}})
	polled := func(what string, steps uint64) {
		t.Helper()
		before := k.Sample().Steps
		k.poll()
		seen := k.Namespaces()
		if !seen[0].IsExported || seen[0].SizeBytes == 0 || seen[1].IsExported || seen[1].Error != "it is in use" {
			t.Fatalf("%s: %+v, want the first exported, the second refused", what, seen)
		}
		if done := k.Sample().Steps - before; (done > 0) != (steps > 0) || steps > 1 && done != steps {
			t.Errorf("%s: %d steps, want %d", what, done, steps)
		}
	}
	polled("made", 1)
	polled("again", 0)
	path := kernel.path(namespacePath("nqn.2026-01.com.example:a", 1) + "/enable")
	if err := os.WriteFile(path, []byte("0"), 0); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(kernel.path("ports/2/subsystems/nqn.2026-01.com.example:a")); err != nil {
		t.Fatal(err)
	}
	polled("drift", 2)
	k.Declare(nil, nil)
	k.poll()
	if left := read(t, kernel); len(left.Subsystems)+len(left.Hosts) > 0 || len(left.Ports) != 1 {
		t.Errorf("left is %+v, want the port of others", left.WithoutKeys())
	}
}
