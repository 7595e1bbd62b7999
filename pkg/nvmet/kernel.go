package nvmet

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Root is where the kernel has its NVMe target.
const Root = "/sys/kernel/config/nvmet"

const configfsMagic = 0x62656570

// Kernel is the NVMe target of this host.
type Kernel struct{ root string }

// Open finds the kernel's NVMe target at root (Root, but for tests). Where there is none, the error says which module
// or mount is missing and the command that mends it.
func Open(root string) (*Kernel, error) {
	info, err := os.Stat(filepath.Join(root, "subsystems"))
	switch {
	case err == nil && info.IsDir():
		return &Kernel{root}, nil
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("%s: permission denied: the NVMe target is the super-user's: run this as root", root)
	}
	parent := filepath.Dir(root)
	var mounted unix.Statfs_t
	if err := unix.Statfs(parent, &mounted); err != nil || mounted.Type != configfsMagic {
		return nil, fmt.Errorf("%s: no configfs is mounted there, by which the kernel's NVMe target is set up: "+
			"modprobe configfs; mount -t configfs configfs %s", parent, parent)
	}
	return nil, fmt.Errorf("%s: the kernel has no NVMe target: its module nvmet is not loaded: modprobe nvmet", root)
}

// Read gives all that the kernel has, the hosts' keys with it.
func (k *Kernel) Read() (*Config, error) {
	r := &reading{kernel: k}
	config := &Config{Hosts: []Host{}, Ports: []Port{}, Subsystems: []Subsystem{}}
	for _, nqn := range r.dirs("hosts") {
		config.Hosts = append(config.Hosts, Host{NQN: nqn, DHCHAP: r.attrs(hostPath(nqn), "dhchap_")})
	}
	for _, name := range r.dirs("ports") {
		if id, err := strconv.Atoi(name); err == nil {
			config.Ports = append(config.Ports, r.port(id))
		}
	}
	for _, nqn := range r.dirs("subsystems") {
		config.Subsystems = append(config.Subsystems, r.subsystem(nqn))
	}
	config.sort()
	return config, r.err
}

// reading goes on after what it could not read: who removes an object meanwhile is no error of ours, and the first real
// one is kept.
type reading struct {
	kernel *Kernel
	err    error
}

func (r *reading) fail(path string, err error) {
	if r.err == nil && !errors.Is(err, fs.ErrNotExist) {
		r.err = fmt.Errorf("read %s: %w", r.kernel.path(path), bare(err))
	}
}

func (r *reading) list(path string) []fs.DirEntry {
	entries, err := os.ReadDir(r.kernel.path(path))
	if err != nil {
		r.fail(path, err)
	}
	return entries
}

// dirs are the objects below a directory; links, the names of others that are linked there.
func (r *reading) dirs(path string) (names []string) {
	for _, entry := range r.list(path) {
		if entry.IsDir() {
			names = append(names, entry.Name())
		}
	}
	return names
}

func (r *reading) links(path string) []string {
	names := []string{}
	for _, entry := range r.list(path) {
		if entry.Type()&fs.ModeSymlink != 0 {
			names = append(names, entry.Name())
		}
	}
	slices.Sort(names)
	return names
}

func (r *reading) value(path string) (string, bool) {
	raw, err := os.ReadFile(r.kernel.path(path))
	if err != nil {
		r.fail(path, err)
		return "", false
	}
	return strings.TrimSpace(string(raw)), true
}

func (r *reading) number(path string) int {
	text, _ := r.value(path)
	number, _ := strconv.Atoi(text) // no such attribute: 0
	return number
}

// attrs are those of a group that can be read and written, as nvmetcli takes them; nil where the kernel has none of the
// group.
func (r *reading) attrs(path, group string) Attrs {
	var attrs Attrs
	for _, entry := range r.list(path) {
		name, isOfGroup := strings.CutPrefix(entry.Name(), group)
		if !isOfGroup || !entry.Type().IsRegular() {
			continue
		}
		info, err := entry.Info()
		if err != nil || info.Mode()&0o600 != 0o600 {
			continue
		}
		if value, ok := r.value(path + "/" + entry.Name()); ok {
			if attrs == nil {
				attrs = Attrs{}
			}
			attrs[name] = value
		}
	}
	return attrs
}

