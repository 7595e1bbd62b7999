package plan

import (
	"fmt"
	"math"
	"slices"
	"time"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/check"
)

// Input is what is declared: a fabric, as farlog apply takes it, and what only a plan asks for.
type Input struct {
	Fabric  *api.Fabric
	Outage  time.Duration // how long a drain or its store may be away
	Hours   float64       // a day that are traded; 0 = 24
	Days    float64       // a year; 0 = 365
	Life    float64       // years that media shall last; 0 = 5
	Card    time.Duration // both cards and buses of a way, in one direction
	Sites   []Site
	Links   []Link
	Targets []Target
	Drains  []Drain
	Loads   []Load
}

// Site is a place with hosts, and what lies between any of them and another one there, or the links that lead away.
type Site struct {
	Name string
	Path
}

// Link joins two sites; it carries as much in either direction.
type Link struct {
	From, To string
	Path
	Bits float64 // a second; 0 = not looked at
}

// Path is a stretch of fibre with gear.
type Path struct {
	KM   float64
	Hops int           // switches and other gear
	Hop  time.Duration // that one of them takes, one way
}

// Target is what a plan has to know of a host with rings.
type Target struct {
	Host        string
	LinkBits    float64 // a second, of its card; 0 = it has none that counts
	MTU         int     // of the path, as RoCE has it; 0 = 4096
	WriteBytes  float64 // a second that its media takes; 0 = any
	Endurance   float64 // bytes that may be written in its life; 0 = media that do not wear
	WriteFactor float64 // bytes that wear the media for each that is written; 0 = 1
	Flush       time.Duration
}

// Drain is what a plan has to know of a host that stores.
type Drain struct {
	Host       string
	Site       string  // "" = that of the target of that host
	StoreBytes float64 // a second that its store takes, synced; 0 = not looked at
}

// Load is what one writer appends to a stream or a route.
type Load struct {
	Stream, Route      string // one of them
	Class, Criticality uint32 // of the records, for the rules of a route
	Site, Host         string // of the writer; a ring on its own host has no way
	Rate               float64
	Peak               float64 // in a burst; 0 = Rate
	Burst              time.Duration
	Payload, Key       int // bytes of an average record
}

// Problem is one thing that is wrong: with a field of the fabric or the plan, by its path in the API or the file, such
// as fabric.streams[2].align.
type Problem struct {
	Field string `json:"field"`
	Value string `json:"value,omitempty"`
	Rule  string `json:"rule"`
}

// checker collects all that is wrong with an input.
type checker struct {
	in       Input
	problems []Problem
	given    int             // loads, of which there are more where streams declare their rates
	isTold   map[string]bool // fields of which the control plane would say something
}

// Check lists what is wrong with an input by itself: all that farlog apply refuses of its fabric where nothing is yet,
// and in what only a plan has names that are not declared or come twice, and loads that say too little. What is listed
// here cannot be planned.
func Check(in Input) ([]Problem, error) {
	problems, err := CheckFabric(in)
	if err != nil {
		return nil, err
	}
	given := len(in.Loads)
	in = in.withDeclaredLoads()
	c := checker{in: in, given: given, problems: problems, isTold: map[string]bool{}}
	for _, one := range problems {
		c.isTold[one.Field] = true
	}
	if in.Outage <= 0 {
		c.fail("plan.outage", "", "expected how long a drain or its store may be away, such as 30m")
	}
	c.checkNames()
	c.checkFabric()
	for i, load := range in.Loads {
		c.checkLoad(fmt.Sprintf("plan.load[%d]", i), load)
	}
	c.checkLoaded()
	return c.problems, nil
}

// withDeclaredLoads adds what streams declare to have of which no load is given: the rates of the fabric itself.
func (in Input) withDeclaredLoads() Input {
	given := in.Loads
	in.Loads = slices.Clone(given)
	for _, spec := range in.Fabric.Streams {
		if spec.RecordsPerSecond == 0 || spec.BytesPerSecond == 0 ||
			len((Input{Fabric: in.Fabric, Loads: given}).loadsOf(spec.Name)) > 0 {
			continue
		}
		in.Loads = append(in.Loads, Load{
			Stream: spec.Name, Rate: float64(spec.RecordsPerSecond),
			Payload: int((spec.BytesPerSecond + spec.RecordsPerSecond - 1) / spec.RecordsPerSecond),
		})
	}
	return in
}

