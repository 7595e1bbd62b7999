// Package plan works out what declared rates ask of rings, links, media and drains, and refuses what cannot hold. It is arithmetic: it asks nobody, and
// measures nothing. docs/planning.md has the formulas with their sources.
package plan

import (
	"fmt"
	"math"
	"time"
)

// Fixed numbers. docs/format.md has the record's; the headers are those of RoCE version 2 over IPv4.
const (
	recordOverhead = 56 + 8 // header and trailer
	ringHeader     = 0x3000
	ringAlign      = 4096

	ringFillMost = 0.85 // the alarm mark: at the end of the outage the ring is just there
	linkLoadMost = 0.8  // beyond it queues in switches grow out of proportion

	fibrePerKM    = 5 * time.Microsecond // one way
	yearSeconds   = 365 * 24 * 3600
	packetHeaders = 8 + 14 + 4 + 12 + 20 + 8 + 12 + 4 // preamble, Ethernet, FCS, gap, IPv4, UDP, BTH, ICRC
	writeHeader   = 16                                // RETH, in the first packet of a WRITE
	flushRequest  = packetHeaders + writeHeader       // of a READ or FLUSH
)

// Input is what is declared.
type Input struct {
	Outage  time.Duration // how long a drain or its store may be away
	Hours   float64       // a day that are traded; 0 = 24
	Days    float64       // a year; 0 = 365
	Life    float64       // years that media shall last; 0 = 5
	Targets []Target
	Drains  []Drain
	Streams []Stream
}

// Target is a host with rings.
type Target struct {
	Name          string
	LinkBits      float64 // a second, of its card; 0 = it has none that counts
	MTU           int     // of the path, as RoCE has it; 0 = 4096
	CapacityBytes uint64  // for rings; 0 = any
	WriteBytes    float64 // a second that its media takes; 0 = any
	Endurance     float64 // bytes that may be written in its life; 0 = media that do not wear
	WriteFactor   float64 // bytes that wear the media for each that is written; 0 = 1
	Flush         time.Duration
}

// Drain is where streams are stored.
type Drain struct {
	Name       string
	StoreBytes float64 // a second that its store takes, synced
}

// Route is the way from a writer to its target.
type Route struct {
	KM     float64
	Hops   int           // switches and other gear on the way
	Hop    time.Duration // that one of them takes, one way
	Card   time.Duration // both cards and buses, one way
	IsHere bool          // the ring is on the writer's own host
}

// Stream is one writer's log.
type Stream struct {
	Name          string
	Target, Drain string
	Rate          float64       // records a second, over the outage
	Peak          float64       // in a burst; 0 = Rate
	Burst         time.Duration // how long that lasts
	Payload, Key  int           // bytes of a record
	Align         int           // of the ring; 0 = 64
	Ring          uint64        // its size; 0 = to be found
	Deadline      time.Duration // of an append; 0 = none
	Route         Route
}

// Plan is what comes of it.
type Plan struct {
	Streams  []StreamPlan `json:"streams"`
	Targets  []TargetPlan `json:"targets"`
	Drains   []DrainPlan  `json:"drains"`
	Problems []string     `json:"problems"` // why it cannot hold; none: it can
}

// StreamPlan is what one stream asks for.
type StreamPlan struct {
	Name            string  `json:"stream"`
	RecordBytes     uint64  `json:"record_bytes"` // in the ring, with header, trailer and fill
	RingBytes       uint64  `json:"ring_bytes"`
	OutageSeconds   float64 `json:"outage_seconds"` // that this ring bridges, to the alarm mark
	WireBits        float64 `json:"wire_bits_per_second"`
	PeakWireBits    float64 `json:"peak_wire_bits_per_second"`
	FibreSeconds    float64 `json:"fibre_seconds"` // there and back
	GearSeconds     float64 `json:"gear_seconds"`
	FloorSeconds    float64 `json:"append_floor_seconds"`
	CatchUpSeconds  float64 `json:"catch_up_seconds"` // of all streams of its drain, after the outage
	BytesPerYear    float64 `json:"bytes_per_year"`
	RecordsPerFlush float64 `json:"records_per_flush"` // at the peak, one behind the other: 1, more where they come faster than the floor
}

