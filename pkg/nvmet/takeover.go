package nvmet

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// What a subsystem's takeover may be.
const (
	takeoverNone  = "none"
	takeoverEvict = "evict"
)

// TakeoverInterval is how often a Keeper looks whether somebody wants a writer out, where a subsystem has takeover:
// evict.
const TakeoverInterval = time.Second

// takeoverPause is what a subsystem gets after an expulsion that failed: each try ends the connections of all of its
// hosts.
const takeoverPause = 30 * time.Second

// want is a host that is to go.
type want struct{ subsystem, host, ring string }

// wants finds the writers that somebody wants out, of subsystems that are declared so: whoever takes a ring over raises
// its fence, and the ring does not say that its writer is gone. A ring that has all of a namespace with reservations
// needs none of this: there the device does it.
func wants(there *Config, declared *Declaration, rings Rings) (found []want, err error) {
	for _, one := range declared.Subsystems {
		at := slices.IndexFunc(there.Subsystems, func(s Subsystem) bool { return s.NQN == one.NQN })
		if one.Takeover != takeoverEvict || at < 0 {
			continue
		}
		if otherErr := admitsNoOther(one, there.Subsystems[at]); otherErr != nil {
			err = errors.Join(err, otherErr)
			continue
		}
		for _, namespace := range there.Subsystems[at].Namespaces {
			if namespace.Enable != 1 {
				continue
			}
			isReserved := namespace.Resv["enable"] == "1"
			formers, readErr := rings.Formers(namespace.Device["path"])
			err = errors.Join(err, readErr)
			for _, former := range formers {
				if former.IsOut || !former.IsFenced || isReserved && !former.IsShared {
					continue
				}
				host, hostErr := hostOf(one, former, rings)
				if err = errors.Join(err, hostErr); hostErr == nil {
					found = append(found, want{one.NQN, host, former.Ring})
				}
			}
		}
	}
	return found, err
}

// admitsNoOther: an eviction ends the connections of all, and lets in again whom the kernel admits: where that is more
// than is declared, a host that nobody can name may be among them.
func admitsNoOther(declared DeclaredSubsystem, there Subsystem) error {
	for _, nqn := range there.AllowedHosts {
		if !slices.Contains(declared.Hosts, nqn) {
			return fmt.Errorf("subsystem %s: the kernel admits host %s, which is not declared: nobody is evicted "+
				"before that is repaired", declared.NQN, nqn)
		}
	}
	return nil
}

// hostOf is the name behind a number. One that is declared no more may have been let in before: it may still have a
// connection, which the eviction ends.
func hostOf(subsystem DeclaredSubsystem, former Former, rings Rings) (string, error) {
	if former.HostNQN != "" {
		return former.HostNQN, nil
	}
	for _, nqn := range subsystem.Hosts {
		if rings.Number(nqn) == former.Host {
			return nqn, nil
		}
	}
	return "", fmt.Errorf("ring %s: its last writer (epoch %d) is wanted out, and its host is none of subsystem %s",
		former.Ring, former.Epoch, subsystem.NQN)
}

// KeepRings lets the keeper take hosts out of which somebody has taken a ring over.
func (k *Keeper) KeepRings(rings Rings) { k.rings = rings }

func (k *Keeper) hasTakeover() bool {
	return k.rings != nil && k.declared != nil && slices.ContainsFunc(k.declared.Subsystems,
		func(one DeclaredSubsystem) bool { return one.Takeover == takeoverEvict })
}

// takeOver evicts the hosts that somebody wants out.
func (k *Keeper) takeOver() {
	evicted, err := k.evictWanted()
	for _, one := range evicted {
		k.logger.Warn("nvmet host is evicted: a ring was taken over from it", "subsystem", one.subsystem, "host",
			one.host, "ring", one.ring)
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != k.takeoverError && text != "" {
		k.logger.Error("nvmet takeover", "error", err)
	}
	k.takeoverError = text
}

func (k *Keeper) evictWanted() (evicted []want, err error) {
	kernel, err := Open(k.root)
	if err != nil {
		return nil, err
	}
	state, err := OpenState(k.state)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, state.Close()) }()
	there, err := kernel.Read()
	if err != nil {
		return nil, err
	}
	wanted, err := wants(there, k.declared, k.rings)
	for _, one := range wanted {
		if time.Now().Before(k.takeoverAfter[one.subsystem]) {
			continue
		}
		if slices.ContainsFunc(evicted, func(e want) bool {
			return e.subsystem == one.subsystem &&
				e.host == one.host
		}) {
			continue // with another of its rings
		}
		_, evictErr := Evict(kernel, state, one.subsystem, one.host, k.rings)
		if err = errors.Join(err, evictErr); evictErr != nil {
			k.takeoverAfter[one.subsystem] = time.Now().Add(takeoverPause)
			continue
		}
		evicted = append(evicted, one)
	}
	return evicted, err
}
