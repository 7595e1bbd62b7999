package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/farlog/farlog/pkg/plan"
)

// printPlan writes a table for each kind of thing, each narrow enough for a screen.
func printPlan(writer io.Writer, made plan.Plan) error {
	var text bytes.Buffer
	for i, write := range []func(io.Writer, plan.Plan){
		printRings, printFloors, printRoutes, printLinks, printTargets,
		printDrains,
	} {
		before := text.Len()
		table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
		write(table, made)
		if err := table.Flush(); err != nil {
			return err
		}
		if i > 0 && text.Len() > before {
			whole := append([]byte("\n"), text.Bytes()[before:]...)
			text.Truncate(before)
			text.Write(whole)
		}
	}
	_, err := text.WriteTo(writer)
	return err
}

func printRings(table io.Writer, made plan.Plan) {
	fmt.Fprintln(table, "STREAM\tRECORD\tRING\tNEEDS\tBRIDGES\tDRAIN\tCATCHES UP IN\tA YEAR")
	for _, s := range made.Streams {
		tableRow(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", s.Name, humanBytes(s.RecordBytes), humanBytes(s.RingBytes),
			humanBytes(s.NeedBytes), humanSeconds(s.OutageSeconds),
			orDash(s.Drain), catchUpOf(made, s.Drain), humanBytes(uint64(s.BytesPerYear)))
	}
}

// printFloors writes a line for each ring, the nearest first; the one that an acknowledgement waits for last has the
// floor.
func printFloors(table io.Writer, made plan.Plan) {
	fmt.Fprintln(table, "STREAM\tFROM\tTO\tFIBRE\tGEAR\tMEDIA\tAPPEND AT LEAST\tPEAK\tRECORDS/FLUSH")
	for _, s := range made.Streams {
		for i, member := range s.Members {
			name, from, floor, rest := "", "", "", ""
			if i == 0 {
				name, from, rest = s.Name, orDash(s.From),
					fmt.Sprintf("\t%s\t%.1f", humanBits(s.PeakWireBits), s.RecordsPerFlush)
			}
			switch {
			case len(s.Members) == 1:
				floor = timeOrDash(s.FloorSeconds)
			case i == s.Needed-1:
				floor = fmt.Sprintf("%s (%d of %d)", humanSeconds(s.FloorSeconds), s.Needed, len(s.Members))
			}
			line := fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t%s%s", name, from, member.Target,
				timeOrDash(member.FibreSeconds), timeOrDash(member.GearSeconds), timeOrDash(member.FlushSeconds), floor,
				rest)
			fmt.Fprintln(table, strings.TrimRight(line, "\t"))
		}
	}
}

func printRoutes(table io.Writer, made plan.Plan) {
	if len(made.Routes) == 0 {
		return
	}
	fmt.Fprintln(table, "ROUTE\tCLASS\tCRIT\tFROM\tLEGS\tAPPEND AT LEAST\tBECAUSE OF\tMEAN\tPEAK")
	for _, r := range made.Routes {
		required := 0
		for _, leg := range r.Legs {
			if !leg.IsOptional {
				required++
			}
		}
		legs := fmt.Sprint(len(r.Legs))
		if required < len(r.Legs) {
			legs = fmt.Sprintf("%d+%d optional", required, len(r.Legs)-required)
		}
		tableRow(table, "%s\t%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Name, r.Class, r.Criticality, orDash(r.From), legs,
			timeOrDash(r.FloorSeconds), orDash(r.Slowest), humanBits(r.WireBits), humanBits(r.PeakWireBits))
	}
}

func printLinks(table io.Writer, made plan.Plan) {
	if len(made.Links) == 0 {
		return
	}
	fmt.Fprintln(table, "LINK\tFIBRE\tGEAR\tTHERE AT PEAK\tBACK AT PEAK\tLOAD")
	for _, l := range made.Links {
		tableRow(table, "%s - %s\t%s\t%s\t%s\t%s\t%s\n", l.From, l.To, timeOrDash(l.FibreSeconds),
			timeOrDash(l.GearSeconds), humanBits(l.ThereBits), humanBits(l.BackBits), percent(l.Load))
	}
}

func printTargets(table io.Writer, made plan.Plan) {
	fmt.Fprintln(table, "TARGET\tSITE\tRINGS\tLINK AT PEAK\tMEDIA AT PEAK\tWRITTEN A YEAR\tWEAR A YEAR\tLASTS")
	for _, t := range made.Targets {
		lasts := "-"
		if t.LifeYears > 0 {
			lasts = fmt.Sprintf("%.1f years", t.LifeYears)
		}
		tableRow(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", t.Host, orDash(t.Site), humanBytes(t.RingBytes),
			percent(t.LinkLoad), percent(t.MediaLoad), humanBytes(uint64(t.BytesPerYear)),
			percent(t.WearPerYear), lasts)
	}
}

func printDrains(table io.Writer, made plan.Plan) {
	fmt.Fprintln(table, "DRAIN\tSITE\tSTREAMS\tSTORE\tCATCHES UP IN")
	for _, d := range made.Drains {
		tableRow(table, "%s\t%s\t%d\t%s\t%s\n", d.Host, orDash(d.Site), d.Streams, percent(d.Load),
			catchUpOf(made, d.Host))
	}
}

// catchUpOf says how long a drain needs after an outage.
func catchUpOf(made plan.Plan, host string) string {
	for _, drain := range made.Drains {
		switch {
		case drain.Host != host:
		case drain.Load >= 1:
			return "never"
		default:
			return timeOrDash(drain.CatchUpSeconds)
		}
	}
	return "-"
}

func timeOrDash(seconds float64) string {
	if seconds == 0 {
		return "-"
	}
	return humanSeconds(seconds)
}

func percent(share float64) string {
	if share == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100*share)
}

func humanBits(bits float64) string {
	if bits == 0 {
		return "-"
	}
	unit := 0
	units := []string{"bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"}
	for bits >= 1000 && unit < len(units)-1 {
		bits /= 1000
		unit++
	}
	return threeDigits(bits) + " " + units[unit]
}
