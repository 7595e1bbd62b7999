package nvmet

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"
)

// Devices checks what a fabric declares, before the kernel exports it.
type Devices interface {
	// Usable refuses a device or file that is in use, too small, or holds what is not farlog's.
	Usable(device string) error
}

// FabricNamespace is a namespace that a fabric declares of this host: namespace 1 of a subsystem of its own.
type FabricNamespace struct {
	Name, Device, NQN string
	Hosts             []DeclaredHost // who may connect
	IsEvicting        bool           // takeover: evict
}

// FabricPort is where the namespaces of a fabric are exported.
type FabricPort struct {
	Transport, Address string
	Service            int // 0: the default
}

// NamespaceSample is what a Keeper has seen of a namespace that a fabric declares.
type NamespaceSample struct {
	Name, NQN, Device string
	SizeBytes         uint64 // 0: not known
	IsExported        bool   // at every port
	HasReservations   bool   // the kernel fences by them
	Error             string // why it is not exported; "": it is
}

// wish is what a fabric declares of this host.
type wish struct {
	namespaces []FabricNamespace
	ports      []FabricPort
}

// Declare says what the fabric declares of this host from now on. The kernel follows at the next poll, at once. A
// Keeper that has a file keeps that, and reports each namespace as not exported.
func (k *Keeper) Declare(namespaces []FabricNamespace, ports []FabricPort) {
	k.mutex.Lock()
	k.wish = &wish{namespaces, ports}
	if k.file != "" {
		k.namespaces = unexported(namespaces, fmt.Errorf("this host's NVMe target is declared by --nvmet-file %s: "+
			"start farlogd target without it, or remove the namespaces from the fabric", k.file))
	}
	k.mutex.Unlock()
	select {
	case k.wake <- struct{}{}:
	default: // a poll is due already
	}
}

// Namespaces is what was last seen of those that the fabric declares. The result must not be changed.
func (k *Keeper) Namespaces() []NamespaceSample {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	return k.namespaces
}

func unexported(namespaces []FabricNamespace, cause error) []NamespaceSample {
	samples := make([]NamespaceSample, len(namespaces))
	for i, one := range namespaces {
		samples[i] = NamespaceSample{Name: one.Name, NQN: one.NQN, Device: one.Device, Error: oneLine(cause)}
	}
	return samples
}

// isIdle reports whether there is nothing to do for a fabric: it is not known yet, or it declares nothing and this
// Keeper has nothing in the kernel.
func (k *Keeper) isIdle(wanted *wish) bool {
	if wanted == nil {
		return true
	}
	if len(wanted.namespaces) > 0 {
		return false
	}
	if _, err := os.Stat(k.state); errors.Is(err, os.ErrNotExist) {
		return true
	}
	state, err := OpenState(k.state)
	if err != nil {
		return false // which apply reports
	}
	defer state.Close()
	return state.Owner != k.owner
}

// applyFabric brings the kernel to what the fabric declares. What is refused of it does not keep the rest from being
// exported.
func (k *Keeper) applyFabric(wanted *wish) (change Change, err error) {
	refused := map[string]error{}
	defer func() { k.noteNamespaces(wanted, refused, err) }()
	kernel, err := Open(k.root)
	if err != nil {
		return change, err
	}
	state, err := OpenState(k.state)
	if err != nil {
		return change, err
	}
	defer func() { err = errors.Join(err, state.Close()) }()
	if err := state.claim(k.owner); err != nil {
		return change, err
	}
	there, err := kernel.Read()
	if err != nil {
		return change, err
	}
	var accepted *Declaration
	accepted, refused = k.accept(wanted, there, state)
	if err := accepted.check(); err != nil {
		return change, err
	}
	k.declared = accepted
	change, err = Apply(kernel, state, accepted, false, time.Now())
	return change, errors.Join(err, errors.Join(orderedErrors(wanted, refused)...))
}

func orderedErrors(wanted *wish, refused map[string]error) (list []error) {
	for _, one := range wanted.namespaces {
		if err := refused[one.NQN]; err != nil {
			list = append(list, fmt.Errorf("namespace %s: %w", one.Name, err))
		}
	}
	return list
}

// accept makes a declaration of all that may be exported, and says of the rest, by NQN, why it may not. Of the rest it
// keeps what is ours already: the subsystems, and the hosts with their keys.
func (k *Keeper) accept(wanted *wish, there *Config, state *State) (*Declaration, map[string]error) {
	d, refused := &Declaration{owner: k.owner}, map[string]error{}
	for _, one := range wanted.namespaces {
		subsystem := DeclaredSubsystem{
			NQN: one.NQN, Namespaces: []DeclaredNamespace{{NSID: 1, Device: one.Device}}, Takeover: takeoverNone,
		}
		if one.IsEvicting {
			subsystem.Takeover = takeoverEvict
		}
		err := k.checkNamespace(one, wanted, d, there, state)
		for _, host := range one.Hosts {
			if err != nil && !slices.Contains(state.Hosts, host.NQN) {
				continue // it may be another program's
			}
			subsystem.Hosts = append(subsystem.Hosts, host.NQN)
			if !slices.ContainsFunc(d.Hosts, func(h DeclaredHost) bool { return h.NQN == host.NQN }) {
				d.Hosts = append(d.Hosts, host)
			}
		}
		switch {
		case err == nil:
			d.Subsystems = append(d.Subsystems, subsystem)
		case slices.Contains(state.Subsystems, one.NQN):
			d.refused = append(d.refused, subsystem)
			fallthrough
		default:
			refused[one.NQN] = err
		}
	}
	for _, port := range wanted.ports {
		d.Ports = append(d.Ports, DeclaredPort{Transport: port.Transport, Address: port.Address, Service: port.Service})
	}
	d.fillIn()
	numberPorts(d.Ports, there, state)
	return d, refused
}

