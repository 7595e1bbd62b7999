package nvmet

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"syscall"
)

// model is as much of the kernel's rules as the order of steps depends on, taken from drivers/nvme/target/configfs.c:
// what must be empty to be removed, what can be linked to what, what is refused while something is in use. Whether the
// kernel itself agrees is proved on it (kernel_test.go, in the testbed).
type model struct {
	attrs map[string]string // by path
	dirs  map[string]bool
	links map[string]string

	isListening func(port string) // called when a port is opened
}

func newModel() *model {
	return &model{
		attrs: map[string]string{}, dirs: map[string]bool{"hosts": true, "ports": true, "subsystems": true},
		links: map[string]string{},
	}
}

func (m *model) do(steps []Step) error {
	for _, step := range steps {
		if err := m.step(step); err != nil {
			return fmt.Errorf("%s: %w", step, err)
		}
	}
	return nil
}

func (m *model) step(s Step) error {
	switch s.Op {
	case Mkdir:
		return m.mkdir(s.Path)
	case Rmdir:
		return m.rmdir(s.Path)
	case Link:
		return m.link(s.Path, s.Value)
	case Unlink:
		if m.links[s.Path] == "" {
			return syscall.ENOENT
		}
		delete(m.links, s.Path)
		return nil
	}
	return m.write(s.Path, s.Value)
}

// made are the attributes and directories that come with an object.
func (m *model) mkdir(p string) error {
	if m.dirs[p] || !m.dirs[path.Dir(p)] {
		return errors.Join(syscall.EEXIST, errors.New(p))
	}
	m.dirs[p] = true
	set := func(attrs ...string) {
		for i := 0; i < len(attrs); i += 2 {
			m.attrs[p+"/"+attrs[i]] = attrs[i+1]
		}
	}
	addr := []string{
		"addr_trtype", "", "addr_adrfam", "", "addr_traddr", "", "addr_trsvcid", "", "addr_treq",
		"not specified",
	}
	switch parent := path.Base(path.Dir(p)); parent {
	case "hosts":
		set("dhchap_key", "", "dhchap_ctrl_key", "", "dhchap_hash", "hmac(sha256)", "dhchap_dhgroup", "null")
	case "subsystems":
		set("attr_allow_any_host", "0", "attr_cntlid_min", "1", "attr_cntlid_max", "65519", "attr_qid_max", "128",
			"attr_serial", "drawn")
		m.dirs[p+"/namespaces"], m.dirs[p+"/allowed_hosts"] = true, true
	case "namespaces":
		set("device_path", "", "device_uuid", "drawn", "enable", "0", "ana_grpid", "1", "resv_enable", "0",
			"buffered_io", "0")
	case "ports":
		set(append(addr, "addr_tsas", "", "param_inline_data_size", "-1")...)
		m.dirs[p+"/subsystems"], m.dirs[p+"/referrals"], m.dirs[p+"/ana_groups"], m.dirs[p+"/ana_groups/1"] = true,
			true, true, true
		m.attrs[p+"/ana_groups/1/ana_state"] = "optimized"
	case "ana_groups":
		set("ana_state", "inaccessible")
	case "referrals":
		set(append(addr, "enable", "0")...)
	}
	return nil
}

func (m *model) rmdir(p string) error {
	if !m.dirs[p] || strings.HasSuffix(p, "/ana_groups/1") {
		return syscall.ENOENT
	}
	for link, to := range m.links {
		if to == p || strings.HasPrefix(link, p+"/") {
			return syscall.EBUSY
		}
	}
	own := []string{
		p + "/namespaces", p + "/allowed_hosts", p + "/subsystems", p + "/referrals", p + "/ana_groups",
		p + "/ana_groups/1",
	}
	for dir := range m.dirs {
		if strings.HasPrefix(dir, p+"/") && !slices.Contains(own, dir) {
			return syscall.ENOTEMPTY
		}
	}
	maps.DeleteFunc(m.dirs, func(dir string, _ bool) bool { return dir == p || strings.HasPrefix(dir, p+"/") })
	maps.DeleteFunc(m.attrs, func(attr, _ string) bool { return strings.HasPrefix(attr, p+"/") })
	return nil
}

func (m *model) link(p, to string) error {
	if m.links[p] != "" {
		return syscall.EEXIST
	}
	if !m.dirs[to] || !m.dirs[path.Dir(p)] {
		return syscall.ENOENT
	}
	owner := path.Dir(path.Dir(p))
	if strings.HasPrefix(p, "ports/") {
		if m.attrs[owner+"/addr_trtype"] == "" {
			return syscall.EINVAL
		}
	} else if m.attrs[owner+"/attr_allow_any_host"] == "1" {
		return syscall.EINVAL
	}
	m.links[p] = to
	return nil
}

