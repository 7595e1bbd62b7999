package nvmet

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// StateFile is where what was declared last and the hosts' keys are, unless somebody says otherwise.
const StateFile = "/var/lib/farlog/nvmet.json"

// State is what has to be remembered: the keys that were drawn, and what was declared before, so that it can be removed
// when it is not declared any more. What others have made is never touched.
type State struct {
	Version int `json:"version"`
	// Owner is whose declaration it is: a target's of which the fabric declares. "": a file's, or nobody's.
	Owner      string               `json:"owner,omitempty"`
	Subsystems []string             `json:"subsystems"`
	Ports      []int                `json:"ports"`
	Hosts      []string             `json:"hosts"`
	Keys       map[string]*HostKeys `json:"keys"` // by the host's NQN
	// Evicted are the hosts that stay out of a subsystem, by its NQN, whatever is declared.
	Evicted map[string][]string `json:"evicted,omitempty"`

	path string
	lock *os.File
}

// HostKeys are the secrets of one host.
type HostKeys struct {
	Hash  string    `json:"hash"`
	Drawn time.Time `json:"drawn"`
	Host  Key       `json:"-"` // by which the host proves itself
	Ctrl  Key       `json:"-"` // by which the target proves itself to the host
}

type hostKeysJSON struct {
	Hash  string    `json:"hash"`
	Drawn time.Time `json:"drawn"`
	Host  string    `json:"dhchap_key"`
	Ctrl  string    `json:"dhchap_ctrl_key"`
}

// MarshalJSON writes the keys themselves: it is for the state's file, mode 0600, alone.
func (k *HostKeys) MarshalJSON() ([]byte, error) {
	return json.Marshal(hostKeysJSON{k.Hash, k.Drawn, k.Host.Reveal(), k.Ctrl.Reveal()})
}

// UnmarshalJSON checks them.
func (k *HostKeys) UnmarshalJSON(raw []byte) (err error) {
	var read hostKeysJSON
	if err = json.Unmarshal(raw, &read); err != nil {
		return err
	}
	k.Hash, k.Drawn = read.Hash, read.Drawn
	if k.Host, err = ParseKey(read.Host); err != nil {
		return fmt.Errorf("dhchap_key: %w", err)
	}
	if k.Ctrl, err = ParseKey(read.Ctrl); err != nil {
		return fmt.Errorf("dhchap_ctrl_key: %w", err)
	}
	return nil
}

const stateVersion = 1

// OpenState reads a state and keeps others from changing it, and with it the kernel's target, until it is closed. A
// file that others can read is refused: it has keys in it.
func OpenState(path string) (*State, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, fmt.Errorf("state %q: %w", path, bare(err))
	}
	lock, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("state %q: lock: %w", path, bare(err))
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("state %q: lock: %w", path, err), lock.Close())
	}
	s := &State{Version: stateVersion, Keys: map[string]*HostKeys{}, path: path, lock: lock}
	if err := s.read(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return s, nil
}

// Close lets others.
func (s *State) Close() error { return s.lock.Close() }

func (s *State) read() error {
	info, err := os.Stat(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("state %q: %w", s.path, bare(err))
	}
	if info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("state %q: others may read it (mode %04o) and it has keys in it: chmod 600 %s, then farlog "+
			"target nvmet rotate", s.path, info.Mode().Perm(), s.path)
	}
	raw, err := os.ReadFile(s.path)
	if err != nil {
		return fmt.Errorf("state %q: %w", s.path, bare(err))
	}
	if err := json.Unmarshal(raw, s); err != nil {
		return fmt.Errorf("state %q: %w", s.path, err)
	}
	if s.Version != stateVersion {
		return fmt.Errorf("state %q: version %d: expected %d", s.path, s.Version, stateVersion)
	}
	if s.Keys == nil {
		s.Keys = map[string]*HostKeys{}
	}
	return nil
}

// Save has it on the disk when it returns.
func (s *State) Save() error {
	raw, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return WriteSecret(s.path, append(raw, '\n'))
}

// Which of a host's two keys to draw again. A connection by which both prove themselves outlives a rotation only where
// they are changed one after the other.
const (
	PartBoth   = "both"
	PartHost   = "host"
	PartTarget = "target"
)