func (r *reading) subsystem(nqn string) Subsystem {
	path := subsystemPath(nqn)
	one := Subsystem{
		NQN: nqn, Attr: r.attrs(path, "attr_"), AllowedHosts: r.links(path + "/allowed_hosts"),
		Namespaces: []Namespace{},
	}
	for _, name := range r.dirs(path + "/namespaces") {
		nsid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		at := namespacePath(nqn, nsid)
		one.Namespaces = append(one.Namespaces, Namespace{
			NSID: nsid, ANA: r.attrs(at, "ana_"), ANAGrpID: r.number(at + "/ana_grpid"),
			BufferedIO: r.number(at + "/buffered_io"),
			Device:     r.attrs(at, "device_"), Enable: r.number(at + "/enable"), Resv: r.attrs(at, "resv_"),
		})
	}
	if _, err := os.Stat(r.kernel.path(path + "/passthru")); err == nil {
		at := path + "/passthru"
		one.Passthru = []Passthru{{
			AdminTimeout: r.number(at + "/admin_timeout"), ClearIDs: r.number(at + "/clear_ids"),
			Device:    r.attrs(at, "device_"),
			IOTimeout: r.number(at + "/io_timeout"),
		}}
	}
	return one
}

func (r *reading) port(id int) Port {
	path := portPath(id)
	one := Port{
		PortID: id, Addr: r.attrs(path, "addr_"), Param: r.attrs(path, "param_"),
		Subsystems: r.links(path + "/subsystems"),
		ANAGroups:  []ANAGroup{}, Referrals: []Referral{},
	}
	if one.Param == nil {
		one.Param = Attrs{}
	}
	for _, name := range r.dirs(path + "/ana_groups") {
		if group, err := strconv.Atoi(name); err == nil {
			one.ANAGroups = append(one.ANAGroups, ANAGroup{
				GrpID: group,
				ANA:   r.attrs(path+"/ana_groups/"+name, "ana_"),
			})
		}
	}
	for _, name := range r.dirs(path + "/referrals") {
		at := path + "/referrals/" + name
		one.Referrals = append(one.Referrals, Referral{
			Name: name, Addr: r.attrs(at, "addr_"),
			Enable: r.number(at + "/enable"),
		})
	}
	return one
}

func (k *Kernel) path(path string) string { return filepath.Join(k.root, path) }

// Result is what was done.
type Result struct {
	Done  []Step
	Notes []string // what the kernel does not have, and was not required
}

// Apply takes the steps, and ends at the first that the kernel refuses.
func (k *Kernel) Apply(steps []Step) (Result, error) {
	var result Result
	for _, step := range steps {
		err := k.apply(step)
		if err != nil && step.isOptional && errors.Is(err, fs.ErrNotExist) {
			if step.Value != "0" { // what is not there is off
				result.Notes = append(result.Notes, fmt.Sprintf("%s: %s", objectOf(step.Path), lacking(step)))
			}
			continue
		}
		if err != nil {
			return result, explain(step, err)
		}
		result.Done = append(result.Done, step)
	}
	return result, nil
}

func (k *Kernel) apply(step Step) error {
	path := k.path(step.Path)
	switch step.Op {
	case Mkdir:
		return os.Mkdir(path, 0o755) //lint:ignore G301 it is the mode of configfs
	case Rmdir, Unlink:
		return os.Remove(path)
	case Link:
		return os.Symlink(k.path(step.Value), path)
	}
	if step.isSecret { // the kernel makes it readable for all
		if err := os.Chmod(path, 0o600); err != nil {
			return err
		}
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(step.Value)
	return errors.Join(err, file.Close())
}

// bare is an error without the path and the call that Go puts before it.
func bare(err error) error {
	var path *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &path):
		return path.Err
	case errors.As(err, &link):
		return link.Err
	}
	return err
}
