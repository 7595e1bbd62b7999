// Package access decides who may do what: a table of calls and the roles that each asks for, and rules that give an
// identity roles on streams. It is pure, apart from reading its rules.
package access

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/farlog/farlog/pkg/control/pattern"
	"github.com/farlog/farlog/pkg/identity"
)

// Role is a right on streams, or for a target on its rings.
type Role string

// The roles. None includes another one.
const (
	RoleAppend Role = "append" // write: get grants
	RoleDrain  Role = "drain"  // take records out of rings into a store
	RoleReplay Role = "replay" // read what was written: see where rings and store are
	RoleAdmin  Role = "admin"  // create and change streams, see the agents
	RoleAudit  Role = "audit"  // see everything, change nothing
	RoleTarget Role = "target" // provide rings
)

// Roles lists them all.
var Roles = []Role{RoleAppend, RoleDrain, RoleReplay, RoleAdmin, RoleAudit, RoleTarget}

// defaults are the roles, on all streams, of a certificate of our own authority to which no rule applies.
var defaults = map[identity.Kind][]Role{
	identity.KindControl: {},
	identity.KindTarget:  {RoleTarget},
	identity.KindDrain:   {RoleDrain},
	identity.KindHost:    {RoleAppend, RoleReplay},
	identity.KindReplica: {RoleReplay, RoleAudit}, // it copies all streams
	identity.KindAdmin:   {RoleAdmin, RoleAppend, RoleReplay, RoleAudit},
}

// anyRole is for calls that everybody may make who has a role at all; what they answer is limited to the caller's
// streams.
var anyRole = Roles

// calls is the table: a method of the API and the roles any one of which is needed. A method that is not in it is
// refused.
var calls = map[string][]Role{
	"/farlog.v1.ControlService/CreateStream": {RoleAdmin},
	"/farlog.v1.ControlService/UpdateStream": {RoleAdmin},
	"/farlog.v1.ControlService/DeleteStream": {RoleAdmin},
	"/farlog.v1.ControlService/ApplyFabric":  {RoleAdmin},
	"/farlog.v1.ControlService/Backup":       {RoleAdmin},
	"/farlog.v1.ControlService/Restore":      {RoleAdmin},
	"/farlog.v1.ControlService/GetFabric":    {RoleAdmin, RoleAudit},
	"/farlog.v1.ControlService/WatchStreams": anyRole,
	"/farlog.v1.ControlService/ListStreams":  anyRole,
	"/farlog.v1.ControlService/GetStream":    anyRole,
	acquireWriter:                            {RoleAppend},
	extendWriter:                             {RoleAppend},
	// on some stream; of the others it tells nothing
	"/farlog.v1.ControlService/CheckWriters": {RoleAppend},
	"/farlog.v1.ControlService/WatchWriters": {RoleAppend},            // as CheckWriters
	acquireReader:                            {RoleReplay, RoleAudit}, // which of them on a stream: rolesOn
	// which of them, and on which stream: the call itself says
	"/farlog.v1.ControlService/ReportConsumer": {RoleAppend, RoleReplay},
	takeOverStream:                             {RoleAdmin},
	"/farlog.v1.ControlService/RebindStream":   {RoleAdmin},
	"/farlog.v1.ControlService/CreateRoute":    {RoleAdmin},
	"/farlog.v1.ControlService/UpdateRoute":    {RoleAdmin},
	"/farlog.v1.ControlService/DeleteRoute":    {RoleAdmin},
	"/farlog.v1.ControlService/ListRoutes":     anyRole,
	"/farlog.v1.ControlService/GetRoute":       anyRole,
	"/farlog.v1.ControlService/WatchRoutes":    anyRole,
	"/farlog.v1.ControlService/AcquireRoute":   {RoleAppend},
	"/farlog.v1.ControlService/ReplaceMember":  {RoleAdmin},
	"/farlog.v1.ControlService/AcceptLoss":     {RoleAdmin},
	"/farlog.v1.ControlService/ListAgents":     {RoleAdmin, RoleAudit},
	"/farlog.v1.FabricService/ListTargets":     {RoleAdmin, RoleAudit},
	"/farlog.v1.FabricService/GetTarget":       {RoleAdmin, RoleAudit},
	"/farlog.v1.FabricService/WatchTargets":    {RoleAdmin, RoleAudit},
	"/farlog.v1.FabricService/CreateTarget":    {RoleAdmin}, // on all streams: a host is every stream's
	"/farlog.v1.FabricService/UpdateTarget":    {RoleAdmin},
	"/farlog.v1.FabricService/DeleteTarget":    {RoleAdmin},
	"/farlog.v1.FabricService/ListDrains":      {RoleAdmin, RoleAudit},
	"/farlog.v1.FabricService/GetDrain":        {RoleAdmin, RoleAudit},
	"/farlog.v1.FabricService/WatchDrains":     {RoleAdmin, RoleAudit},
	"/farlog.v1.FabricService/CreateDrain":     {RoleAdmin},
	"/farlog.v1.FabricService/UpdateDrain":     {RoleAdmin},
	"/farlog.v1.FabricService/DeleteDrain":     {RoleAdmin},
	"/farlog.v1.FabricService/ListRegions":     anyRole,
	"/farlog.v1.FabricService/WatchRegions":    anyRole,
	"/farlog.v1.FabricService/ListGrants":      {RoleAdmin, RoleAudit},
	"/farlog.v1.FabricService/WatchGrants":     {RoleAdmin, RoleAudit},
	"/farlog.v1.FabricService/ListEpochs":      anyRole,
	"/farlog.v1.FabricService/WatchEpochs":     anyRole,
	"/farlog.v1.FabricService/ListHosts":       {RoleAdmin, RoleAudit},
	"/farlog.v1.HostService/ReportHost":        {RoleAppend},
	"/farlog.v1.TargetService/WatchRings":      {RoleTarget},
	"/farlog.v1.TargetService/ReportTarget":    {RoleTarget},
	"/farlog.v1.DrainService/WatchAssignments": {RoleDrain},
	"/farlog.v1.DrainService/ReportDrain":      {RoleDrain},
	"/grpc.health.v1.Health/Check":             nil, // anybody with a good certificate
	"/grpc.health.v1.Health/Watch":             nil,
	"/grpc.health.v1.Health/List":              nil,
	reflectionV1 + "ServerReflectionInfo":      nil,
	reflectionV1Alpha + "ServerReflectionInfo": nil,
}