// Rotate draws new keys for a host, or one of them.
func (s *State) Rotate(nqn, hash, part string, now time.Time) error {
	host, err := NewKey(hash)
	if err != nil {
		return err
	}
	ctrl, err := NewKey(hash)
	if before := s.Keys[nqn]; before != nil && part == PartHost {
		ctrl = before.Ctrl
	} else if before != nil && part == PartTarget {
		host = before.Host
	}
	s.Keys[nqn] = &HostKeys{Hash: hash, Drawn: now.UTC().Truncate(time.Second), Host: host, Ctrl: ctrl}
	return err
}

// Ready draws the keys that the declaration needs and that are not there, and reports whether it drew any.
func (s *State) Ready(d *Declaration, now time.Time) (drawn []string, err error) {
	for _, host := range d.Hosts {
		if host.Auth == authNone {
			continue
		}
		if there := s.Keys[host.NQN]; there != nil && there.Hash == host.Hash {
			continue
		}
		if err := s.Rotate(host.NQN, host.Hash, PartBoth, now); err != nil {
			return drawn, fmt.Errorf("host %s: %w", host.NQN, err)
		}
		drawn = append(drawn, host.NQN)
	}
	return drawn, nil
}

// claim refuses what one has declared to another, which would remove it.
func (s *State) claim(owner string) error {
	isFree := s.Owner == "" && len(s.Subsystems)+len(s.Ports)+len(s.Hosts) == 0
	switch {
	case s.Owner == owner:
		return nil
	case isFree:
		s.Owner = owner
		return nil
	case s.Owner == "":
		return fmt.Errorf("state %q: it has what a file declares (farlog target nvmet apply, --nvmet-file): expected "+
			"none: farlog target nvmet remove, or give this target another --nvmet-state", s.path)
	case owner == "":
		return fmt.Errorf(
			"state %q: it has what the fabric declares, by the target in %s: change fabric.yaml, or give "+
				"another --state",
			s.path,
			s.Owner,
		)
	}
	return fmt.Errorf("state %q: it has what the fabric declares, by the target in %s: give the target in %s another "+
		"--nvmet-state", s.path, s.Owner, owner)
}

// Remember notes what is declared now, beside what was before: while a change is under way both are ours.
func (s *State) Remember(d *Declaration) {
	names := d.names()
	s.Subsystems, s.Ports, s.Hosts = union(s.Subsystems, names.Subsystems), union(s.Ports, names.Ports),
		union(s.Hosts, names.Hosts)
}

// Forget leaves what is declared now, and the keys of its hosts.
func (s *State) Forget(d *Declaration) {
	names := d.names()
	s.Subsystems, s.Ports, s.Hosts = names.Subsystems, names.Ports, names.Hosts
	if len(s.Subsystems)+len(s.Ports)+len(s.Hosts) == 0 {
		s.Owner = ""
	}
	maps.DeleteFunc(s.Keys, func(nqn string, _ *HostKeys) bool { return !slices.Contains(s.Hosts, nqn) })
}

func (d *Declaration) names() State {
	names := State{Subsystems: []string{}, Ports: []int{}, Hosts: []string{}}
	for _, one := range slices.Concat(d.Subsystems, d.refused) {
		names.Subsystems = append(names.Subsystems, one.NQN)
	}
	for _, one := range d.Ports {
		names.Ports = append(names.Ports, *one.ID)
	}
	for _, one := range d.Hosts {
		names.Hosts = append(names.Hosts, one.NQN)
	}
	return names
}

func union[T comparable](a, b []T) []T {
	all := slices.Clone(a)
	for _, one := range b {
		if !slices.Contains(all, one) {
			all = append(all, one)
		}
	}
	return all
}

