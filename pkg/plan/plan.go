// Package plan works out what declared rates ask of rings, links, media and drains, and refuses what cannot hold. It is
// arithmetic: it asks nobody, and measures nothing. docs/reference/plan.md has the formulas with their sources.
package plan

import (
	"fmt"
	"math"
	"slices"
	"time"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/check"
)

// Fixed numbers. docs/reference/format.md has the record's; the headers are those of RoCE version 2 over IPv4.
const (
	recordOverhead = 56 + 8 // header and trailer
	ringHeader     = 0x3000
	ringAlign      = 4096
	ringSizeMost   = 16 << 40 // which the control plane takes

	ringFillMost = 0.85 // the alarm mark: at the end of the outage the ring is just there
	linkLoadMost = 0.8  // beyond it queues in switches grow out of proportion

	fibrePerKM    = 5 * time.Microsecond // one way
	yearSeconds   = 365 * 24 * 3600
	packetHeaders = 8 + 14 + 4 + 12 + 20 + 8 + 12 + 4 // preamble, Ethernet, FCS, gap, IPv4, UDP, BTH, ICRC
	writeHeader   = 16                                // RETH, in the first packet of a WRITE
	flushRequest  = packetHeaders + writeHeader       // of a READ or FLUSH
)

// Plan is what comes of an input.
type Plan struct {
	Streams  []StreamPlan `json:"streams"`
	Routes   []RoutePlan  `json:"routes,omitempty"`
	Links    []LinkPlan   `json:"links,omitempty"`
	Targets  []TargetPlan `json:"targets"`
	Drains   []DrainPlan  `json:"drains"`
	Problems []Problem    `json:"problems,omitempty"` // why it cannot hold; none: it can
}

// StreamPlan is what one stream asks for.
type StreamPlan struct {
	Name          string       `json:"stream"`
	From          string       `json:"from"`         // the writer's host or site
	RecordBytes   uint64       `json:"record_bytes"` // of an average one in the ring, with header, trailer and fill
	RingBytes     uint64       `json:"ring_bytes"`   // as it is declared
	NeedBytes     uint64       `json:"ring_needed_bytes"`
	OutageSeconds float64      `json:"outage_seconds"` // that this ring bridges, to the alarm mark
	Needed        int          `json:"needed"`         // members that an acknowledgement waits for
	Members       []MemberPlan `json:"members"`        // the nearest first
	WireBits      float64      `json:"wire_bits_per_second"`
	PeakWireBits  float64      `json:"peak_wire_bits_per_second"` // to all members
	// FloorSeconds is that of the last member that an acknowledgement waits for.
	FloorSeconds float64 `json:"append_floor_seconds"`
	// RecordsPerFlush is at the peak with sequential appends: 1, more where records come faster than the floor.
	RecordsPerFlush float64 `json:"records_per_flush"`
	Drain           string  `json:"drain"`
	CatchUpSeconds  float64 `json:"catch_up_seconds"` // of all streams of its drain, after the outage
	BytesPerYear    float64 `json:"bytes_per_year"`   // to each member
}

// MemberPlan is one of a stream's rings, and its way from the writer.
type MemberPlan struct {
	Target       string  `json:"target"`
	FibreSeconds float64 `json:"fibre_seconds"` // there and back
	GearSeconds  float64 `json:"gear_seconds"`
	FlushSeconds float64 `json:"flush_seconds"`
	FloorSeconds float64 `json:"append_floor_seconds"`
	path         sitePath
	isHere       bool
}

// RoutePlan is what one load asks of the legs of its route.
type RoutePlan struct {
	Name        string    `json:"route"`
	Class       uint32    `json:"class"`
	Criticality uint32    `json:"criticality"`
	From        string    `json:"from"`
	Legs        []LegPlan `json:"legs"`
	// Slowest is the slowest leg that an acknowledgement waits for; "": it waits for none.
	Slowest      string  `json:"slowest_leg"`
	FloorSeconds float64 `json:"append_floor_seconds"` // of that leg
	WireBits     float64 `json:"wire_bits_per_second"`
	PeakWireBits float64 `json:"peak_wire_bits_per_second"` // to all members of all legs
}

// LegPlan is one stream of a route.
type LegPlan struct {
	Stream       string  `json:"stream"`
	IsOptional   bool    `json:"optional"`
	FloorSeconds float64 `json:"append_floor_seconds"`
}

// LinkPlan is what crosses a link: appends, and what drains read.
type LinkPlan struct {
	From         string  `json:"from"`
	To           string  `json:"to"`
	FibreSeconds float64 `json:"fibre_seconds"` // one way
	GearSeconds  float64 `json:"gear_seconds"`
	ThereBits    float64 `json:"peak_bits_per_second"`      // at the peak, from From to To
	BackBits     float64 `json:"peak_bits_per_second_back"` // and from To to From
	Load         float64 `json:"peak_load"`                 // of 1, of the fuller direction; 0 = not known
}

// TargetPlan is what its streams ask of a target.
type TargetPlan struct {
	Host         string  `json:"host"`
	Site         string  `json:"site"`
	RingBytes    uint64  `json:"ring_bytes"`
	LinkLoad     float64 `json:"peak_link_load"` // of 1; 0 = not known
	MediaLoad    float64 `json:"peak_media_load"`
	BytesPerYear float64 `json:"bytes_per_year"`
	WearPerYear  float64 `json:"wear_per_year"` // of its endurance; 0 = it has none
	LifeYears    float64 `json:"life_years"`    // 0 = it does not wear
}