const (
	acquireReader  = "/farlog.v1.ControlService/AcquireReader"
	acquireWriter  = "/farlog.v1.ControlService/AcquireWriter"
	extendWriter   = "/farlog.v1.ControlService/ExtendWriter"
	takeOverStream = "/farlog.v1.ControlService/TakeOverStream"

	reflectionV1      = "/grpc.reflection.v1.ServerReflection/"
	reflectionV1Alpha = "/grpc.reflection.v1alpha.ServerReflection/"
)

// Caller is somebody with what the rules give.
type Caller struct {
	ID      identity.ID
	IsLocal bool // of a connection without identity, on loopback: may do everything
	grants  []Rule
}

// IsSame reports whether the rules give two callers the same.
func (c Caller) IsSame(other Caller) bool {
	return c.ID == other.ID && c.IsLocal == other.IsLocal &&
		slices.EqualFunc(c.grants, other.grants, func(a, b Rule) bool {
			return slices.Equal(a.Identities, b.Identities) && slices.Equal(a.Roles, b.Roles) &&
				slices.Equal(a.Streams, b.Streams) && slices.Equal(a.Hosts, b.Hosts)
		})
}

// Local is whoever comes where no identity is asked for.
func Local() Caller { return Caller{ID: "insecure", IsLocal: true} }

// MayCall decides whether a caller may make a call at all; with which streams, May decides.
func (c Caller) MayCall(method string) error {
	needed, isKnown := calls[method]
	if c.IsLocal || isKnown && needed == nil {
		return nil
	}
	for _, role := range needed {
		if slices.ContainsFunc(c.grants, func(rule Rule) bool { return slices.Contains(rule.Roles, role) }) {
			return nil
		}
	}
	return c.refusal(needed, "", "")
}

// May decides whether a caller may make a call for one stream.
func (c Caller) May(method, stream string) error { return c.mayOn(method, "stream", stream) }

