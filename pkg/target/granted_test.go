package target

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/farlog"
)

// restarted is the same target in a new process.
func restarted(t *testing.T, one *Target) *Target {
	t.Helper()
	one.lock.Close()
	again := newTarget(t, one.config.Dir)
	again.restore()
	return again
}

// listOf is a complete list of the control plane, with the namespace that exporting has.
func listOf(hosts []*api.NamespaceHost, device string, rings ...*api.RingSpec) *api.WatchRingsResponse {
	return &api.WatchRingsResponse{
		NamespacesDeclared: true, Rings: rings,
		Namespaces: []*api.Namespace{{
			Name: "desk7", Device: device, Subsystem: exportedNQN, Evict: true, Hosts: hosts,
		}},
	}
}

func bothHosts() []*api.NamespaceHost {
	return []*api.NamespaceHost{{Nqn: tradingNQN, Host: "trading1"}, {Nqn: standbyNQN, Host: "trading2"}}
}

// grantedTo has a ring that trading1 was granted with an epoch, and may be opening. The target knows the ring since
// before its first grant.
func grantedTo(t *testing.T, epoch uint32) (one *Target, device string) {
	t.Helper()
	one, device = exporting(t)
	one.applyWanted(listOf(bothHosts(), device, inNamespace(0)))
	ringAfter(t, one)
	one.applyWanted(listOf(bothHosts(), device, inNamespace(epoch, grantOn(tradingNQN, epoch))))
	if state := ringAfter(t, one); state.EpochAdmitted != epoch {
		t.Fatalf("granted to trading1: %v", state)
	}
	return one, device
}

// ringAfter is the one ring as the target reports it.
func ringAfter(t *testing.T, one *Target) *api.RingState {
	t.Helper()
	one.observe()
	if len(one.Rings()) != 1 {
		t.Fatalf("%d rings, want one", len(one.Rings()))
	}
	return one.Rings()[0].State
}

// evictAll has every host that is to be evicted out, and gives their NQNs.
func evictAll(t *testing.T, one *Target, device string) (evicted []string) {
	t.Helper()
	for _, former := range formersOf(t, one, device) {
		if err := one.ExportedRings().Out(former); err != nil {
			t.Fatal(err)
		}
		evicted = append(evicted, former.HostNQN)
	}
	slices.Sort(evicted)
	return evicted
}

// What a control plane may say that has lost its state, or is a backup of before. In each case trading1 was granted
// epoch 2 and may be opening the ring; trading2 is let in when trading1 is evicted, and not before.
var forgetful = map[string][]func() []*api.RingSpec{
	"an empty list": {func() []*api.RingSpec { return nil }},
	"the stream without its grants": {
		func() []*api.RingSpec { return []*api.RingSpec{inNamespace(0)} },
	},
	"an empty list, then a backup without the grant": {
		func() []*api.RingSpec { return nil },
		func() []*api.RingSpec { return []*api.RingSpec{inNamespace(1, grantOn(standbyNQN, 1))} },
	},
	"another stream of the same name": {
		func() []*api.RingSpec {
			other := inNamespace(0)
			other.Stream.StreamId++
			return []*api.RingSpec{other}
		},
	},
}

func TestNamespaced_ControlPlaneThatForgetsIsNotNobody(t *testing.T) {
	for name, said := range forgetful {
		for _, epoch := range []uint32{2, 3} { // trading2 may be granted the same epoch once more
			for _, isRestarted := range []bool{false, true} {
				if testing.Short() && isRestarted != (epoch == 2) {
					continue
				}
				one, device := grantedTo(t, 2)
				for _, rings := range said {
					message := listOf(bothHosts(), device, rings()...)
					if len(rings()) == 0 {
						message = &api.WatchRingsResponse{}
					}
					one.applyWanted(message)
					one.observe()
					if isRestarted {
						one = restarted(t, one)
					}
				}
				one.applyWanted(listOf(bothHosts(), device, inNamespace(epoch, grantOn(standbyNQN, epoch))))
				state := ringAfter(t, one)
				if state.EpochAdmitted != 0 || state.EpochFenced >= epoch || state.WriterHost != "trading1" {
					t.Errorf(
						"%s, then epoch %d for trading2 (restarted: %v): %v, want nobody let in, because trading1 "+
							"may be opening it",
						name,
						epoch,
						isRestarted,
						state,
					)
				}
				if evicted := evictAll(t, one, device); !slices.Equal(evicted, []string{tradingNQN}) {
					t.Errorf("%s, epoch %d: evicted %q, want trading1", name, epoch, evicted)
				}
				if state := ringAfter(t, one); state.EpochAdmitted != epoch || state.EpochFenced != epoch {
					t.Errorf("%s, epoch %d: evicted: %v, want trading2 let in", name, epoch, state)
				}
			}
		}
	}
}