// Wanted is what the kernel shall have: what is declared, and of all else what it has now, except what was declared
// before and is no more.
func (s *State) Wanted(d *Declaration, now *Config) (wanted *Config, foreign []string) {
	wanted = &Config{}
	names := d.names()
	for _, one := range d.Subsystems {
		subsystem := one.config()
		subsystem.AllowedHosts = s.allowedHosts(one)
		wanted.Subsystems = append(wanted.Subsystems, subsystem)
	}
	stays := map[string]bool{} // a port that has it keeps it
	for _, one := range d.refused {
		at := slices.IndexFunc(now.Subsystems, func(there Subsystem) bool { return there.NQN == one.NQN })
		if at < 0 {
			continue
		}
		subsystem := now.Subsystems[at]
		subsystem.Attr, subsystem.AllowedHosts = maps.Clone(subsystem.Attr), s.allowedHosts(one)
		if subsystem.Attr != nil {
			subsystem.Attr["allow_any_host"] = "0"
		}
		wanted.Subsystems, stays[one.NQN] = append(wanted.Subsystems, subsystem), true
	}
	used := map[string]bool{} // hosts that others' subsystems name
	for _, one := range now.Subsystems {
		if slices.Contains(names.Subsystems, one.NQN) || slices.Contains(s.Subsystems, one.NQN) {
			continue
		}
		wanted.Subsystems, foreign = append(wanted.Subsystems, one), append(foreign, "subsystem "+one.NQN)
		stays[one.NQN] = true
		for _, nqn := range one.AllowedHosts {
			used[nqn] = true
		}
	}
	for _, host := range d.Hosts {
		wanted.Hosts = append(wanted.Hosts, host.config(s.Keys[host.NQN]))
	}
	for _, host := range now.Hosts {
		isOurs := slices.Contains(s.Hosts, host.NQN) && !used[host.NQN]
		if slices.Contains(names.Hosts, host.NQN) || isOurs {
			continue
		}
		wanted.Hosts, foreign = append(wanted.Hosts, host), append(foreign, "host "+host.NQN)
	}
	isThere := func(nqn string) bool {
		return slices.ContainsFunc(wanted.Subsystems, func(one Subsystem) bool { return one.NQN == nqn })
	}
	for _, port := range d.Ports {
		wanted.Ports = append(wanted.Ports, port.config(now, stays))
	}
	for _, port := range now.Ports {
		if slices.Contains(names.Ports, port.PortID) || slices.Contains(s.Ports, port.PortID) {
			continue
		}
		port.Subsystems = slices.DeleteFunc(slices.Clone(port.Subsystems),
			func(nqn string) bool { return !isThere(nqn) })
		wanted.Ports, foreign = append(wanted.Ports, port), append(foreign, "port "+strconv.Itoa(port.PortID))
	}
	wanted.sort()
	return wanted, foreign
}

// allowedHosts are those that may connect now.
func (s *State) allowedHosts(one DeclaredSubsystem) []string {
	return slices.DeleteFunc(slices.Clone(one.Hosts),
		func(nqn string) bool { return slices.Contains(s.Evicted[one.NQN], nqn) })
}

func (one DeclaredSubsystem) config() Subsystem {
	subsystem := Subsystem{
		NQN:  one.NQN,
		Attr: Attrs{"allow_any_host": "0", "serial": serialOf(one.NQN)},
	}
	for _, each := range one.Namespaces {
		namespace := Namespace{
			NSID: each.NSID, Enable: 1, Device: Attrs{"path": each.Device, "uuid": each.UUID},
			isResvOptional: each.Reservations != reservationsRequired,
		}
		namespace.Resv = Attrs{"enable": map[bool]string{true: "0", false: "1"}[each.Reservations == reservationsOff]}
		if each.BufferedIO {
			namespace.BufferedIO = 1
		}
		subsystem.Namespaces = append(subsystem.Namespaces, namespace)
	}
	return subsystem
}

func (host DeclaredHost) config(keys *HostKeys) Host {
	if host.Auth == authNone || keys == nil {
		return Host{NQN: host.NQN, DHCHAP: Attrs{"key": "", "ctrl_key": ""}}
	}
	ctrl := keys.Ctrl.Reveal()
	if host.Auth == authHost {
		ctrl = ""
	}
	return Host{NQN: host.NQN, DHCHAP: Attrs{
		"hash": kernelHash(host.Hash), "dhgroup": host.DHGroup,
		"key": keys.Host.Reveal(), "ctrl_key": ctrl,
	}}
}

// config keeps on a port the subsystems that stay as they are.
func (port DeclaredPort) config(now *Config, stays map[string]bool) Port {
	one := Port{PortID: *port.ID, Addr: Attrs{"trtype": port.Transport}, Subsystems: slices.Clone(port.Subsystems)}
	if port.Transport != "loop" {
		family := "ipv4"
		if isIPv6(port.Address) {
			family = "ipv6"
		}
		one.Addr["adrfam"], one.Addr["traddr"], one.Addr["trsvcid"] = family, port.Address, strconv.Itoa(port.Service)
	}
	for _, there := range now.Ports {
		if there.PortID != *port.ID {
			continue
		}
		one.ANAGroups, one.Referrals = there.ANAGroups, there.Referrals
		for _, nqn := range there.Subsystems {
			if stays[nqn] {
				one.Subsystems = append(one.Subsystems, nqn)
			}
		}
	}
	return one
}
