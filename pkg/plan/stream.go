package plan

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// traffic is what is appended to a stream by all loads that lead to it.
type traffic struct {
	loads    []Load
	numbers  []int
	align    int
	rate     float64 // records a second
	peak     float64
	bytes    float64 // of the ring, a second
	peakByte float64
	burst    float64 // bytes beyond the rate
	largest  uint64  // record
}

func (in Input) trafficOf(spec *api.StreamSpec) traffic {
	t := traffic{align: int(spec.Align), numbers: in.loadsOf(spec.Name)}
	setDefault(&t.align, 64)
	for _, number := range t.numbers {
		load := in.Loads[number]
		record := RecordBytes(load.Payload, load.Key, t.align)
		t.loads = append(t.loads, load)
		t.rate += load.Rate
		t.peak += load.Peak
		t.bytes += load.Rate * float64(record)
		t.peakByte += load.Peak * float64(record)
		t.burst += (load.Peak - load.Rate) * load.Burst.Seconds() * float64(record)
		t.largest = max(t.largest, record)
	}
	return t
}

// waits is what waits in the ring at the end of an outage.
func (t traffic) waits(outage time.Duration) float64 { return t.bytes*outage.Seconds() + t.burst }

func (t traffic) ring(outage time.Duration) uint64 { return ringFor(t.waits(outage)) }

// wire is what goes to one ring, in bits a second.
func (t traffic) wire(mtu int) (mean, peak float64) {
	for _, load := range t.loads {
		bits := 8 * wireBytes(RecordBytes(load.Payload, load.Key, t.align), mtu)
		mean, peak = mean+load.Rate*bits, peak+load.Peak*bits
	}
	return mean, peak
}

func (m *maker) addStream(number int, spec *api.StreamSpec, t traffic, places *placing) {
	at := fmt.Sprintf("streams[%d].", number)
	one := StreamPlan{
		Name: spec.Name, From: cmp.Or(t.loads[0].Host, t.loads[0].Site),
		RecordBytes: uint64(t.bytes / t.rate), RingBytes: ringOf(spec), NeedBytes: t.ring(m.in.Outage),
		Needed: neededOf(spec),
	}
	if one.NeedBytes > ringSizeMost {
		m.fail(at+"ring_size_bytes", fmt.Sprint(one.RingBytes),
			"%s needs %d for an outage of %s, and a ring has at most 16TiB: spread the load over several streams",
			spec.Name, one.NeedBytes, m.in.Outage)
	} else if one.RingBytes < one.NeedBytes {
		m.fail(at+"ring_size_bytes", fmt.Sprint(one.RingBytes),
			"expected at least %d (size: %s), as %s needs for an outage of %s", one.NeedBytes, sizeText(one.NeedBytes),
			spec.Name, m.in.Outage)
	}
	one.OutageSeconds = max(0, (ringFillMost*float64(one.RingBytes-min(one.RingBytes, ringHeader))-t.burst)/t.bytes)
	one.BytesPerYear = t.bytes * m.in.Hours / 24 * m.in.Days / 365 * yearSeconds
	hosts, whyNot := places.targets(spec.Name)
	if whyNot != "" {
		m.fail(at+"target_host", "", "%s", whyNot)
	}
	for _, host := range hosts {
		m.addMember(&one, host, t)
	}
	slices.SortStableFunc(one.Members, func(a, b MemberPlan) int { return cmp.Compare(a.FloorSeconds, b.FloorSeconds) })
	if len(one.Members) >= one.Needed {
		one.FloorSeconds = one.Members[one.Needed-1].FloorSeconds
	}
	one.RecordsPerFlush = max(1, t.peak*one.FloorSeconds)
	if deadline := spec.Deadline.AsDuration(); deadline > 0 && one.FloorSeconds > deadline.Seconds() {
		last := one.Members[one.Needed-1]
		m.fail(at+"deadline", deadline.String(), "expected at least %s, which an append to %s to target %s takes "+
			"(fibre %s, gear %s)", seconds(one.FloorSeconds), spec.Name,
			last.Target, seconds(last.FibreSeconds), seconds(last.GearSeconds))
	}
	if drain, whyNot := places.drain(spec.Name); drain != "" {
		one.Drain = drain
		m.addDrain(at, one, t)
	} else if len(hosts) > 0 {
		m.fail(at+"drain_host", "", "%s", whyNot)
	}
	m.plan.Streams = append(m.plan.Streams, one)
}