// A control plane that is a backup of before does not lower a fence: whom an operator has taken the stream from stays
// to be evicted.
func TestNamespaced_FenceNeverGoesDown(t *testing.T) {
	one, device := grantedTo(t, 2)
	one.applyWanted(listOf(bothHosts(), device, inNamespace(3))) // taken over, for nobody
	if state := ringAfter(t, one); state.EpochFenced != 2 || state.EpochMin != 3 {
		t.Fatalf("taken over: %v, want the fence raised", state)
	}
	one.applyWanted(listOf(bothHosts(), device, inNamespace(2)))
	if state := ringAfter(t, one); state.EpochAdmitted != 0 || state.EpochFenced != 2 {
		t.Errorf("a backup of before: %v, want nobody let in", state)
	}
	if evicted := evictAll(t, one, device); !slices.Equal(evicted, []string{tradingNQN}) {
		t.Errorf("evicted %q, want trading1", evicted)
	}
	if state := ringAfter(t, one); state.EpochFenced != 3 || state.EpochAdmitted != 0 {
		t.Errorf("evicted: %v, want the fence confirmed", state)
	}
}

// Where no ledger is left, or it cannot be read, each host that the namespace declares counts, and the unknown ones
// that it declares no more: also where the host that is let in is the only one declared.
func TestNamespaced_UnreadableLedgerIsNotNobody(t *testing.T) {
	standby := []*api.NamespaceHost{{Nqn: standbyNQN, Host: "trading2"}}
	damage := map[string]func(path string) error{
		"removed":    os.Remove,
		"unreadable": func(path string) error { return os.WriteFile(path, []byte(`{"rings`), 0o600) },
		"nameless":   func(path string) error { return os.WriteFile(path, []byte(`{"rings": [{}]}`), 0o600) },
	}
	for name, damaged := range damage {
		for _, hosts := range [][]*api.NamespaceHost{bothHosts(), standby} {
			one, device := grantedTo(t, 2)
			for _, file := range []string{grantedName, wantedName} {
				if err := damaged(filepath.Join(one.config.Dir, file)); err != nil {
					t.Fatal(err)
				}
			}
			one = restarted(t, one)
			taken := func() *api.WatchRingsResponse {
				return listOf(hosts, device, inNamespace(3, grantOn(standbyNQN, 3)))
			}
			one.applyWanted(&api.WatchRingsResponse{Rings: taken().Rings})
			if state := ringAfter(t, one); state.EpochAdmitted != 0 {
				t.Fatalf("%s, without a declaration: %v, want nobody let in", name, state)
			}
			one.applyWanted(&api.WatchRingsResponse{}) // the loss is not forgotten by a list that can be read
			one = restarted(t, one)
			one.applyWanted(taken())
			if state := ringAfter(t, one); state.EpochAdmitted != 0 || !state.WriterHeld {
				t.Fatalf("%s: %v, want nobody let in, because any host may be opening it", name, state)
			}
			want := []string{tradingNQN, unknownNQN}[2-len(hosts):]
			slices.Sort(want)
			if evicted := evictAll(t, one, device); !slices.Equal(evicted, want) {
				t.Errorf("%s: evicted %q, want %q", name, evicted, want)
			}
			if state := ringAfter(t, one); state.EpochAdmitted != 3 || state.EpochFenced != 3 {
				t.Errorf("%s: evicted: %v, want trading2 let in", name, state)
			}
		}
	}
}

