package nvmet

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Former is who wrote a ring of a namespace last.
type Former struct {
	Ring     string // its URI on this host
	Host     uint64 // where it was opened, by Rings.Number
	HostNQN  string // of a host that was granted the ring and has not opened it; "": the ring names the host
	Epoch    uint32
	IsOut    bool // the ring says that it writes no more
	IsFenced bool // somebody wants it out: the ring's fence is above its epoch
	IsShared bool // other rings lie in its namespace as well, so that no reservation fences it
}

// Rings are those in the namespaces of this target.
type Rings interface {
	// Number is that of a host in a ring's header.
	Number(hostNQN string) uint64
	// Formers tells who wrote each ring of a device, or of a file, last.
	Formers(device string) ([]Former, error)
	// Out says in the ring, durably, that its former writer writes no more: from now on a writer of another host is let
	// on.
	Out(former Former) error
}

// Eviction is what an Evict has done.
type Eviction struct {
	Steps []Step
	Rings []string // whose former writer was of that host and had not closed: another host may follow it now
	Notes []string // what could not be done beside it
}

// Evict takes a host out of those that a subsystem allows, so that no command of it reaches the subsystem's namespaces
// any more, makes sure of that, and says so in the rings that it wrote last. It stays out, also after a boot, until
// Readmit.
//
// The kernel tells of no controller which host it is of, and a link that is removed leaves the controllers of that host
// alone. So the whole subsystem is taken away and made again without the host: what the controllers of before name is
// then not there any more. A namespace is gone only when every command in it has ended, the kernel waits for that when
// it is disabled, or when it is removed; a controller that still lives has a subsystem without namespaces, and connects
// to the new one as everybody else does: by name. All other hosts have to connect again.
//
// The same again, also after a crash at any point, does it again.
func Evict(kernel *Kernel, state *State, subsystem, host string, rings Rings) (Eviction, error) {
	var done Eviction
	there, err := kernel.Read()
	if err != nil {
		return done, err
	}
	at := slices.IndexFunc(there.Subsystems, func(one Subsystem) bool { return one.NQN == subsystem })
	if at < 0 {
		return done, fmt.Errorf("subsystem %s: the kernel does not have it: expected one of %s", subsystem,
			subsystemNames(there))
	}
	if there.Subsystems[at].Attr["allow_any_host"] == "1" {
		return done, fmt.Errorf("subsystem %s: attr_allow_any_host is 1: nobody can be kept out of it; expected 0",
			subsystem)
	}
	if err := there.Subsystems[at].checkReached(state, host, rings); err != nil {
		return done, err
	}
	if err := there.checkOneWay(at); err != nil {
		return done, err
	}
	// First of all, so that nobody lets it in again meanwhile.
	if err := state.evict(subsystem, host); err != nil {
		return done, err
	}
	return done, errors.Join(
		done.removeSubsystem(kernel, there, subsystem),
		done.markRings(there.Subsystems[at], host, rings),
		done.makeAgain(kernel, there, subsystem, host),
	)
}

// checkReached refuses a host that cannot have reached the subsystem. One that is allowed no more may have: the kernel
// leaves its controllers alone when somebody else takes it from the list, and a ring still waits for it.
func (s *Subsystem) checkReached(state *State, host string, rings Rings) error {
	if slices.Contains(s.AllowedHosts, host) || slices.Contains(state.Evicted[s.NQN], host) {
		return nil
	}
	number := rings.Number(host)
	var unread error
	for _, namespace := range s.Namespaces {
		formers, err := rings.Formers(namespace.Device["path"])
		unread = errors.Join(unread, err)
		if slices.ContainsFunc(formers, func(former Former) bool { return former.Host == number && !former.IsOut }) {
			return nil
		}
	}
	return errors.Join(fmt.Errorf("host %s: subsystem %s does not allow it, and no ring there has it as its last "+
		"writer: expected one of %s", host, s.NQN, orNobody(s.AllowedHosts)), unread)
}

// checkOneWay refuses where a device of a subsystem can be reached by another one too: a host that goes from the first
// may still write by the second, and what it is told is acknowledged there would be lost when its ring goes on without
// it.
func (c *Config) checkOneWay(at int) error {
	for i, other := range c.Subsystems {
		for _, theirs := range other.Namespaces {
			for _, ours := range c.Subsystems[at].Namespaces {
				if i != at && isSameDevice(ours.Device["path"], theirs.Device["path"]) {
					return fmt.Errorf("subsystem %s: its device %s is namespace %d of subsystem %s as well, by which "+
						"a host could go on writing: expected it in one subsystem alone",
						c.Subsystems[at].NQN, ours.Device["path"], theirs.NSID, other.NQN)
				}
			}
		}
	}
	return nil
}

// isSameDevice sees through links, and through two nodes of one device.
func isSameDevice(a, b string) bool {
	if a == b {
		return true
	}
	var one, other unix.Stat_t
	if unix.Stat(a, &one) != nil || unix.Stat(b, &other) != nil {
		return false
	}
	if one.Mode&unix.S_IFMT == unix.S_IFBLK && other.Mode&unix.S_IFMT == unix.S_IFBLK {
		return one.Rdev == other.Rdev
	}
	return one.Dev == other.Dev && one.Ino == other.Ino
}

