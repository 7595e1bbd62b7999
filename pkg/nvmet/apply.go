package nvmet

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Change is what an Apply has found and done.
type Change struct {
	Steps   []Step   // what differed, in the order in which it is done
	Drawn   []string // hosts for which keys were drawn
	Foreign []string // what is there and was never declared: it stays
	Notes   []string
}

// Apply brings the kernel to what is declared. With isDryRun it only says what it would do; keys that it would draw are
// then not kept. What was done before an error is in the change; the same again goes on from there.
func Apply(kernel *Kernel, state *State, declared *Declaration, isDryRun bool, now time.Time) (Change, error) {
	var change Change
	if err := state.claim(declared.owner); err != nil {
		return change, err
	}
	there, err := kernel.Read()
	if err != nil {
		return change, err
	}
	if change.Drawn, err = state.Ready(declared, now); err != nil {
		return change, err
	}
	wanted, foreign := state.Wanted(declared, there)
	change.Foreign, change.Notes = foreign, append(missing(declared, there), state.notesOfEvicted(declared)...)
	steps := Plan(there, wanted)
	if isDryRun {
		change.Steps = steps
		return change, nil
	}
	// Keys and names first: what the kernel has of us is always known after a crash.
	before := *state
	state.Remember(declared)
	if len(change.Drawn) > 0 || !slices.Equal(before.Subsystems, state.Subsystems) ||
		!slices.Equal(before.Ports, state.Ports) || !slices.Equal(before.Hosts, state.Hosts) {
		if err := state.Save(); err != nil {
			return change, err
		}
	}
	result, err := kernel.Apply(steps)
	change.Steps, change.Notes = result.Done, append(change.Notes, result.Notes...)
	if err != nil {
		return change, err
	}
	after := *state
	state.Forget(declared)
	if !slices.Equal(after.Subsystems, state.Subsystems) || !slices.Equal(after.Ports, state.Ports) ||
		!slices.Equal(after.Hosts, state.Hosts) {
		return change, state.Save()
	}
	return change, nil
}

// missing tells of namespaces that are there on a kernel without reservations: Do tells it only of those that it makes.
func missing(declared *Declaration, there *Config) (notes []string) {
	for _, subsystem := range there.Subsystems {
		at := slices.IndexFunc(declared.Subsystems, func(s DeclaredSubsystem) bool { return s.NQN == subsystem.NQN })
		if at < 0 {
			continue
		}
		for _, one := range subsystem.Namespaces {
			isWanted := slices.ContainsFunc(declared.Subsystems[at].Namespaces, func(n DeclaredNamespace) bool {
				return n.NSID == one.NSID && n.Reservations == reservationsAuto
			})
			if isWanted && one.Resv == nil {
				path := namespacePath(subsystem.NQN, one.NSID)
				notes = append(notes, objectOf(path)+": "+lacking(Step{Path: path + "/resv_enable"}))
			}
		}
	}
	return notes
}

// Remove takes away all that was declared, and the keys.
func Remove(kernel *Kernel, state *State, isDryRun bool) (Change, error) {
	return Apply(kernel, state, &Declaration{owner: state.Owner}, isDryRun, time.Time{})
}

// Rotate draws new keys for hosts that were declared, keeps them, and gives them to the kernel. Connections that are
// there stay: a host that connects again has to show the new key.
func Rotate(kernel *Kernel, state *State, hosts []string, part string, now time.Time) (Change, error) {
	there, err := kernel.Read()
	if err != nil {
		return Change{}, err
	}
	wanted := &Config{Ports: there.Ports, Subsystems: there.Subsystems, Hosts: slices.Clone(there.Hosts)}
	for _, nqn := range hosts {
		at := slices.IndexFunc(there.Hosts, func(h Host) bool { return h.NQN == nqn })
		keys := state.Keys[nqn]
		switch {
		case keys == nil:
			return Change{}, fmt.Errorf("host %s: it has no key that farlog has drawn: expected one of %s", nqn,
				orNone(state.Hosts))
		case at < 0:
			return Change{}, fmt.Errorf("host %s: the kernel does not have it: farlog target nvmet apply first", nqn)
		}
		if err := state.Rotate(nqn, keys.Hash, part, now); err != nil {
			return Change{}, err
		}
		attrs := Attrs{"key": state.Keys[nqn].Host.Reveal()}
		if there.Hosts[at].DHCHAP["ctrl_key"] != "" {
			attrs["ctrl_key"] = state.Keys[nqn].Ctrl.Reveal()
		}
		wanted.Hosts[at] = Host{NQN: nqn, DHCHAP: attrs}
	}
	if err := state.Save(); err != nil { // before the kernel has them: what it has is always known
		return Change{}, err
	}
	result, err := kernel.Apply(Plan(there, wanted))
	return Change{Steps: result.Done, Drawn: hosts}, err
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "those of a file that is applied; none is yet"
	}
	return strings.Join(names, ", ")
}

// HostFile is what a host needs to prove itself: JSON, for its super-user alone. The names are those of nvme-cli's and
// of the kernel.
func (s *State) HostFile(nqn string, isMutual bool) ([]byte, error) {
	keys := s.Keys[nqn]
	if keys == nil {
		return nil, fmt.Errorf("host %s: it has no key that farlog has drawn: expected one of %s", nqn, orNone(s.Hosts))
	}
	file := map[string]string{"hostnqn": nqn, "dhchap_key": keys.Host.Reveal()}
	if isMutual {
		file["dhchap_ctrl_key"] = keys.Ctrl.Reveal()
	}
	raw, err := json.MarshalIndent(file, "", "  ")
	return append(raw, '\n'), err
}

// Restore brings the kernel to what nvmetcli or Save has saved, all of it: what the file does not have is removed.
func Restore(kernel *Kernel, saved *Config, isDryRun bool) (Change, error) {
	there, err := kernel.Read()
	if err != nil {
		return Change{}, err
	}
	steps := Plan(there, saved)
	for i := range steps {
		// A saved attribute that this kernel does not know is left out, as nvmetcli leaves it out; what keeps others
		// away is not.
		steps[i].isOptional = steps[i].Op == Write && !isGuard(steps[i])
	}
	if isDryRun {
		return Change{Steps: steps}, nil
	}
	result, err := kernel.Apply(steps)
	return Change{Steps: result.Done, Notes: result.Notes}, err
}

func isIPv6(address string) bool {
	parsed, err := netip.ParseAddr(address)
	return err == nil && parsed.Is6()
}
