package plan

import (
	"cmp"
	"fmt"
	"slices"
)

// addRoute adds up the legs of a load: all are written at once, so an acknowledgement is as late as the slowest of
// those that are required.
func (m *maker) addRoute(number int, load Load) {
	one := RoutePlan{
		Name: load.Route, Class: load.Class, Criticality: load.Criticality,
		From: cmp.Or(load.Host, load.Site),
	}
	for _, leg := range m.in.legsOf(load) {
		stream := m.plan.Streams[slices.IndexFunc(m.plan.Streams,
			func(s StreamPlan) bool { return s.Name == leg.Stream })]
		align := int(m.in.stream(leg.Stream).Align)
		setDefault(&align, 64)
		one.Legs = append(one.Legs, LegPlan{leg.Stream, leg.Optional, stream.FloorSeconds})
		for _, member := range stream.Members {
			if bits := 8 * wireBytes(RecordBytes(load.Payload, load.Key, align),
				m.in.planned(member.Target).MTU); !member.isHere {
				one.WireBits, one.PeakWireBits = one.WireBits+load.Rate*bits, one.PeakWireBits+load.Peak*bits
			}
		}
		if leg.Optional {
			continue
		}
		if one.Slowest == "" || stream.FloorSeconds > one.FloorSeconds {
			one.Slowest, one.FloorSeconds = leg.Stream, stream.FloorSeconds
		}
		if deadline := leg.Deadline.AsDuration(); deadline > 0 && stream.FloorSeconds > deadline.Seconds() {
			m.fail(fmt.Sprintf("plan.load[%d].route", number), fmt.Sprintf("%q", load.Route),
				"its leg %s has a deadline of %s, and an append takes at least %s", leg.Stream, deadline,
				seconds(stream.FloorSeconds))
		}
	}
	m.plan.Routes = append(m.plan.Routes, one)
}

func (m *maker) checkLinks() {
	for i, link := range m.in.Links {
		if link.Bits == 0 {
			continue
		}
		sum := &m.plan.Links[i]
		if sum.Load = max(sum.ThereBits, sum.BackBits) / link.Bits; sum.Load > linkLoadMost {
			m.fail(fmt.Sprintf("plan.links[%d].bandwidth", i), "",
				"link %s - %s is loaded to %.0f %% at the peak, expected at most %.0f %%", link.From, link.To,
				100*sum.Load, 100*linkLoadMost)
		}
	}
}

func (m *maker) checkTargets() {
	for i := range m.plan.Targets {
		sum := &m.plan.Targets[i]
		target, at := m.in.planned(sum.Host), fmt.Sprintf("targets[%d]", i)
		if j := slices.IndexFunc(m.in.Targets, func(t Target) bool { return t.Host == sum.Host }); j >= 0 {
			at = fmt.Sprintf("plan.targets[%d]", j)
		}
		if sum.LinkLoad > linkLoadMost {
			m.fail(at+".link", "", "the link of target %s is loaded to %.0f %% at the peak, expected at most %.0f %%",
				sum.Host, 100*sum.LinkLoad, 100*linkLoadMost)
		}
		if sum.MediaLoad > 1 {
			m.fail(at+".write_per_second", "", "the media of target %s would have to take %.0f %% of what they can "+
				"at the peak", sum.Host, 100*sum.MediaLoad)
		}
		if target.Endurance > 0 && sum.BytesPerYear > 0 {
			sum.WearPerYear, sum.LifeYears = sum.BytesPerYear/target.Endurance, target.Endurance/sum.BytesPerYear
			if sum.LifeYears < m.in.Life {
				m.fail(at+".endurance", "", "the media of target %s last %.1f years, expected %.1f", sum.Host,
					sum.LifeYears, m.in.Life)
			}
		}
	}
}

// checkDrains finds drains that never catch up. What came while they were away is stored beside what still comes.
func (m *maker) checkDrains() {
	for i, drain := range m.in.Drains {
		sum := &m.plan.Drains[slices.IndexFunc(m.plan.Drains, func(d DrainPlan) bool { return d.Host == drain.Host })]
		if sum.Load >= 1 {
			m.fail(fmt.Sprintf("plan.drains[%d].store_per_second", i), "",
				"the store of drain %s would have to take %.0f %% of what it can: it never catches up", drain.Host,
				100*sum.Load)
		} else if drain.StoreBytes > 0 {
			sum.CatchUpSeconds = sum.backlog / (drain.StoreBytes * (1 - sum.Load))
		}
	}
	for i := range m.plan.Streams {
		one := &m.plan.Streams[i]
		if at := slices.IndexFunc(m.plan.Drains, func(d DrainPlan) bool { return d.Host == one.Drain }); at >= 0 {
			one.CatchUpSeconds = m.plan.Drains[at].CatchUpSeconds
		}
	}
}
