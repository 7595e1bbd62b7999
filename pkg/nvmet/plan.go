package nvmet

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Op is what a step does to the kernel's directory.
type Op string

// The five ways to change a configfs.
const (
	Mkdir  Op = "mkdir"
	Rmdir  Op = "rmdir"
	Write  Op = "write"
	Link   Op = "link"
	Unlink Op = "unlink"
)

// Step is one change below /sys/kernel/config/nvmet.
type Step struct {
	Op    Op
	Path  string // of the directory, the attribute, or the link, from there
	Value string // what is written; of a link the directory that it names, from there

	isSecret   bool
	isOptional bool // a kernel without this attribute is taken, and said
}

// String is the step without a secret in it.
func (s Step) String() string {
	switch {
	case s.Op == Write && s.isSecret:
		return fmt.Sprintf("%s %s = %s", s.Op, s.Path, secretShown)
	case s.Op == Write:
		return fmt.Sprintf("%s %s = %s", s.Op, s.Path, s.Value)
	case s.Op == Link:
		return fmt.Sprintf("%s %s -> %s", s.Op, s.Path, s.Value)
	}
	return fmt.Sprintf("%s %s", s.Op, s.Path)
}

// Plan lists the steps from one state to another. What an attribute map of to does not name stays. The order is the
// kernel's: nothing is let in before it is whole, nothing is taken away that something else still names, and what
// cannot be changed in use is taken out of use for it.
func Plan(from, to *Config) []Step {
	p := &planner{from: indexOf(from), to: indexOf(to)}
	p.findRemade()
	p.shutPorts()
	p.evictHosts()
	p.removeSubsystems()
	p.removePorts()
	p.removeHosts()
	p.makeHosts()
	p.makeSubsystems()
	p.makePorts()
	return p.steps
}

// index is a Config by names.
type index struct {
	hosts      map[string]Host
	ports      map[int]Port
	subsystems map[string]Subsystem
}

func indexOf(c *Config) index {
	i := index{map[string]Host{}, map[int]Port{}, map[string]Subsystem{}}
	for _, host := range c.Hosts {
		i.hosts[host.NQN] = host
	}
	for _, port := range c.Ports {
		i.ports[port.PortID] = port
	}
	for _, subsystem := range c.Subsystems {
		i.subsystems[subsystem.NQN] = subsystem
	}
	return i
}

type planner struct {
	from, to index
	steps    []Step
	remade   map[string]bool // hosts whose key is to go: the kernel forgets one only with its host
	shut     map[int]bool    // ports that are taken out of use
}

func (p *planner) add(op Op, path, value string) {
	p.steps = append(p.steps, Step{Op: op, Path: path, Value: value})
}

func hostPath(nqn string) string      { return "hosts/" + nqn }
func subsystemPath(nqn string) string { return "subsystems/" + nqn }
func portPath(id int) string          { return "ports/" + strconv.Itoa(id) }

func (p *planner) findRemade() {
	p.remade = map[string]bool{}
	for nqn, host := range p.from.hosts {
		after, stays := p.to.hosts[nqn]
		for _, name := range []string{"key", "ctrl_key"} {
			value, isNamed := after.DHCHAP[name]
			if stays && isNamed && value == "" && host.DHCHAP[name] != "" {
				p.remade[nqn] = true
			}
		}
	}
}

// shutPorts takes subsystems off the ports where they are not wanted, and all of them off a port whose address changes:
// the kernel listens as long as a port has a subsystem.
func (p *planner) shutPorts() {
	p.shut = map[int]bool{}
	for _, id := range slices.Sorted(maps.Keys(p.from.ports)) {
		before := p.from.ports[id]
		after, stays := p.to.ports[id]
		if stays && len(before.Subsystems) > 0 {
			p.shut[id] = len(attrSteps("", "addr_", portOrder, before.Addr, after.Addr)) > 0 ||
				len(attrSteps("", "param_", nil, before.Param, after.Param)) > 0
		}
		for _, nqn := range slices.Sorted(slices.Values(before.Subsystems)) {
			if !stays || p.shut[id] || !slices.Contains(after.Subsystems, nqn) {
				p.add(Unlink, portPath(id)+"/subsystems/"+nqn, "")
			}
		}
	}
}

// evictHosts takes back who may connect. The kernel leaves the connections of such a host alone; a write of
// attr_qid_max ends all of the subsystem's, and who is still allowed connects again.
func (p *planner) evictHosts() {
	for _, nqn := range slices.Sorted(maps.Keys(p.from.subsystems)) {
		before := p.from.subsystems[nqn]
		after, stays := p.to.subsystems[nqn]
		isEvicted := false
		for _, host := range slices.Sorted(slices.Values(before.AllowedHosts)) {
			if !stays || p.remade[host] || !slices.Contains(after.AllowedHosts, host) {
				p.add(Unlink, subsystemPath(nqn)+"/allowed_hosts/"+host, "")
				isEvicted = isEvicted || stays && !slices.Contains(after.AllowedHosts, host)
			}
		}
		if most := before.Attr["qid_max"]; isEvicted && most != "" {
			p.add(Write, subsystemPath(nqn)+"/attr_qid_max", most)
		}
	}
}