// A host that was granted the ring and is declared no more is named, and evicted like any other.
func TestNamespaced_UndeclaredHostIsEvicted(t *testing.T) {
	one, device := grantedTo(t, 1)
	standby := []*api.NamespaceHost{{Nqn: standbyNQN, Host: "trading2"}}
	one.applyWanted(listOf(standby, device, inNamespace(2, grantOn(standbyNQN, 2))))
	state := ringAfter(t, one)
	if state.EpochAdmitted != 0 || !strings.Contains(state.FenceError, "on host "+tradingNQN+" has not closed it, and "+
		"that host is being evicted") {
		t.Errorf("declared no more: %v, want nobody let in, and trading1 named", state)
	}
	if evicted := evictAll(t, one, device); !slices.Equal(evicted, []string{tradingNQN}) {
		t.Errorf("evicted %q, want trading1", evicted)
	}
	if state := ringAfter(t, one); state.EpochAdmitted != 2 {
		t.Errorf("evicted: %v, want trading2 let in", state)
	}
}

// A ring is forgotten when its removal was ordered. That a host is out of it says nothing of the next ring of the name.
func TestNamespaced_NextStreamOfTheNameBeginsAtNothing(t *testing.T) {
	one, device := grantedTo(t, 1)
	bound := ringAfter(t, one).RingUuid
	ending := func(stage api.DeletionStage) *api.RingState {
		spec := inNamespace(4)
		spec.RingUuid, spec.Deletion = bound, stage
		one.applyWanted(listOf(bothHosts(), device, spec))
		return ringAfter(t, one)
	}
	ending(draining)
	evictAll(t, one, device)
	if state := ending(draining); !state.Closed {
		t.Fatalf("evicted: %v, want it closed", state)
	}
	if state := ending(removing); !state.Removed {
		t.Fatalf("%v, want it removed", state)
	}
	one.applyWanted(listOf(bothHosts(), device))
	if len(one.granted) != 0 {
		t.Errorf("removed, and kept: %v", one.granted)
	}
	next := func(epochMin uint32, grants ...*api.RemoteGrant) *api.RingState {
		spec := inNamespace(epochMin, grants...)
		spec.Stream.StreamId, spec.Stream.Salt = spec.Stream.StreamId+1, spec.Stream.Salt+1
		one.applyWanted(listOf(bothHosts(), device, spec))
		return ringAfter(t, one)
	}
	if state := next(0); state.Error != "" || len(state.RingUuid) == 0 || state.WriterHeld {
		t.Fatalf("made again: %v", state)
	}
	if state := next(1, grantOn(tradingNQN, 1)); state.EpochAdmitted != 1 {
		t.Fatalf("granted to trading1: %v", state)
	}
	if state := next(2, grantOn(standbyNQN, 2)); state.EpochAdmitted != 0 || state.WriterHost != "trading1" {
		t.Errorf("taken over: %v, want nobody let in: what trading1 was out of was another ring", state)
	}
}

// Grants that cannot be saved are not confirmed: after a restart nobody would know of them.
func TestNamespaced_UnsavedLedgerConfirmsNobody(t *testing.T) {
	one, device := exporting(t)
	if err := os.Mkdir(filepath.Join(one.config.Dir, grantedName), 0o700); err != nil {
		t.Fatal(err)
	}
	one.applyWanted(listOf(bothHosts(), device, inNamespace(1, grantOn(tradingNQN, 1))))
	if state := ringAfter(t, one); state.EpochAdmitted != 0 || !strings.Contains(state.FenceError, "could not save") {
		t.Errorf("not saved: %v, want nobody let in", state)
	}
	if number := farlog.HostNumber(unknownNQN); number == 0 || number == farlog.HostNumber(tradingNQN) {
		t.Errorf("unknown hosts have number %d", number)
	}
}
