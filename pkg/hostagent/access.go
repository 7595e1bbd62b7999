package hostagent

import (
	"fmt"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"

	"github.com/farlog/farlog/pkg/control/pattern"
)

// Rule lets a user, or the members of a group, write streams, or read them.
type Rule struct {
	IsGroup bool
	ID      uint32
	Name    string // as it was written
	Pattern string
}

// ParseRules reads rules such as "trading=desk7/*", "@desk8=desk8/**" and "1000=*". Users and groups have to be known
// to this host, or be numbers.
func ParseRules(list []string) ([]Rule, error) {
	var rules []Rule
	for _, text := range list {
		rule, err := parseRule(text)
		if err != nil {
			return nil, err
		}
		rules = append(rules, rule)
	}
	return rules, nil
}

func parseRule(text string) (Rule, error) {
	name, streams, ok := strings.Cut(text, "=")
	group, isGroup := strings.CutPrefix(name, "@")
	if !ok || name == "" || isGroup && group == "" {
		return Rule{}, fmt.Errorf("%q: expected USER=STREAMS or @GROUP=STREAMS, such as trading=desk7/*", text)
	}
	if err := pattern.Check(streams); err != nil {
		return Rule{}, fmt.Errorf("%q: %w", text, err)
	}
	id, err := idOf(strings.TrimPrefix(name, "@"), isGroup)
	if err != nil {
		return Rule{}, fmt.Errorf("%q: %w", text, err)
	}
	return Rule{IsGroup: isGroup, ID: id, Name: name, Pattern: streams}, nil
}

func idOf(name string, isGroup bool) (uint32, error) {
	digits, kind := name, "user"
	if isGroup {
		kind = "group"
		if found, err := user.LookupGroup(name); err == nil {
			digits = found.Gid
		}
	} else if found, err := user.Lookup(name); err == nil {
		digits = found.Uid
	}
	id, err := strconv.ParseUint(digits, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("there is no %s %q on this host", kind, name)
	}
	return uint32(id), nil
}

// peer is who asks.
type peer struct {
	pid      int32
	uid, gid uint32
}

// groups are those of the process, and those that its user has on this host.
func (p peer) groups() []uint32 {
	groups := []uint32{p.gid}
	found, err := user.LookupId(strconv.FormatUint(uint64(p.uid), 10))
	if err != nil {
		return groups
	}
	names, err := found.GroupIds()
	if err != nil {
		return groups
	}
	for _, name := range names {
		if id, err := strconv.ParseUint(name, 10, 32); err == nil {
			groups = append(groups, uint32(id))
		}
	}
	return groups
}

// String names the user as people know him.
func (p peer) String() string {
	id := strconv.FormatUint(uint64(p.uid), 10)
	if found, err := user.LookupId(id); err == nil {
		return fmt.Sprintf("user %s (%s)", found.Username, id)
	}
	return "user " + id
}

// may decides whether somebody may write a stream, or read it: neither right includes the other. Root and the agent's
// own user may. Those of the control plane's own nobody writes by an agent, and a rule lets read them only where it
// names them: desk7/* and * are meant for others.
func (s *Server) may(p peer, stream string, isReader bool) error {
	rules, verb, flag := s.config.Rules, "write", "--host-allow"
	if isReader {
		rules, verb, flag = s.config.Readers, "read", "--host-read"
	}
	isSystem := pattern.IsSystem(stream)
	if isSystem && !isReader {
		return refuse("INVALID", "%s may not write stream %q: those that begin with %s are written by the control "+
			"plane alone", p, stream, pattern.SystemPrefix)
	}
	if isSystem {
		rules = slices.DeleteFunc(slices.Clone(rules), func(rule Rule) bool { return !pattern.IsSystem(rule.Pattern) })
	}
	if p.uid == 0 || p.uid == uint32(os.Geteuid()) || covers(rules, p, stream) {
		return nil
	}
	return refuse("INVALID", "%s may not %s stream %q by this agent: expected a %s of farlogd host, such as %d=%s", p,
		verb, stream, flag, p.uid, stream)
}

func covers(rules []Rule, p peer, stream string) bool {
	var groups []uint32
	for _, rule := range rules {
		if !pattern.Covers([]string{rule.Pattern}, stream) {
			continue
		}
		if rule.IsGroup && groups == nil {
			groups = p.groups()
		}
		if !rule.IsGroup && rule.ID == p.uid || rule.IsGroup && slices.Contains(groups, rule.ID) {
			return true
		}
	}
	return false
}
