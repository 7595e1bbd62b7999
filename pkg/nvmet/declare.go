package nvmet

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Declaration is what an operator wants of this host's NVMe target, without the keys, which are drawn.
type Declaration struct {
	Subsystems []DeclaredSubsystem `yaml:"subsystems"`
	Ports      []DeclaredPort      `yaml:"ports"`
	Hosts      []DeclaredHost      `yaml:"hosts"`

	owner string // as State.Owner
	// refused are declared too, and must not be exported now, such as for want of a device: what the kernel has of them
	// stays, but for who may connect.
	refused []DeclaredSubsystem
}

// DeclaredSubsystem is one of a tenant. Nobody but its hosts may connect.
type DeclaredSubsystem struct {
	NQN        string              `yaml:"nqn"`
	Hosts      []string            `yaml:"hosts"`
	Namespaces []DeclaredNamespace `yaml:"namespaces"`
	// Takeover is none or evict: where the kernel has no reservations, a host is evicted when one of its rings is taken
	// over.
	Takeover string `yaml:"takeover"`
}

// DeclaredNamespace is a block device or a file.
type DeclaredNamespace struct {
	NSID   int    `yaml:"nsid"`
	Device string `yaml:"device"`
	// UUID "" stands for one made of the subsystem's name and the number: it is the same after every boot.
	UUID         string `yaml:"uuid"`
	Reservations string `yaml:"reservations"` // auto (where the kernel has them), required, off
	BufferedIO   bool   `yaml:"buffered_io"`  // of a file: through the page cache
}

// DeclaredPort is where hosts connect to.
type DeclaredPort struct {
	ID         *int     `yaml:"id"`
	Transport  string   `yaml:"transport"` // rdma, tcp, loop
	Address    string   `yaml:"address"`
	Service    int      `yaml:"service"`
	Subsystems []string `yaml:"subsystems"` // none: all that are declared
}

// DeclaredHost is how a host proves who it is. One that only a subsystem names has the defaults.
type DeclaredHost struct {
	NQN     string `yaml:"nqn"`
	Auth    string `yaml:"auth"`    // both (the host, and the target to the host), host, none
	Hash    string `yaml:"hash"`    // sha256, sha384, sha512
	DHGroup string `yaml:"dhgroup"` // null, ffdhe2048 ...
}

const (
	authBoth = "both"
	authHost = "host"
	authNone = "none"

	reservationsAuto     = "auto"
	reservationsRequired = "required"
	reservationsOff      = "off"

	serviceDefault = 4420
	dhgroupDefault = "ffdhe2048"
)

var uuidForm = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// goType is how the YAML library calls what it reads into.
var goType = regexp.MustCompile(` (not found )?in(to)? (type )?nvmet\.\w+`)

// ReadDeclaration reads the YAML file of an operator, and tells all that is wrong with it.
func ReadDeclaration(raw []byte) (*Declaration, error) {
	d := new(Declaration)
	decoder := yaml.NewDecoder(bytes.NewReader(raw))
	decoder.KnownFields(true)
	if err := decoder.Decode(d); err != nil && !errors.Is(err, io.EOF) {
		text := goType.ReplaceAllString(strings.TrimPrefix(err.Error(), "yaml: "), "")
		text = strings.TrimPrefix(strings.Join(strings.Fields(text), " "), "unmarshal errors: ")
		return nil, fmt.Errorf("%s: expected the keys subsystems, ports and hosts as docs/reference/nvmet.md has them",
			text)
	}
	if d.Subsystems == nil && d.Ports == nil && d.Hosts == nil {
		// A file that was cut off by a crash would otherwise take everything away, keys and all.
		return nil, errors.New("it declares nothing: expected the keys subsystems, ports and hosts as " +
			"docs/reference/nvmet.md has them; farlog target nvmet remove takes away what was declared")
	}
	d.fillIn()
	return d, d.check()
}

// fillIn sets defaults, and names every host that a subsystem names.
func (d *Declaration) fillIn() {
	for i := range d.Subsystems {
		subsystem := &d.Subsystems[i]
		subsystem.Takeover = orElse(subsystem.Takeover, takeoverNone)
		for j := range subsystem.Namespaces {
			one := &subsystem.Namespaces[j]
			if one.UUID == "" {
				one.UUID = uuidOf(subsystem.NQN, one.NSID)
			}
			one.UUID = strings.ToLower(one.UUID)
			one.Reservations = orElse(one.Reservations, reservationsAuto)
		}
		for _, nqn := range subsystem.Hosts {
			if !slices.ContainsFunc(d.Hosts, func(h DeclaredHost) bool { return h.NQN == nqn }) {
				d.Hosts = append(d.Hosts, DeclaredHost{NQN: nqn})
			}
		}
	}
	for i := range d.Hosts {
		host := &d.Hosts[i]
		host.Auth, host.Hash, host.DHGroup = orElse(host.Auth, authBoth), orElse(host.Hash, hashes[0].name),
			orElse(host.DHGroup, dhgroupDefault)
	}
	for i := range d.Ports {
		port := &d.Ports[i]
		if port.Service == 0 && port.Transport != "loop" {
			port.Service = serviceDefault
		}
		if port.Subsystems == nil {
			for _, subsystem := range d.Subsystems {
				port.Subsystems = append(port.Subsystems, subsystem.NQN)
			}
		}
	}
}