// MayRead decides whether a caller may have the records of a stream, wherever he asks: in a ring or in a store.
func (c Caller) MayRead(stream string) error { return c.May(acquireReader, stream) }

// MayReadAny decides whether a caller may have the records of some stream.
func (c Caller) MayReadAny() error { return c.MayCall(acquireReader) }

// RulesDigest is of all that the rules give to a caller: another one when they give him something else.
func (c Caller) RulesDigest() string {
	raw, err := json.Marshal(c.grants)
	if err != nil {
		panic(err) // of strings: cannot be
	}
	return identity.DigestOf(raw)
}

// MayRoute decides whether a caller may make a call for one route. Rules name routes as they name streams.
func (c Caller) MayRoute(method, route string) error { return c.mayOn(method, "route", route) }

// isWriting tells the calls after which somebody else than before writes a stream.
func isWriting(method string) bool {
	return method == acquireWriter || method == extendWriter || method == takeOverStream
}

// rolesOn is what a call needs on one stream or route. What the control plane records of its own is read by whoever may
// see everything.
func rolesOn(method, name string) []Role {
	switch {
	case method != acquireReader:
		return calls[method]
	case pattern.IsSystem(name):
		return []Role{RoleAudit}
	}
	return []Role{RoleReplay}
}

func (c Caller) mayOn(method, kind, name string) error {
	// no role gives that: what is recorded of its holder is not his to write
	if isWriting(method) && pattern.IsSystem(name) {
		return fmt.Errorf("%s may not write %s %q: those that begin with %s are written by the control plane alone",
			c.ID, kind, name, pattern.SystemPrefix)
	}
	needed := rolesOn(method, name)
	if c.IsLocal {
		return nil
	}
	for _, rule := range c.grants {
		if rule.covers(name) && slices.ContainsFunc(needed,
			func(role Role) bool { return slices.Contains(rule.Roles, role) }) {
			return nil
		}
	}
	return c.refusal(needed, kind, name)
}

// MaySpeakFor decides whether a caller is who an agent says that it is. Where the rules name hosts, the agent's must be
// one of them, and its id must be one that an agent of this host has.
func (c Caller) MaySpeakFor(role Role, host, agent string) error {
	if c.IsLocal {
		return nil
	}
	var hosts []string
	for _, rule := range c.with(role) {
		if rule.isFor(host, agent) {
			return nil
		}
		hosts = append(hosts, rule.Hosts...)
	}
	return fmt.Errorf("%s may not speak for agent %q on host %q: %s", c.ID, agent, host, expectedHost(hosts))
}

// MayHold decides whether a caller may be granted a stream for a host: one rule has to give it the stream there. That
// another rule names the host says nothing of this stream.
func (c Caller) MayHold(stream, host string) error { return c.mayHold("stream", stream, host) }

// MayHoldRoute decides whether a caller may be granted a route for a host.
func (c Caller) MayHoldRoute(route, host string) error { return c.mayHold("route", route, host) }

func (c Caller) mayHold(kind, name, host string) error {
	if c.IsLocal {
		return nil
	}
	var hosts []string
	isCovered := false
	for _, rule := range c.with(RoleAppend) {
		if !rule.covers(name) {
			continue
		}
		if rule.isOn(host) {
			return nil
		}
		isCovered = true
		hosts = append(hosts, rule.Hosts...)
	}
	if !isCovered {
		return c.refusal([]Role{RoleAppend}, kind, name)
	}
	return fmt.Errorf("%s may not write %s %q from host %q: %s", c.ID, kind, name, host, expectedHost(hosts))
}

// MayReport decides whether a caller may tell what a host measured: he must write something from there.
func (c Caller) MayReport(host string) error {
	if c.IsLocal {
		return nil
	}
	var hosts []string
	for _, rule := range c.with(RoleAppend) {
		if rule.isOn(host) {
			return nil
		}
		hosts = append(hosts, rule.Hosts...)
	}
	return fmt.Errorf("%s may not report for host %q: %s", c.ID, host, expectedHost(hosts))
}

func expectedHost(hosts []string) string {
	slices.Sort(hosts)
	return fmt.Sprintf("expected host %s, as its certificate or the control plane's --access-file says",
		strings.Join(slices.Compact(hosts), " or "))
}

