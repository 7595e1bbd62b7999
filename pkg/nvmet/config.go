// Package nvmet brings the kernel's NVMe target (configfs, /sys/kernel/config/nvmet) to what is declared: subsystems,
// namespaces, hosts with their keys, and ports. What is there is read, what is wanted is compared with it, and the
// difference is a list of steps in an order that the kernel takes: nothing is done where nothing differs. A Config has
// the layout of nvmetcli's JSON, so that either tool reads what the other has saved.
package nvmet

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/farlog/farlog/pkg/replace"
)

// Config is all of an NVMe target, as nvmetcli saves it. An attribute that is not named is left as it is.
type Config struct {
	Hosts      []Host      `json:"hosts"`
	Ports      []Port      `json:"ports"`
	Subsystems []Subsystem `json:"subsystems"`
}

// Attrs are attributes of one group, without its name: "path" of device_path.
type Attrs map[string]string

// Host is who may connect where it is allowed. The keys are in the group dhchap: "key", "ctrl_key", "hash", "dhgroup".
type Host struct {
	DHCHAP Attrs  `json:"dhchap"`
	NQN    string `json:"nqn"`
}

// Port is where hosts connect to.
type Port struct {
	Addr       Attrs      `json:"addr"`
	ANAGroups  []ANAGroup `json:"ana_groups"`
	Param      Attrs      `json:"param"`
	PortID     int        `json:"portid"`
	Referrals  []Referral `json:"referrals"`
	Subsystems []string   `json:"subsystems"`
}

// ANAGroup is a group of namespaces with one state of access.
type ANAGroup struct {
	ANA   Attrs `json:"ana"`
	GrpID int   `json:"grpid"`
}

// Referral is another discovery service that a port tells of.
type Referral struct {
	Addr   Attrs  `json:"addr"`
	Enable int    `json:"enable"`
	Name   string `json:"name"`
}

// Subsystem is what hosts connect to: one a tenant.
type Subsystem struct {
	AllowedHosts []string    `json:"allowed_hosts"`
	Attr         Attrs       `json:"attr"`
	Namespaces   []Namespace `json:"namespaces"`
	NQN          string      `json:"nqn"`
	Passthru     []Passthru  `json:"passthru,omitempty"`
}

// Namespace is a block device or a file of a subsystem.
type Namespace struct {
	ANA        Attrs `json:"ana"`
	ANAGrpID   int   `json:"ana_grpid"`
	BufferedIO int   `json:"buffered_io,omitempty"` // nvmetcli does not know it, and leaves it out
	Device     Attrs `json:"device"`
	Enable     int   `json:"enable"`
	NSID       int   `json:"nsid"`
	Resv       Attrs `json:"resv"` // nil: the kernel has no reservations

	isResvOptional bool // a kernel without reservations is taken
}

// Passthru of a whole controller is saved as nvmetcli saves it, which leaves out whether it is enabled; farlog makes
// and restores none.
type Passthru struct {
	AdminTimeout int   `json:"admin_timeout"`
	ClearIDs     int   `json:"clear_ids"`
	Device       Attrs `json:"device"`
	IOTimeout    int   `json:"io_timeout"`
}

// UnmarshalJSON takes numbers and truths as well: nvmetcli writes texts, people write numbers.
func (a *Attrs) UnmarshalJSON(raw []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var values map[string]any
	if err := decoder.Decode(&values); err != nil {
		return err
	}
	*a = make(Attrs, len(values))
	for name, value := range values {
		switch typed := value.(type) {
		case string:
			(*a)[name] = typed
		case json.Number:
			(*a)[name] = typed.String()
		case bool:
			(*a)[name] = map[bool]string{true: "1", false: "0"}[typed]
		default:
			return fmt.Errorf("attribute %q: expected a text or a number", name)
		}
	}
	return nil
}

// MarshalJSON writes no attributes as none.
func (a Attrs) MarshalJSON() ([]byte, error) {
	if a == nil {
		return []byte("{}"), nil
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false) // as Python
	err := encoder.Encode(map[string]string(a))
	return out.Bytes(), err
}

// ReadSaved reads nvmetcli's JSON. Keys that nvmetcli does not have are left out, as nvmetcli leaves them out.
func ReadSaved(raw []byte) (*Config, error) {
	config := new(Config)
	if err := json.Unmarshal(raw, config); err != nil {
		return nil, fmt.Errorf("expected the JSON that nvmetcli or farlog target nvmet save writes: %w", err)
	}
	config.sort()
	return config, config.check()
}

// Saved is nvmetcli's JSON, byte by byte as nvmetcli writes it. The hosts' keys are in it.
func (c *Config) Saved() ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(c)
	return out.Bytes(), err
}

// WithoutKeys is a copy that may be shown.
func (c *Config) WithoutKeys() *Config {
	shown := *c
	shown.Hosts = slices.Clone(c.Hosts)
	for i, host := range shown.Hosts {
		shown.Hosts[i].DHCHAP = make(Attrs, len(host.DHCHAP))
		for name, value := range host.DHCHAP {
			if isSecret(name) && value != "" {
				value = secretShown
			}
			shown.Hosts[i].DHCHAP[name] = value
		}
	}
	return &shown
}