// TargetPlan is what its streams ask of a target.
type TargetPlan struct {
	Name         string  `json:"target"`
	RingBytes    uint64  `json:"ring_bytes"`
	LinkLoad     float64 `json:"peak_link_load"` // of 1; 0 = not known
	MediaLoad    float64 `json:"peak_media_load"`
	BytesPerYear float64 `json:"bytes_per_year"`
	WearPerYear  float64 `json:"wear_per_year"` // of its endurance; 0 = it has none
	LifeYears    float64 `json:"life_years"`    // 0 = it does not wear
}

// DrainPlan is what its streams ask of a drain.
type DrainPlan struct {
	Name           string  `json:"drain"`
	Load           float64 `json:"store_load"` // of 1
	CatchUpSeconds float64 `json:"catch_up_seconds"`
}

// Make works it out. What does not hold is in Problems; names that are not declared are among them.
func Make(in Input) Plan {
	in = withDefaults(in)
	var p Plan
	for _, target := range in.Targets {
		p.Targets = append(p.Targets, TargetPlan{Name: target.Name})
	}
	for _, drain := range in.Drains {
		p.Drains = append(p.Drains, DrainPlan{Name: drain.Name})
	}
	backlog := make([]float64, len(in.Drains))
	for _, stream := range in.Streams {
		p.addStream(in, stream, backlog)
	}
	p.checkTargets(in)
	p.checkDrains(in, backlog)
	return p
}