func (p *planner) removeSubsystems() {
	for _, nqn := range slices.Sorted(maps.Keys(p.from.subsystems)) {
		after, stays := p.to.subsystems[nqn]
		for _, one := range p.from.subsystems[nqn].Namespaces {
			if !slices.ContainsFunc(after.Namespaces, func(n Namespace) bool { return n.NSID == one.NSID }) {
				p.add(Rmdir, namespacePath(nqn, one.NSID), "")
			}
		}
		if !stays {
			p.add(Rmdir, subsystemPath(nqn), "")
		}
	}
}

func (p *planner) removePorts() {
	for _, id := range slices.Sorted(maps.Keys(p.from.ports)) {
		before := p.from.ports[id]
		after, stays := p.to.ports[id]
		for _, group := range before.ANAGroups {
			isKept := slices.ContainsFunc(after.ANAGroups, func(g ANAGroup) bool { return g.GrpID == group.GrpID })
			if group.GrpID != 1 && !isKept { // the kernel makes and removes the first one
				p.add(Rmdir, fmt.Sprintf("%s/ana_groups/%d", portPath(id), group.GrpID), "")
			}
		}
		for _, referral := range before.Referrals {
			if !slices.ContainsFunc(after.Referrals, func(r Referral) bool { return r.Name == referral.Name }) {
				p.add(Rmdir, portPath(id)+"/referrals/"+referral.Name, "")
			}
		}
		if !stays {
			p.add(Rmdir, portPath(id), "")
		}
	}
}

func (p *planner) removeHosts() {
	for _, nqn := range slices.Sorted(maps.Keys(p.from.hosts)) {
		if _, stays := p.to.hosts[nqn]; !stays || p.remade[nqn] {
			p.add(Rmdir, hostPath(nqn), "")
		}
	}
}

func (p *planner) makeHosts() {
	for _, nqn := range slices.Sorted(maps.Keys(p.to.hosts)) {
		before, isThere := p.from.hosts[nqn]
		if !isThere || p.remade[nqn] {
			p.add(Mkdir, hostPath(nqn), "")
			before = Host{}
		}
		for _, step := range attrSteps(hostPath(nqn), "dhchap_", hostOrder, before.DHCHAP, p.to.hosts[nqn].DHCHAP) {
			step.isSecret = isSecret(strings.TrimPrefix(step.Path, hostPath(nqn)+"/dhchap_"))
			p.steps = append(p.steps, step)
		}
	}
}

func (p *planner) makeSubsystems() {
	for _, nqn := range slices.Sorted(maps.Keys(p.to.subsystems)) {
		before, isThere := p.from.subsystems[nqn]
		after, path := p.to.subsystems[nqn], subsystemPath(nqn)
		if !isThere {
			p.add(Mkdir, path, "")
		}
		p.steps = append(p.steps, attrSteps(path, "attr_", subsystemOrder(before.Attr, after.Attr), before.Attr,
			after.Attr)...)
		for _, host := range slices.Sorted(slices.Values(after.AllowedHosts)) {
			if p.remade[host] || !slices.Contains(before.AllowedHosts, host) {
				p.add(Link, path+"/allowed_hosts/"+host, hostPath(host))
			}
		}
		for _, one := range after.Namespaces {
			at := slices.IndexFunc(before.Namespaces, func(n Namespace) bool { return n.NSID == one.NSID })
			if at < 0 {
				p.makeNamespace(nqn, nil, one)
			} else {
				p.makeNamespace(nqn, &before.Namespaces[at], one)
			}
		}
	}
}

// makeNamespace makes or changes a namespace; in use it can only be moved to another ANA group.
func (p *planner) makeNamespace(nqn string, there *Namespace, after Namespace) {
	path, before := namespacePath(nqn, after.NSID), Namespace{}
	if there == nil {
		p.add(Mkdir, path, "")
	} else {
		before = *there
	}
	steps := attrSteps(path, "device_", nil, before.Device, after.Device)
	for _, step := range attrSteps(path, "resv_", nil, before.Resv, after.Resv) {
		step.isOptional = after.isResvOptional
		if there == nil || before.Resv != nil || !step.isOptional { // a kernel that has none is known to have none
			steps = append(steps, step)
		}
	}
	if before.BufferedIO != after.BufferedIO {
		steps = append(steps, Step{Op: Write, Path: path + "/buffered_io", Value: strconv.Itoa(after.BufferedIO)})
	}
	isEnabled := before.Enable == 1
	if isEnabled && (len(steps) > 0 || after.Enable == 0) {
		p.add(Write, path+"/enable", "0")
		isEnabled = false
	}
	p.steps = append(p.steps, steps...)
	if group := after.ANAGrpID; group != 0 && group != max(before.ANAGrpID, 1) {
		p.add(Write, path+"/ana_grpid", strconv.Itoa(group))
	}
	if after.Enable == 1 && !isEnabled {
		p.add(Write, path+"/enable", "1")
	}
}