const secretShown = "(secret)"

// isSecret tells an attribute of a host that nobody else may read.
func isSecret(name string) bool { return name == "key" || name == "ctrl_key" }

// check finds what the kernel could not take, or what would lead out of its directory.
func (c *Config) check() error {
	names := map[string]bool{}
	once := func(kind, name string) error {
		if names[kind+name] {
			return fmt.Errorf("%s %s: it is there twice", kind, name)
		}
		names[kind+name] = true
		return nil
	}
	var errs []error
	for i, host := range c.Hosts {
		errs = append(errs, checkName(fmt.Sprintf("hosts[%d].nqn", i), host.NQN), once("host", host.NQN),
			checkAttrs("host "+host.NQN, host.DHCHAP))
	}
	for i, subsystem := range c.Subsystems {
		what := "subsystem " + subsystem.NQN
		errs = append(errs, checkName(fmt.Sprintf("subsystems[%d].nqn", i), subsystem.NQN),
			once("subsystem", subsystem.NQN), checkAttrs(what, subsystem.Attr))
		if subsystem.NQN == discoveryNQN {
			errs = append(errs, fmt.Errorf("subsystem %s: this name belongs to the discovery service: expected "+
				"another one", subsystem.NQN))
		}
		for _, one := range subsystem.Namespaces {
			where := what + " namespace " + strconv.Itoa(one.NSID)
			if one.NSID < 1 || one.NSID > nsidMax {
				errs = append(errs, fmt.Errorf("%s: expected a number from 1 to %d", where, nsidMax))
			}
			errs = append(errs, once(what+" namespace", strconv.Itoa(one.NSID)), checkAttrs(where, one.Device))
		}
		for _, host := range subsystem.AllowedHosts {
			errs = append(errs, once(what+" allowed host", host))
			if !slices.ContainsFunc(c.Hosts, func(h Host) bool { return h.NQN == host }) {
				errs = append(errs, fmt.Errorf("%s: allowed host %q: expected one of hosts", what, host))
			}
		}
	}
	for _, port := range c.Ports {
		errs = append(errs, once("port", strconv.Itoa(port.PortID)), c.checkPort(port))
	}
	return errors.Join(errs...)
}

func (c *Config) checkPort(port Port) error {
	what := "port " + strconv.Itoa(port.PortID)
	errs := []error{checkAttrs(what, port.Addr), checkAttrs(what, port.Param)}
	if port.PortID < 0 || port.PortID > portIDMax {
		errs = append(errs, fmt.Errorf("%s: expected a number from 0 to %d", what, portIDMax))
	}
	for _, nqn := range port.Subsystems {
		if !slices.ContainsFunc(c.Subsystems, func(s Subsystem) bool { return s.NQN == nqn }) {
			errs = append(errs, fmt.Errorf("%s: subsystem %q: expected one of subsystems", what, nqn))
		}
	}
	for _, referral := range port.Referrals {
		errs = append(errs, checkName(what+" referral", referral.Name), checkAttrs(what, referral.Addr))
	}
	return errors.Join(errs...)
}

const (
	nsidMax   = 8192 // nvmetcli's limit
	portIDMax = 65535
)

// checkName takes what can be the name of a directory there.
func checkName(field, name string) error {
	if name == "" || name == "." || name == ".." || len(name) > nqnLenMax || strings.ContainsAny(name, "/\n\x00") {
		return fmt.Errorf("%s %q: expected 1 to %d bytes without a slash", field, name, nqnLenMax)
	}
	return nil
}

func checkAttrs(what string, attrs Attrs) error {
	for name, value := range attrs {
		if name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
			return fmt.Errorf("%s: attribute %q: expected letters, digits and underlines", what, name)
		}
		if strings.ContainsAny(value, "\n\x00") {
			return fmt.Errorf("%s: attribute %s: expected one line", what, name) // the value may be a key
		}
	}
	return nil
}

// sort puts everything into one order, so that two descriptions of the same are the same.
func (c *Config) sort() {
	slices.SortFunc(c.Hosts, func(a, b Host) int { return strings.Compare(a.NQN, b.NQN) })
	slices.SortFunc(c.Ports, func(a, b Port) int { return a.PortID - b.PortID })
	slices.SortFunc(c.Subsystems, func(a, b Subsystem) int { return strings.Compare(a.NQN, b.NQN) })
	for i := range c.Ports {
		port := &c.Ports[i]
		slices.Sort(port.Subsystems)
		slices.SortFunc(port.ANAGroups, func(a, b ANAGroup) int { return a.GrpID - b.GrpID })
		slices.SortFunc(port.Referrals, func(a, b Referral) int { return strings.Compare(a.Name, b.Name) })
	}
	for i := range c.Subsystems {
		slices.Sort(c.Subsystems[i].AllowedHosts)
		slices.SortFunc(c.Subsystems[i].Namespaces, func(a, b Namespace) int { return a.NSID - b.NSID })
	}
}

// WriteSecret replaces a file as a whole, for its owner alone, and has it on the disk when it returns.
func WriteSecret(path string, content []byte) error { return replace.File(path, content, 0o600) }