func orElse(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// uuidOf is the same wherever and whenever it is made: a host that finds another one after a reboot of the target drops
// the namespace.
func uuidOf(nqn string, nsid int) string {
	sum := sha256.Sum256([]byte("farlog nvmet namespace " + nqn + " " + strconv.Itoa(nsid)))
	sum[6], sum[8] = sum[6]&0x0f|0x80, sum[8]&0x3f|0x80 // version 8, of our own making
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[0:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}

// serialOf keeps a subsystem's serial number over reboots.
func serialOf(nqn string) string {
	sum := sha256.Sum256([]byte("farlog nvmet subsystem " + nqn))
	return fmt.Sprintf("%x", sum[:10])
}

func (d *Declaration) check() error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	seen := map[string]bool{}
	once := func(path, what string) {
		if seen[what] {
			fail("%s: %s is there twice", path, what)
		}
		seen[what] = true
	}
	for i, subsystem := range d.Subsystems {
		path := fmt.Sprintf("subsystems[%d]", i)
		once(path, "subsystem "+subsystem.NQN)
		errs = append(errs, within(path+".nqn", CheckNQN(subsystem.NQN)),
			oneOf(path+".takeover", subsystem.Takeover, takeoverNone, takeoverEvict))
		for j, one := range subsystem.Namespaces {
			at := fmt.Sprintf("%s.namespaces[%d]", path, j)
			once(at, fmt.Sprintf("namespace %d of subsystem %s", one.NSID, subsystem.NQN))
			once(at, "uuid "+one.UUID)
			once(at, "device "+one.Device)
			errs = append(errs, one.check(at))
		}
		for j, nqn := range subsystem.Hosts {
			once(fmt.Sprintf("%s.hosts[%d]", path, j), "host "+nqn+" of subsystem "+subsystem.NQN)
		}
	}
	for i, host := range d.Hosts {
		path := fmt.Sprintf("hosts[%d]", i)
		once(path, "host "+host.NQN)
		errs = append(errs, within(path+".nqn", CheckNQN(host.NQN)),
			oneOf(path+".auth", host.Auth, authBoth, authHost, authNone),
			oneOf(path+".hash", host.Hash, hashNames()...), oneOf(path+".dhgroup", host.DHGroup, dhgroups...))
	}
	for i, port := range d.Ports {
		path := fmt.Sprintf("ports[%d]", i)
		if port.ID == nil || *port.ID < 0 || *port.ID > portIDMax {
			fail("%s.id: expected a number from 0 to %d", path, portIDMax)
		} else {
			once(path, "port "+strconv.Itoa(*port.ID))
		}
		errs = append(errs, port.check(path))
		for j, nqn := range port.Subsystems {
			if !slices.ContainsFunc(d.Subsystems, func(s DeclaredSubsystem) bool { return s.NQN == nqn }) {
				fail("%s.subsystems[%d] %q: expected one of the file's subsystems", path, j, nqn)
			}
		}
	}
	return errors.Join(errs...)
}

func (n DeclaredNamespace) check(path string) error {
	var errs []error
	if n.NSID < 1 || n.NSID > nsidMax {
		errs = append(errs, fmt.Errorf("%s.nsid %d: expected a number from 1 to %d", path, n.NSID, nsidMax))
	}
	if !filepath.IsAbs(n.Device) || strings.ContainsAny(n.Device, "\n\x00") {
		errs = append(errs, fmt.Errorf("%s.device %q: expected the whole path of a block device or a file, such as "+
			"/dev/nvme0n1", path, n.Device))
	}
	if !uuidForm.MatchString(n.UUID) {
		errs = append(errs, fmt.Errorf("%s.uuid %q: expected a UUID, such as f81d4fae-7dec-11d0-a765-00a0c91e6bf6",
			path, n.UUID))
	}
	errs = append(errs, oneOf(path+".reservations", n.Reservations, reservationsAuto, reservationsRequired,
		reservationsOff))
	return errors.Join(errs...)
}

func (p DeclaredPort) check(path string) error {
	errs := []error{oneOf(path+".transport", p.Transport, "rdma", "tcp", "loop")}
	if p.Transport == "loop" {
		if p.Address != "" || p.Service != 0 {
			errs = append(errs, fmt.Errorf("%s: transport loop has no address and no service: leave them out", path))
		}
		return errors.Join(errs...)
	}
	if _, err := netip.ParseAddr(p.Address); err != nil {
		errs = append(errs, fmt.Errorf("%s.address %q: expected an IP address of this host, such as 10.7.0.2", path,
			p.Address))
	}
	if p.Service < 1 || p.Service > 65535 {
		errs = append(errs, fmt.Errorf("%s.service %d: expected a port from 1 to 65535", path, p.Service))
	}
	return errors.Join(errs...)
}

func within(path string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", path, err)
}

func oneOf(path, value string, choices ...string) error {
	if slices.Contains(choices, value) {
		return nil
	}
	return fmt.Errorf("%s %q: expected one of %s", path, value, strings.Join(choices, ", "))
}