// with are the rules that give a caller a role.
func (c Caller) with(role Role) (rules []Rule) {
	for _, rule := range c.grants {
		if slices.Contains(rule.Roles, role) {
			rules = append(rules, rule)
		}
	}
	return rules
}

// isAgentOf tells an id as farlogd makes them: the host, a dash, eight digits.
func isAgentOf(agent, host string) bool {
	digits, ok := strings.CutPrefix(agent, host+"-")
	return ok && len(digits) == 8 && strings.Trim(digits, "0123456789abcdef") == ""
}

// Streams are the patterns of the streams on which a caller has a role, be it on some hosts only.
func (c Caller) Streams(role Role) []string {
	return c.patterns(role, func(Rule) bool { return true })
}

// StreamsOf are the patterns of the streams on which a caller has a role as an agent, on its host. There are none for
// whom MaySpeakFor refuses.
func (c Caller) StreamsOf(role Role, host, agent string) []string {
	return c.patterns(role, func(rule Rule) bool { return rule.isFor(host, agent) })
}

func (c Caller) patterns(role Role, counts func(Rule) bool) (patterns []string) {
	if c.IsLocal {
		return []string{pattern.All}
	}
	for _, rule := range c.with(role) {
		if counts(rule) {
			patterns = append(patterns, rule.patterns()...)
		}
	}
	return patterns
}

func (c Caller) refusal(needed []Role, kind, name string) error {
	words := make([]string, len(needed))
	for i, role := range needed {
		words[i] = string(role)
	}
	text := fmt.Sprintf("%s has not the role %s", c.ID, strings.Join(words, " or "))
	if len(needed) == len(Roles) {
		text = fmt.Sprintf("%s has no role", c.ID)
	}
	if name != "" {
		text += fmt.Sprintf(" on %s %q", kind, name)
	}
	return fmt.Errorf("%s: an administrator gives it in the control plane's --access-file", text)
}

// Rule gives whoever has one of the identities roles on streams.
type Rule struct {
	Identities []string `json:"identities"` // a "*" at the end stands for anything that follows
	Roles      []Role   `json:"roles"`      // none: takes away what the kind of certificate would give
	// Streams are names or patterns: * within a part, ** at the end for anything below; none: all.
	Streams []string `json:"streams"`
	// Hosts are those for which an agent may report, and at which a writer may be granted a stream; none: any.
	Hosts []string `json:"hosts"`
}

func (r Rule) names(id identity.ID) bool {
	return slices.ContainsFunc(r.Identities, func(named string) bool {
		if prefix, ok := strings.CutSuffix(named, "*"); ok {
			return strings.HasPrefix(string(id), prefix)
		}
		return named == string(id)
	})
}

func (r Rule) patterns() []string {
	if len(r.Streams) == 0 {
		return []string{pattern.All}
	}
	return r.Streams
}

func (r Rule) covers(stream string) bool { return pattern.Covers(r.patterns(), stream) }

// isOn reports whether a rule counts on a host.
func (r Rule) isOn(host string) bool { return len(r.Hosts) == 0 || slices.Contains(r.Hosts, host) }

// isFor reports whether a rule counts for an agent that says it is on a host.
func (r Rule) isFor(host, agent string) bool {
	return r.isOn(host) && (len(r.Hosts) == 0 || isAgentOf(agent, host))
}

// Rules are applied in order: all that name an identity together say what it may do, and take the place of what its
// kind of certificate would give.
type Rules []Rule

// Caller finds out what an identity may do.
func (r Rules) Caller(id identity.ID) Caller {
	caller := Caller{ID: id}
	isNamed := false
	for _, rule := range r {
		if rule.names(id) {
			isNamed = true
			caller.grants = append(caller.grants, rule)
		}
	}
	if isNamed {
		return caller
	}
	if kind, name, ok := id.Kind(); ok {
		rule := Rule{Roles: defaults[kind]}
		if name != identity.NameAny && (kind == identity.KindTarget || kind == identity.KindDrain ||
			kind == identity.KindHost) {
			rule.Hosts = []string{name}
		}
		caller.grants = []Rule{rule}
	}
	return caller
}