func withDefaults(in Input) Input {
	setDefault(&in.Hours, 24)
	setDefault(&in.Days, 365)
	setDefault(&in.Life, 5)
	streams, targets := in.Streams, in.Targets
	in.Streams, in.Targets = nil, nil
	for _, stream := range streams {
		setDefault(&stream.Align, 64)
		stream.Peak = max(stream.Peak, stream.Rate)
		in.Streams = append(in.Streams, stream)
	}
	for _, target := range targets {
		setDefault(&target.MTU, 4096)
		setDefault(&target.WriteFactor, 1)
		in.Targets = append(in.Targets, target)
	}
	return in
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (p *Plan) fail(format string, args ...any) {
	p.Problems = append(p.Problems, fmt.Sprintf(format, args...))
}

// RecordBytes is what a record takes in a ring: docs/format.md, section 2.
func RecordBytes(payload, key, align int) uint64 {
	size := uint64(recordOverhead + payload + key)
	return (size + uint64(align) - 1) / uint64(align) * uint64(align)
}

// wireBytes is what a record takes on a link, with the flush behind it.
func wireBytes(record uint64, mtu int) float64 {
	packets := math.Ceil(float64(record) / float64(mtu))
	return float64(record) + packets*packetHeaders + writeHeader + flushRequest
}

func (p *Plan) addStream(in Input, stream Stream, backlog []float64) {
	target, at := find(in.Targets, func(t Target) string { return t.Name }, stream.Target)
	drain, drainAt := find(in.Drains, func(d Drain) string { return d.Name }, stream.Drain)
	if at < 0 {
		p.fail("stream %s: target %q is not declared", stream.Name, stream.Target)
		return
	}
	if drainAt < 0 {
		p.fail("stream %s: drain %q is not declared", stream.Name, stream.Drain)
		return
	}
	record := RecordBytes(stream.Payload, stream.Key, stream.Align)
	one := StreamPlan{Name: stream.Name, RecordBytes: record}
	burst := (stream.Peak - stream.Rate) * stream.Burst.Seconds()
	perSecond := stream.Rate * float64(record)
	waits := perSecond*in.Outage.Seconds() + burst*float64(record)
	one.RingBytes = ringFor(waits)
	if stream.Ring > 0 {
		if stream.Ring < one.RingBytes {
			p.fail("stream %s: ring of %d bytes: an outage of %s needs %d", stream.Name, stream.Ring, in.Outage, one.RingBytes)
		}
		one.RingBytes = stream.Ring
	}
	if perSecond > 0 {
		one.OutageSeconds = max(0, (ringFillMost*float64(one.RingBytes-min(one.RingBytes, ringHeader))-burst*float64(record))/perSecond)
	}
	wire := wireBytes(record, target.MTU)
	if !stream.Route.IsHere {
		one.WireBits, one.PeakWireBits = stream.Rate*wire*8, stream.Peak*wire*8
	}
	one.addLatency(stream.Route, target, wire)
	one.RecordsPerFlush = max(1, stream.Peak*one.FloorSeconds)
	if stream.Deadline > 0 && one.FloorSeconds > stream.Deadline.Seconds() {
		p.fail("stream %s: an append takes at least %s (fibre %s, gear %s), its deadline is %s", stream.Name, seconds(one.FloorSeconds), seconds(one.FibreSeconds),
			seconds(one.GearSeconds), stream.Deadline)
	}
	one.BytesPerYear = perSecond * in.Hours / 24 * in.Days / 365 * yearSeconds
	p.Streams = append(p.Streams, one)

	sum := &p.Targets[at]
	sum.RingBytes += one.RingBytes
	if target.LinkBits > 0 {
		sum.LinkLoad += one.PeakWireBits / target.LinkBits
	}
	if target.WriteBytes > 0 {
		sum.MediaLoad += stream.Peak * float64(record) / target.WriteBytes
	}
	sum.BytesPerYear += one.BytesPerYear * target.WriteFactor
	backlog[drainAt] += waits
	p.Drains[drainAt].Load += perSecond / max(drain.StoreBytes, math.SmallestNonzeroFloat64)
}

// ringFor is the size of a ring that is at its alarm mark when so many bytes wait.
func ringFor(waits float64) uint64 {
	size := math.Ceil(waits/ringFillMost) + ringHeader
	return uint64(math.Ceil(size/ringAlign)) * ringAlign
}

// addLatency adds up what no append can be faster than: there and back on fibre, through gear and cards, the bytes on the link once, the media.
func (s *StreamPlan) addLatency(route Route, target Target, wire float64) {
	s.FloorSeconds = target.Flush.Seconds()
	if route.IsHere {
		return
	}
	s.FibreSeconds = 2 * route.KM * fibrePerKM.Seconds()
	s.GearSeconds = 2 * (float64(route.Hops)*route.Hop.Seconds() + route.Card.Seconds())
	if target.LinkBits > 0 {
		s.GearSeconds += wire * 8 / target.LinkBits
	}
	s.FloorSeconds += s.FibreSeconds + s.GearSeconds
}

func (p *Plan) checkTargets(in Input) {
	for i, target := range in.Targets {
		sum := &p.Targets[i]
		if target.CapacityBytes > 0 && sum.RingBytes > target.CapacityBytes {
			p.fail("target %s: its rings need %d bytes, its capacity is %d", target.Name, sum.RingBytes, target.CapacityBytes)
		}
		if sum.LinkLoad > linkLoadMost {
			p.fail("target %s: its link is loaded to %.0f %% at the peak, expected at most %.0f %%", target.Name, 100*sum.LinkLoad, 100*linkLoadMost)
		}
		if sum.MediaLoad > 1 {
			p.fail("target %s: its media would have to take %.0f %% of what they can at the peak", target.Name, 100*sum.MediaLoad)
		}
		if target.Endurance > 0 && sum.BytesPerYear > 0 {
			sum.WearPerYear, sum.LifeYears = sum.BytesPerYear/target.Endurance, target.Endurance/sum.BytesPerYear
			if sum.LifeYears < in.Life {
				p.fail("target %s: its media last %.1f years, expected %.1f", target.Name, sum.LifeYears, in.Life)
			}
		}
	}
}

// checkDrains finds drains that never catch up. What came while they were away is stored beside what still comes.
func (p *Plan) checkDrains(in Input, backlog []float64) {
	for i, drain := range in.Drains {
		sum := &p.Drains[i]
		if sum.Load >= 1 {
			p.fail("drain %s: its store would have to take %.0f %% of what it can: it never catches up", drain.Name, 100*sum.Load)
			continue
		}
		if drain.StoreBytes > 0 {
			sum.CatchUpSeconds = backlog[i] / (drain.StoreBytes * (1 - sum.Load))
		}
	}
	for i := range p.Streams {
		for _, stream := range in.Streams {
			if stream.Name == p.Streams[i].Name {
				_, at := find(in.Drains, func(d Drain) string { return d.Name }, stream.Drain)
				p.Streams[i].CatchUpSeconds = p.Drains[at].CatchUpSeconds
			}
		}
	}
}

func find[T any](list []T, nameOf func(T) string, name string) (found T, at int) {
	for i, one := range list {
		if nameOf(one) == name {
			return one, i
		}
	}
	return found, -1
}

func seconds(count float64) time.Duration {
	return time.Duration(count * float64(time.Second)).Round(time.Nanosecond)
}