// removeSubsystem returns when no command of any host is under way in the subsystem's namespaces.
func (e *Eviction) removeSubsystem(kernel *Kernel, there *Config, subsystem string) error {
	err := e.apply(kernel, disableSteps(there, subsystem))
	now := there
	if err == nil {
		now, err = kernel.Read()
	}
	if err == nil {
		err = e.apply(kernel, Plan(now, now.without(subsystem)))
	}
	if err == nil {
		now, err = kernel.Read()
	}
	if err == nil && slices.ContainsFunc(now.Subsystems, func(one Subsystem) bool { return one.NQN == subsystem }) {
		err = fmt.Errorf("subsystem %s: somebody has made it again meanwhile: what is said of its host is not sure; "+
			"do it again", subsystem)
	}
	if err != nil {
		e.Notes = append(e.Notes, "subsystem "+subsystem+": rings cannot be marked")
	}
	return err
}

// markRings does nothing where the host may still reach them.
func (e *Eviction) markRings(subsystem Subsystem, host string, rings Rings) (err error) {
	if len(e.Notes) > 0 {
		return nil
	}
	number := rings.Number(host)
	for _, namespace := range subsystem.Namespaces {
		formers, readErr := rings.Formers(namespace.Device["path"])
		err = errors.Join(err, readErr)
		for _, former := range formers {
			if former.Host != number || former.IsOut {
				continue
			}
			outErr := rings.Out(former)
			if err = errors.Join(err, outErr); outErr == nil {
				e.Rings = append(e.Rings, former.Ring)
			}
		}
	}
	return err
}

// makeAgain lets the other hosts in.
func (e *Eviction) makeAgain(kernel *Kernel, before *Config, subsystem, host string) error {
	now, err := kernel.Read()
	if err != nil {
		return err
	}
	wanted := *before
	wanted.Subsystems = slices.Clone(before.Subsystems)
	for i, one := range wanted.Subsystems {
		if one.NQN == subsystem {
			wanted.Subsystems[i].AllowedHosts = slices.DeleteFunc(slices.Clone(one.AllowedHosts),
				func(nqn string) bool { return nqn == host })
		}
	}
	if err := e.apply(kernel, Plan(now, &wanted)); err != nil {
		return err
	}
	now, err = kernel.Read()
	for _, one := range now.Subsystems {
		if err == nil && one.NQN == subsystem && slices.Contains(one.AllowedHosts, host) {
			err = fmt.Errorf("subsystem %s: somebody has let host %s in again meanwhile", subsystem, host)
		}
	}
	return err
}

func (e *Eviction) apply(kernel *Kernel, steps []Step) error {
	result, err := kernel.Apply(steps)
	e.Steps = append(e.Steps, result.Done...)
	return err
}

// disableSteps: this write is what the kernel answers when every command in the namespace has ended. Off the ports
// first, by which the controllers end: a command whose host is cut off would be waited for otherwise.
func disableSteps(there *Config, subsystem string) (steps []Step) {
	for _, port := range there.Ports {
		if slices.Contains(port.Subsystems, subsystem) {
			steps = append(steps, Step{Op: Unlink, Path: portPath(port.PortID) + "/subsystems/" + subsystem})
		}
	}
	for _, one := range there.Subsystems {
		for _, namespace := range one.Namespaces {
			if one.NQN == subsystem && namespace.Enable == 1 {
				steps = append(steps, Step{
					Op: Write, Path: namespacePath(subsystem, namespace.NSID) + "/enable",
					Value: "0",
				})
			}
		}
	}
	return steps
}

// without is the same target, but for one subsystem.
func (c *Config) without(subsystem string) *Config {
	left := &Config{Hosts: c.Hosts}
	for _, one := range c.Subsystems {
		if one.NQN != subsystem {
			left.Subsystems = append(left.Subsystems, one)
		}
	}
	for _, port := range c.Ports {
		port.Subsystems = slices.DeleteFunc(slices.Clone(port.Subsystems),
			func(nqn string) bool { return nqn == subsystem })
		left.Ports = append(left.Ports, port)
	}
	return left
}

func subsystemNames(c *Config) string {
	var names []string
	for _, one := range c.Subsystems {
		names = append(names, one.NQN)
	}
	if len(names) == 0 {
		return "none: it has no subsystem"
	}
	return strings.Join(names, ", ")
}

// Readmit ends an expulsion: the next Apply lets the host in again, where it is declared. The caller knows that nothing
// waits there to be sent again: no connection of before, no writer.
func Readmit(state *State, subsystem, host string) error {
	out := state.Evicted[subsystem]
	if !slices.Contains(out, host) {
		return fmt.Errorf("host %s: it was not evicted from subsystem %s: expected one of %s", host, subsystem,
			orNobody(out))
	}
	state.Evicted[subsystem] = slices.DeleteFunc(out, func(nqn string) bool { return nqn == host })
	if len(state.Evicted[subsystem]) == 0 {
		delete(state.Evicted, subsystem)
	}
	return state.Save()
}

func orNobody(names []string) string {
	if len(names) == 0 {
		return "those that were; nobody is"
	}
	return strings.Join(names, ", ")
}

// evict is durable when it returns.
func (s *State) evict(subsystem, host string) error {
	if slices.Contains(s.Evicted[subsystem], host) {
		return nil
	}
	if s.Evicted == nil {
		s.Evicted = map[string][]string{}
	}
	s.Evicted[subsystem] = append(s.Evicted[subsystem], host)
	return s.Save()
}

// notesOfEvicted tells who stays out of what is declared.
func (s *State) notesOfEvicted(d *Declaration) (notes []string) {
	for _, one := range d.Subsystems {
		for _, host := range s.Evicted[one.NQN] {
			if slices.Contains(one.Hosts, host) {
				notes = append(notes, fmt.Sprintf("subsystem %s: host %s was evicted and stays out: farlog target "+
					"nvmet readmit %s, when it has no connection and no writer left", one.NQN, host, host))
			}
		}
	}
	return notes
}