// addMember adds a ring on a host to a stream, and what it asks of the host and of the links that lead there.
func (m *maker) addMember(one *StreamPlan, host string, t traffic) {
	target, spec := m.in.planned(host), m.in.target(host)
	member := MemberPlan{Target: host, FlushSeconds: target.Flush.Seconds(), isHere: t.loads[0].Host == host}
	way, isReached := m.pathsFrom(t.loads[0].Site)[spec.Site]
	if !isReached && !member.isHere {
		m.fail(fmt.Sprintf("plan.load[%d].site", t.numbers[0]), fmt.Sprintf("%q", t.loads[0].Site),
			"expected links that lead from there to site %q of target %s, where stream %q has a ring",
			spec.Site, host, one.Name)
		return
	}
	mean, peak := t.wire(target.MTU)
	if !member.isHere {
		member.path = way
		member.addLatency(m.in.Card, target, wireBytes(t.largest, target.MTU))
		one.WireBits, one.PeakWireBits = one.WireBits+mean, one.PeakWireBits+peak
		m.addLoad(way, peak)
	}
	member.FloorSeconds = member.FibreSeconds + member.GearSeconds + member.FlushSeconds
	one.Members = append(one.Members, member)
	sum := &m.plan.Targets[slices.IndexFunc(m.plan.Targets, func(t TargetPlan) bool { return t.Host == host })]
	sum.RingBytes += max(one.RingBytes, one.NeedBytes)
	if target.LinkBits > 0 && !member.isHere {
		sum.LinkLoad += peak / target.LinkBits
	}
	if target.WriteBytes > 0 {
		sum.MediaLoad += t.peakByte / target.WriteBytes
	}
	sum.BytesPerYear += one.BytesPerYear * target.WriteFactor
}

// addLatency adds up what no append can be faster than: there and back on fibre, through gear and cards, the bytes once
// on the slowest link.
func (p *MemberPlan) addLatency(card time.Duration, target Target, wire float64) {
	p.FibreSeconds = 2 * p.path.km * fibrePerKM.Seconds()
	p.GearSeconds = 2 * (p.path.gear + card).Seconds()
	if bits := slowest(target.LinkBits, p.path.bits); bits > 0 {
		p.GearSeconds += wire * 8 / bits
	}
}

// addLoad puts bits on the links of a way.
func (m *maker) addLoad(way sitePath, bits float64) {
	for _, at := range way.stages {
		link := &m.plan.Links[at.link]
		if at.isBack {
			link.BackBits += bits
		} else {
			link.ThereBits += bits
		}
	}
}

// addDrain gives a stream to its drain, which reads the ring that is nearest to it.
func (m *maker) addDrain(at string, one StreamPlan, t traffic) {
	sum := &m.plan.Drains[slices.IndexFunc(m.plan.Drains, func(d DrainPlan) bool { return d.Host == one.Drain })]
	sum.Streams++
	sum.backlog += t.waits(m.in.Outage)
	for _, drain := range m.in.Drains {
		if drain.Host == one.Drain && drain.StoreBytes > 0 {
			sum.Load += t.bytes / drain.StoreBytes
		}
	}
	if sum.Site == "" {
		return // nobody says where it is
	}
	var nearest *sitePath
	mtu := 0
	for _, member := range one.Members {
		if member.Target == one.Drain {
			return
		}
		way, isReached := m.pathsFrom(m.in.target(member.Target).Site)[sum.Site]
		if isReached && (nearest == nil || way.oneWay() < nearest.oneWay()) {
			nearest, mtu = &way, m.in.planned(member.Target).MTU
		}
	}
	if nearest == nil && len(one.Members) > 0 {
		m.fail(at+"drain_host", one.Drain, "expected links that lead from a ring of the stream to site %q of its drain",
			sum.Site)
	} else if nearest != nil {
		m.addLoad(*nearest, 8*t.peakByte*(1+packetHeaders/float64(mtu)))
	}
}

// sizeText is a size for size: in a fabric.yaml, at least as large.
func sizeText(bytes uint64) string {
	for _, unit := range []struct {
		name string
		size uint64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if bytes >= 10*unit.size {
			return fmt.Sprint((bytes+unit.size-1)/unit.size, unit.name)
		}
	}
	return fmt.Sprint(bytes)
}