// CheckFabric lists what farlog apply refuses of a fabric where nothing is yet, as the control plane does.
func CheckFabric(in Input) (problems []Problem, err error) {
	world := check.World{DrainHosts: map[string]bool{}, Now: never}
	for _, drain := range in.Drains {
		world.DrainHosts[drain.Host] = true
	}
	found, err := check.Fabric(world, check.Complete(in.Fabric))
	for _, one := range found.Problems {
		problems = append(problems, Problem{one.Field, one.Value, one.Rule})
	}
	return problems, err
}

// fail adds a problem, unless one of that field is told already.
func (c *checker) fail(field, value, rule string, args ...any) {
	if c.isTold["fabric."+field] {
		return
	}
	c.problems = append(c.problems, Problem{"fabric." + field, value, fmt.Sprintf(rule, args...)})
}

func (c *checker) checkNames() {
	once(c, "plan.sites", "name", c.in.Sites, func(s Site) string { return s.Name })
	once(c, "plan.targets", "host", c.in.Targets, func(t Target) string { return t.Host })
	once(c, "plan.drains", "host", c.in.Drains, func(d Drain) string { return d.Host })
}

func once[M any](c *checker, list, field string, items []M, nameOf func(M) string) {
	first := map[string]int{}
	for i, item := range items {
		name, at := nameOf(item), fmt.Sprintf("%s[%d].%s", list, i, field)
		before, isThere := first[name]
		switch {
		case name == "":
			c.fail(at, "", "expected a %s", field)
		case isThere:
			c.fail(at, fmt.Sprintf("%q", name), "expected each %s once: %s[%d] is the same", field, list, before)
		default:
			first[name] = i
		}
	}
}

// checkFabric looks for hosts and sites that nothing is said of.
func (c *checker) checkFabric() {
	in := c.in
	if len(in.Fabric.Streams) == 0 {
		c.fail("streams", "", "expected at least one")
	}
	for i, stream := range in.Fabric.Streams {
		at := fmt.Sprintf("streams[%d].", i)
		if host := stream.TargetHost; host != "" && in.target(host) == nil {
			c.fail(at+"target_host", fmt.Sprintf("%q", host), "expected a host under targets")
		}
		if host := stream.DrainHost; host != "" && !slices.Contains(in.drainHosts(), host) {
			c.fail(at+"drain_host", fmt.Sprintf("%q", host), "expected a host under drains")
		}
	}
	for i, target := range in.Targets {
		if target.Host != "" && in.target(target.Host) == nil {
			c.fail(fmt.Sprintf("plan.targets[%d].host", i), fmt.Sprintf("%q", target.Host),
				"expected a host under targets")
		}
	}
	for i, link := range in.Links {
		at := fmt.Sprintf("plan.links[%d].", i)
		c.checkSite(at+"from", link.From, true)
		c.checkSite(at+"to", link.To, true)
		if link.From == link.To && link.From != "" {
			c.fail(at+"to", fmt.Sprintf("%q", link.To), "expected another site than from")
		}
	}
	for i, target := range in.Fabric.Targets {
		c.checkSite(fmt.Sprintf("targets[%d].site", i), target.Site, false)
	}
	for i, drain := range in.Drains {
		c.checkSite(fmt.Sprintf("plan.drains[%d].site", i), drain.Site, false)
	}
}

// checkSite looks at the name of a site, where sites are declared.
func (c *checker) checkSite(at, name string, isNeeded bool) {
	isThere := slices.ContainsFunc(c.in.Sites, func(s Site) bool { return s.Name == name })
	switch {
	case name == "" && isNeeded:
		c.fail(at, "", "expected a site under plan.sites")
	case name != "" && !isThere && (isNeeded || len(c.in.Sites) > 0):
		c.fail(at, fmt.Sprintf("%q", name), "expected a site under plan.sites")
	}
}