func (m *model) hasLink(dir string) bool {
	for link := range m.links {
		if path.Dir(link) == dir {
			return true
		}
	}
	return false
}

func (m *model) write(p, value string) error {
	if _, isThere := m.attrs[p]; !isThere {
		return syscall.ENOENT
	}
	owner, name := path.Dir(p), path.Base(p)
	isPort := path.Dir(owner) == "ports"
	switch {
	case isPort && m.hasLink(owner+"/subsystems"):
		return syscall.EACCES
	case strings.HasPrefix(p, "subsystems/") && m.attrs[owner+"/enable"] == "1" && name != "enable" &&
		name != "ana_grpid":
		return syscall.EBUSY
	case strings.Contains(p, "/referrals/") && m.attrs[owner+"/enable"] == "1" && name != "enable":
		return syscall.EACCES
	case name == "enable" && strings.HasPrefix(p, "subsystems/") && value == "1" && m.attrs[owner+"/device_path"] == "":
		return syscall.ENOENT
	case name == "attr_allow_any_host" && value == "1" && m.hasLink(owner+"/allowed_hosts"):
		return syscall.EINVAL
	case name == "attr_cntlid_min" && number(value) > number(m.attrs[owner+"/attr_cntlid_max"]),
		name == "attr_cntlid_max" && number(value) < number(m.attrs[owner+"/attr_cntlid_min"]):
		return syscall.EINVAL
	case strings.HasPrefix(name, "dhchap_") && value == "":
		return syscall.EINVAL
	}
	isTLS := m.attrs[owner+"/addr_tsas"] == "tls1.3"
	if name == "addr_treq" && isTLS && value == "not specified" {
		return syscall.EINVAL
	}
	m.attrs[p] = value
	switch {
	case isPort && name == "addr_trtype":
		m.attrs[owner+"/addr_tsas"] = tsasGiven[value]
	case isPort && name == "addr_tsas" && value != "tls1.3":
		m.attrs[owner+"/addr_treq"] = "not specified"
	case isPort && name == "addr_tsas" && m.attrs[owner+"/addr_treq"] == "not specified":
		m.attrs[owner+"/addr_treq"] = "required"
	}
	return nil
}

func number(text string) (n int) {
	fmt.Sscan(text, &n)
	return n
}

// config is what Read would give.
func (m *model) config() *Config {
	c := &Config{}
	for _, dir := range slices.Sorted(maps.Keys(m.dirs)) {
		name := path.Base(dir)
		switch parent := path.Dir(dir); {
		case parent == "hosts":
			c.Hosts = append(c.Hosts, Host{NQN: name, DHCHAP: m.group(dir, "dhchap_")})
		case parent == "subsystems":
			c.Subsystems = append(c.Subsystems, Subsystem{
				NQN: name, Attr: m.group(dir, "attr_"),
				AllowedHosts: m.linked(dir + "/allowed_hosts"),
			})
		case strings.HasPrefix(dir, "subsystems/") && path.Base(parent) == "namespaces":
			at := &c.Subsystems[len(c.Subsystems)-1]
			at.Namespaces = append(at.Namespaces, Namespace{
				NSID: number(name), Device: m.group(dir, "device_"),
				Resv:   m.group(dir, "resv_"),
				Enable: number(m.attrs[dir+"/enable"]), ANAGrpID: number(m.attrs[dir+"/ana_grpid"]),
				BufferedIO: number(m.attrs[dir+"/buffered_io"]),
			})
		case parent == "ports":
			c.Ports = append(c.Ports, Port{
				PortID: number(name), Addr: m.group(dir, "addr_"),
				Param: m.group(dir, "param_"), Subsystems: m.linked(dir + "/subsystems"),
			})
		case path.Base(parent) == "ana_groups":
			at := &c.Ports[len(c.Ports)-1]
			at.ANAGroups = append(at.ANAGroups, ANAGroup{GrpID: number(name), ANA: m.group(dir, "ana_")})
		case path.Base(parent) == "referrals":
			at := &c.Ports[len(c.Ports)-1]
			at.Referrals = append(at.Referrals, Referral{
				Name: name, Addr: m.group(dir, "addr_"),
				Enable: number(m.attrs[dir+"/enable"]),
			})
		}
	}
	c.sort()
	return c
}

func (m *model) group(dir, group string) Attrs {
	attrs := Attrs{}
	for p, value := range m.attrs {
		if path.Dir(p) == dir && strings.HasPrefix(path.Base(p), group) {
			attrs[strings.TrimPrefix(path.Base(p), group)] = value
		}
	}
	return attrs
}

func (m *model) linked(dir string) (names []string) {
	for link := range m.links {
		if path.Dir(link) == dir {
			names = append(names, path.Base(link))
		}
	}
	slices.Sort(names)
	return names
}