// checkNamespace refuses what is not this fabric's to export. What it exports already is not checked again: then it is
// in use by the fabric itself.
func (k *Keeper) checkNamespace(one FabricNamespace, wanted *wish, accepted *Declaration, there *Config, state *State,
) error {
	at := slices.IndexFunc(there.Subsystems, func(s Subsystem) bool { return s.NQN == one.NQN })
	isOurs := slices.Contains(state.Subsystems, one.NQN)
	if at >= 0 && !isOurs {
		return fmt.Errorf("subsystem %s: the kernel has it, and not from this target: nothing was changed: remove it "+
			"there (another target of this host, nvmetcli or farlog target nvmet has made it), or declare another name",
			one.NQN)
	}
	if at >= 0 && there.Subsystems[at].isExporting(one.Device) {
		return nil
	}
	for _, other := range there.Subsystems {
		isGoing := slices.Contains(state.Subsystems, other.NQN) && !wanted.has(other.NQN)
		for _, theirs := range other.Namespaces {
			if other.NQN != one.NQN && !isGoing && isSameDevice(theirs.Device["path"], one.Device) {
				return fmt.Errorf(
					"device %s: it is namespace %d of subsystem %s already: expected it in one subsystem "+
						"alone",
					one.Device,
					theirs.NSID,
					other.NQN,
				)
			}
		}
	}
	for _, other := range accepted.Subsystems {
		if isSameDevice(other.Namespaces[0].Device, one.Device) {
			return fmt.Errorf("device %s: it is the device of subsystem %s as well: expected it in one subsystem alone",
				one.Device, other.NQN)
		}
	}
	return k.devices.Usable(one.Device)
}

func (w *wish) has(nqn string) bool {
	return slices.ContainsFunc(w.namespaces, func(one FabricNamespace) bool { return one.NQN == nqn })
}

// isExporting reports whether namespace 1 is enabled with this device.
func (s *Subsystem) isExporting(device string) bool {
	return slices.ContainsFunc(s.Namespaces, func(one Namespace) bool {
		return one.NSID == 1 && one.Enable == 1 && one.Device["path"] == device
	})
}

// numberPorts gives each port the number that it has in the kernel already, else one that nobody has there.
func numberPorts(ports []DeclaredPort, there *Config, state *State) {
	taken := map[int]bool{}
	for _, port := range there.Ports {
		taken[port.PortID] = true
	}
	for i := range ports {
		at := slices.IndexFunc(there.Ports, func(port Port) bool {
			return slices.Contains(state.Ports, port.PortID) && ports[i].isAt(port.Addr)
		})
		if at >= 0 {
			ports[i].ID = &there.Ports[at].PortID
		}
	}
	next := 1
	for i := range ports {
		if ports[i].ID != nil {
			continue
		}
		for taken[next] {
			next++
		}
		id := next
		taken[id], ports[i].ID = true, &id
	}
}

func (port DeclaredPort) isAt(addr Attrs) bool {
	return addr["trtype"] == port.Transport && addr["traddr"] == port.Address &&
		addr["trsvcid"] == strconv.Itoa(port.Service)
}

// noteNamespaces keeps what the kernel has now of what is declared.
func (k *Keeper) noteNamespaces(wanted *wish, refused map[string]error, failure error) {
	samples := unexported(wanted.namespaces, errors.New("the kernel does not export it yet"))
	there := &Config{}
	kernel, err := Open(k.root)
	if err == nil {
		there, err = kernel.Read()
	}
	failure = errors.Join(err, failure)
	for i := range samples {
		one := &samples[i]
		one.SizeBytes = sizeOf(one.Device)
		switch cause := refused[one.NQN]; {
		case cause != nil:
			one.Error = oneLine(cause)
		case err == nil && there.exports(*one, wanted.ports):
			one.IsExported, one.Error = true, ""
			one.HasReservations = there.hasReservations(one.NQN)
		case failure != nil:
			one.Error = oneLine(failure)
		}
	}
	k.mutex.Lock()
	k.namespaces = samples
	k.mutex.Unlock()
}

// exports reports whether a namespace is enabled, and its subsystem is open at an address of each port.
func (c *Config) exports(one NamespaceSample, ports []FabricPort) bool {
	at := slices.IndexFunc(c.Subsystems, func(s Subsystem) bool { return s.NQN == one.NQN })
	if at < 0 || !c.Subsystems[at].isExporting(one.Device) || len(ports) == 0 {
		return false
	}
	for _, port := range ports {
		declared := DeclaredPort{Transport: port.Transport, Address: port.Address, Service: port.Service}
		if declared.Service == 0 {
			declared.Service = serviceDefault
		}
		if !slices.ContainsFunc(c.Ports, func(there Port) bool {
			return declared.isAt(there.Addr) && slices.Contains(there.Subsystems, one.NQN)
		}) {
			return false
		}
	}
	return true
}

func (c *Config) hasReservations(nqn string) bool {
	return slices.ContainsFunc(c.Subsystems, func(s Subsystem) bool {
		return s.NQN == nqn && len(s.Namespaces) > 0 && s.Namespaces[0].Resv["enable"] == "1"
	})
}

// sizeOf is the length of a device or file; 0: it cannot be read.
func sizeOf(path string) uint64 {
	file, err := os.Open(path)
	if err != nil {
		return 0
	}
	defer file.Close()
	end, err := file.Seek(0, 2)
	if err != nil {
		return 0
	}
	return uint64(end)
}