func (c *checker) checkLoad(at string, load Load) {
	if (load.Stream == "") == (load.Route == "") {
		c.fail(at+".stream", "", "expected a stream or else a route")
	}
	if load.Stream != "" && c.in.stream(load.Stream) == nil {
		c.fail(at+".stream", fmt.Sprintf("%q", load.Stream), "expected a stream under streams")
	}
	if load.Route != "" && c.in.route(load.Route) == nil {
		c.fail(at+".route", fmt.Sprintf("%q", load.Route), "expected a route under routes")
	}
	if load.Rate <= 0 {
		c.fail(at+".rate", fmt.Sprint(load.Rate), "expected records a second, more than 0")
	}
	if load.Payload <= 0 {
		c.fail(at+".payload", fmt.Sprint(load.Payload), "expected the bytes of an average record, more than 0")
	}
	if load.Peak != 0 && (load.Peak < load.Rate || load.Burst == 0) {
		c.fail(at+".peak", fmt.Sprint(load.Peak), "expected at least the rate, and burst: how long it lasts")
	}
	c.checkSite(at+".site", load.Site, false)
	if host := load.Host; host != "" && load.Site == "" && c.in.target(host) == nil {
		c.fail(at+".host", fmt.Sprintf("%q", host), "expected a host under targets, or a site beside it")
	}
}

// checkLoaded looks for streams with writers in several places: a stream has one. One that nothing is said to be
// appended to is no mistake, and Make leaves it out aloud.
func (c *checker) checkLoaded() {
	if len(c.problems) > 0 {
		return // which would make further ones of these
	}
	for i, stream := range c.in.Fabric.Streams {
		loads := c.in.loadsOf(stream.Name)
		c.checkDeclared(i, stream, loads)
		for _, at := range loads[min(1, len(loads)):] {
			if first, one := c.in.Loads[loads[0]], c.in.Loads[at]; first.Site != one.Site || first.Host != one.Host {
				c.fail(fmt.Sprintf("plan.load[%d].site", at), fmt.Sprintf("%q", one.Site),
					"expected the same site and host as plan.load[%d]: stream %q has one writer", loads[0], stream.Name)
			}
		}
	}
	for i, load := range c.in.Loads {
		if load.Route != "" && len(c.in.legsOf(load)) == 0 {
			c.fail(fmt.Sprintf("plan.load[%d].route", i), fmt.Sprintf("%q", load.Route),
				"expected a rule that selects class %d with criticality %d: none of its rules does", load.Class,
				load.Criticality)
		}
	}
}

// checkDeclared looks whether the loads of a stream together are what it declares to have, which its tenant's quota
// counts.
func (c *checker) checkDeclared(i int, stream *api.StreamSpec, loads []int) {
	var records, bytes float64
	for _, at := range loads {
		load := c.in.Loads[at]
		records, bytes = records+load.Rate, bytes+load.Rate*float64(load.Payload+load.Key)
	}
	isDerived := len(loads) == 1 && loads[0] >= c.given
	if stream.RecordsPerSecond == 0 || isDerived {
		return
	}
	if records > float64(stream.RecordsPerSecond) {
		c.fail(fmt.Sprintf("streams[%d].records_per_second", i), fmt.Sprint(stream.RecordsPerSecond),
			"expected at least %.0f, which is the sum of the loads under plan.load", math.Ceil(records))
	}
	if bytes > float64(stream.BytesPerSecond) {
		c.fail(fmt.Sprintf("streams[%d].bytes_per_second", i), fmt.Sprint(stream.BytesPerSecond),
			"expected at least %.0f, which is the sum of the loads under plan.load", math.Ceil(bytes))
	}
}

func (in Input) target(host string) *api.TargetSpec {
	return named(in.Fabric.Targets, (*api.TargetSpec).GetHost, host)
}

func (in Input) stream(name string) *api.StreamSpec {
	return named(in.Fabric.Streams, (*api.StreamSpec).GetName, name)
}

func (in Input) route(name string) *api.RouteSpec {
	return named(in.Fabric.Routes, (*api.RouteSpec).GetName, name)
}

func named[M any](list []*M, nameOf func(*M) string, name string) *M {
	if at := slices.IndexFunc(list, func(one *M) bool { return nameOf(one) == name }); at >= 0 {
		return list[at]
	}
	return nil
}

// drainHosts are all hosts with a drain of which something is said, each once.
func (in Input) drainHosts() (hosts []string) {
	for _, drain := range in.Fabric.Drains {
		hosts = append(hosts, drain.Host)
	}
	for _, drain := range in.Drains {
		if !slices.Contains(hosts, drain.Host) {
			hosts = append(hosts, drain.Host)
		}
	}
	return hosts
}