// DrainPlan is what its streams ask of a drain.
type DrainPlan struct {
	Host           string  `json:"host"`
	Site           string  `json:"site"`
	Streams        int     `json:"streams"`
	Load           float64 `json:"store_load"` // of 1; 0 = not known
	CatchUpSeconds float64 `json:"catch_up_seconds"`
	backlog        float64
}

// maker fills a plan.
type maker struct {
	in    Input
	plan  Plan
	paths map[string]map[string]sitePath // by the site that they begin at
}

// Make works out an input of which Check has nothing to say. What does not hold is in Problems, and so is each stream
// of which nobody says what is appended to it: of that one only the declared ring is planned, and the sums are of the
// others.
func Make(in Input) Plan {
	in = in.withDeclaredLoads()
	m := &maker{in: withDefaults(in), paths: map[string]map[string]sitePath{}}
	for _, target := range in.Fabric.Targets {
		m.plan.Targets = append(m.plan.Targets, TargetPlan{Host: target.Host, Site: target.Site})
	}
	for _, host := range in.drainHosts() {
		m.plan.Drains = append(m.plan.Drains, DrainPlan{Host: host, Site: in.drainSite(host)})
	}
	for _, link := range in.Links {
		m.plan.Links = append(m.plan.Links, LinkPlan{
			From: link.From, To: link.To,
			FibreSeconds: link.KM * fibrePerKM.Seconds(), GearSeconds: (time.Duration(link.Hops) * link.Hop).Seconds(),
		})
	}
	traffics, rings := map[string]traffic{}, map[string]uint64{}
	for _, spec := range in.Fabric.Streams {
		one := m.in.trafficOf(spec)
		traffics[spec.Name], rings[spec.Name] = one, max(ringOf(spec), one.ring(in.Outage))
	}
	places := newPlacing(in, rings)
	places.run()
	for i, spec := range in.Fabric.Streams {
		if len(in.loadsOf(spec.Name)) == 0 {
			m.fail(fmt.Sprintf("streams[%d].name", i), fmt.Sprintf("%q", spec.Name), "expected a load under "+
				"plan.load, or records_per_second and bytes_per_second of its own: nothing is said of what is "+
				"appended to it, and this plan is of the others")
			continue
		}
		m.addStream(i, spec, traffics[spec.Name], places)
	}
	for i, load := range in.Loads {
		if load.Route != "" {
			m.addRoute(i, m.in.Loads[i])
		}
	}
	m.checkLinks()
	m.checkTargets()
	m.checkDrains()
	return m.plan
}

func withDefaults(in Input) Input {
	setDefault(&in.Hours, 24)
	setDefault(&in.Days, 365)
	setDefault(&in.Life, 5)
	in.Loads, in.Targets = slices.Clone(in.Loads), slices.Clone(in.Targets)
	for i := range in.Loads {
		load := &in.Loads[i]
		load.Peak = max(load.Peak, load.Rate)
		if spec := in.target(load.Host); load.Site == "" && spec != nil {
			load.Site = spec.Site
		}
	}
	for i := range in.Targets {
		setDefault(&in.Targets[i].MTU, 4096)
		setDefault(&in.Targets[i].WriteFactor, 1)
	}
	return in
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (m *maker) fail(field, value, rule string, args ...any) {
	m.plan.Problems = append(m.plan.Problems, Problem{"fabric." + field, value, fmt.Sprintf(rule, args...)})
}

// pathsFrom are the ways from a site to all others.
func (m *maker) pathsFrom(site string) map[string]sitePath {
	if m.paths[site] == nil {
		m.paths[site] = m.in.shortestPaths(site)
	}
	return m.paths[site]
}

// planned is what a plan knows of a target; one of which nothing is said has neither limits nor times.
func (in Input) planned(host string) Target {
	for _, target := range in.Targets {
		if target.Host == host {
			return target
		}
	}
	return Target{Host: host, MTU: 4096, WriteFactor: 1}
}

func (in Input) drainSite(host string) string {
	for _, drain := range in.Drains {
		if drain.Host == host && drain.Site != "" {
			return drain.Site
		}
	}
	return in.target(host).GetSite()
}

// ringOf is the size of a stream's ring as farlog apply would make it.
func ringOf(spec *api.StreamSpec) uint64 {
	if spec.RingSizeBytes == 0 {
		return check.RingSizeDefault
	}
	return spec.RingSizeBytes
}

// RecordBytes is what a record takes in a ring: docs/reference/format.md, section 2.
func RecordBytes(payload, key, align int) uint64 {
	size := uint64(recordOverhead + payload + key)
	return (size + uint64(align) - 1) / uint64(align) * uint64(align)
}

// wireBytes is what a record takes on a link, with the flush behind it.
func wireBytes(record uint64, mtu int) float64 {
	packets := math.Ceil(float64(record) / float64(mtu))
	return float64(record) + packets*packetHeaders + writeHeader + flushRequest
}

// ringFor is the size of a ring that is at its alarm mark when so many bytes wait, or 4 EiB where that is more.
func ringFor(waits float64) uint64 {
	size := min(math.Ceil(waits/ringFillMost)+ringHeader, 1<<62)
	return uint64(math.Ceil(size/ringAlign)) * ringAlign
}

func seconds(count float64) time.Duration {
	return time.Duration(count * float64(time.Second)).Round(time.Nanosecond)
}