func namespacePath(nqn string, nsid int) string {
	return subsystemPath(nqn) + "/namespaces/" + strconv.Itoa(nsid)
}

// makePorts lets in last.
func (p *planner) makePorts() {
	for _, id := range slices.Sorted(maps.Keys(p.to.ports)) {
		before, isThere := p.from.ports[id]
		after, path := p.to.ports[id], portPath(id)
		if !isThere {
			p.add(Mkdir, path, "")
		}
		p.steps = append(p.steps, attrSteps(path, "addr_", portOrder, before.Addr, after.Addr)...)
		p.steps = append(p.steps, attrSteps(path, "param_", nil, before.Param, after.Param)...)
		for _, group := range after.ANAGroups {
			at := slices.IndexFunc(before.ANAGroups, func(g ANAGroup) bool { return g.GrpID == group.GrpID })
			there, groupPath := ANAGroup{}, fmt.Sprintf("%s/ana_groups/%d", path, group.GrpID)
			if at >= 0 {
				there = before.ANAGroups[at]
			} else if group.GrpID != 1 {
				p.add(Mkdir, groupPath, "")
			} else {
				there.ANA = Attrs{"state": "optimized"} // as the kernel makes it
			}
			p.steps = append(p.steps, attrSteps(groupPath, "ana_", nil, there.ANA, group.ANA)...)
		}
		for _, referral := range after.Referrals {
			p.makeReferral(path+"/referrals/"+referral.Name, before.Referrals, referral)
		}
		for _, nqn := range slices.Sorted(slices.Values(after.Subsystems)) {
			if p.shut[id] || !slices.Contains(before.Subsystems, nqn) {
				p.add(Link, path+"/subsystems/"+nqn, subsystemPath(nqn))
			}
		}
	}
}

func (p *planner) makeReferral(path string, there []Referral, after Referral) {
	before := Referral{}
	if at := slices.IndexFunc(there, func(r Referral) bool { return r.Name == after.Name }); at >= 0 {
		before = there[at]
	} else {
		p.add(Mkdir, path, "")
	}
	steps := attrSteps(path, "addr_", portOrder, before.Addr, after.Addr)
	isEnabled := before.Enable == 1
	if isEnabled && (len(steps) > 0 || after.Enable == 0) {
		p.add(Write, path+"/enable", "0")
		isEnabled = false
	}
	p.steps = append(p.steps, steps...)
	if after.Enable == 1 && !isEnabled {
		p.add(Write, path+"/enable", "1")
	}
}

// What has to be written before what: a transport takes back what depends on it, TLS what is required, and a key is
// judged by nothing else.
var (
	portOrder = []string{"trtype", "adrfam", "traddr", "trsvcid", "tsas", "treq"}
	hostOrder = []string{"hash", "dhgroup", "key", "ctrl_key"}
)

// subsystemOrder keeps the lowest number of a controller below the highest at every step.
func subsystemOrder(before, after Attrs) []string {
	lowest, _ := strconv.Atoi(after["cntlid_min"])
	highest, err := strconv.Atoi(before["cntlid_max"])
	if err == nil && lowest > highest {
		return []string{"allow_any_host", "cntlid_max", "cntlid_min"}
	}
	return []string{"allow_any_host", "cntlid_min", "cntlid_max"}
}

// attrSteps writes what is named in after and differs: those of order first, the others by their names. Of a value that
// stands for the kernel's own choice nothing is written; nor is what a new transport gives by itself.
func attrSteps(path, group string, order []string, before, after Attrs) (steps []Step) {
	names := slices.Clone(order)
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if !slices.Contains(order, name) {
			names = append(names, name)
		}
	}
	isWritten := map[string]bool{}
	for _, name := range names {
		value, isNamed := after[name]
		isSame := value == before[name]
		switch {
		case name == "tsas" && (before["tsas"] == "" || isWritten["trtype"]):
			isSame = value == tsasGiven[after["trtype"]]
		case name == "treq" && isWritten["tsas"]:
			isSame = false
		case name == "treq" && before["treq"] == "":
			isSame = value == "not specified"
		}
		if !isNamed || isSame || value == "" || group == "param_" && value == "-1" {
			continue
		}
		isWritten[name] = true
		steps = append(steps, Step{Op: Write, Path: path + "/" + group + name, Value: value})
	}
	return steps
}

// tsasGiven is what a transport has when it is chosen.
var tsasGiven = map[string]string{"rdma": "connected", "tcp": "none"}

// isGuard tells a step by which somebody is kept out.
func isGuard(s Step) bool {
	return strings.HasPrefix(s.Path, "hosts/") || strings.HasSuffix(s.Path, "/attr_allow_any_host") ||
		strings.HasSuffix(s.Path, "/addr_tsas") || strings.HasSuffix(s.Path, "/addr_treq")
}
