package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/farlog/farlog/pkg/config"
	"github.com/farlog/farlog/pkg/plan"
)

// plannedFields are the keys of plan: in a fabric.yaml that have one value. farlog apply reads what is in there, and
// leaves it aside.
var plannedFields = []fileField[*plan.Input]{
	duration("outage", func(p *plan.Input) *time.Duration { return &p.Outage }),
	number("hours_per_day", 24, func(p *plan.Input) *float64 { return &p.Hours }),
	number("days_per_year", 366, func(p *plan.Input) *float64 { return &p.Days }),
	number("life_years", 100, func(p *plan.Input) *float64 { return &p.Life }),
	duration("card", func(p *plan.Input) *time.Duration { return &p.Card }),
}

var plannedLists = []string{"sites", "links", "targets", "drains", "load"}

var siteFields = append([]fileField[*plan.Site]{text("name", func(s *plan.Site) *string { return &s.Name })},
	pathFields(func(s *plan.Site) *plan.Path { return &s.Path })...)

var linkFields = append([]fileField[*plan.Link]{
	text("from", func(l *plan.Link) *string { return &l.From }),
	text("to", func(l *plan.Link) *string { return &l.To }),
	quantity("bandwidth", bitUnits, func(l *plan.Link) *float64 { return &l.Bits }),
}, pathFields(func(l *plan.Link) *plan.Path { return &l.Path })...)

var plannedTargetFields = []fileField[*plan.Target]{
	text("host", func(t *plan.Target) *string { return &t.Host }),
	quantity("link", bitUnits, func(t *plan.Target) *float64 { return &t.LinkBits }),
	whole("mtu", 256, 4096, func(t *plan.Target) *int { return &t.MTU }),
	quantity("write_per_second", byteUnits, func(t *plan.Target) *float64 { return &t.WriteBytes }),
	quantity("endurance", byteUnits, func(t *plan.Target) *float64 { return &t.Endurance }),
	number("write_factor", 100, func(t *plan.Target) *float64 { return &t.WriteFactor }),
	duration("flush", func(t *plan.Target) *time.Duration { return &t.Flush }),
}

var plannedDrainFields = []fileField[*plan.Drain]{
	text("host", func(d *plan.Drain) *string { return &d.Host }),
	text("site", func(d *plan.Drain) *string { return &d.Site }),
	quantity("store_per_second", byteUnits, func(d *plan.Drain) *float64 { return &d.StoreBytes }),
}

var loadFields = []fileField[*plan.Load]{
	text("stream", func(l *plan.Load) *string { return &l.Stream }),
	text("route", func(l *plan.Load) *string { return &l.Route }),
	whole32("class", 65535, func(l *plan.Load) *uint32 { return &l.Class }),
	whole32("criticality", 255, func(l *plan.Load) *uint32 { return &l.Criticality }),
	text("site", func(l *plan.Load) *string { return &l.Site }),
	text("host", func(l *plan.Load) *string { return &l.Host }),
	number("rate", 1e12, func(l *plan.Load) *float64 { return &l.Rate }),
	number("peak", 1e12, func(l *plan.Load) *float64 { return &l.Peak }),
	duration("burst", func(l *plan.Load) *time.Duration { return &l.Burst }),
	whole("payload", 1, 1<<31, func(l *plan.Load) *int { return &l.Payload }),
	whole("key", 0, 65535, func(l *plan.Load) *int { return &l.Key }),
}

// readPlanned reads plan: of a fabric.yaml.
func (f *fabricFile) readPlanned(node *yaml.Node) {
	f.hasPlan = true
	known := slices.Clone(plannedLists)
	for _, field := range plannedFields {
		known = append(known, field.key)
	}
	for key, value := range f.members(node, "plan", known) {
		path := "plan." + key
		f.note(path, path, value)
		switch key {
		case "sites":
			f.planned.Sites = valuesOf(readItems(f, path, value, siteFields,
				func() *plan.Site { return new(plan.Site) }))
		case "links":
			f.planned.Links = valuesOf(readItems(f, path, value, linkFields,
				func() *plan.Link { return new(plan.Link) }))
		case "targets":
			f.planned.Targets = valuesOf(readItems(f, path, value, plannedTargetFields,
				func() *plan.Target { return new(plan.Target) }))
		case "drains":
			f.planned.Drains = valuesOf(readItems(f, path, value, plannedDrainFields,
				func() *plan.Drain { return new(plan.Drain) }))
		case "load":
			f.planned.Loads = valuesOf(readItems(f, path, value, loadFields,
				func() *plan.Load { return new(plan.Load) }))
		default:
			field := plannedFields[slices.IndexFunc(plannedFields,
				func(one fileField[*plan.Input]) bool { return one.key == key })]
			if err := field.read(&f.planned, value.Value); err != nil {
				f.fail(value, path, value.Value, ruleOf(err))
			}
		}
	}
}

func valuesOf[M any](items []*M) []M {
	values := make([]M, len(items))
	for i, item := range items {
		values[i] = *item
	}
	return values
}

// text, duration, number, whole and quantity are keys of plan:, which nobody writes back.
func text[M any](key string, at func(M) *string) fileField[M] {
	return fileField[M]{key: key, field: key, read: func(item M, text string) error { *at(item) = text; return nil }}
}

func duration[M any](key string, at func(M) *time.Duration) fileField[M] {
	return fileField[M]{key: key, field: key, read: func(item M, text string) (err error) {
		*at(item), err = config.ParseDuration(text)
		return err
	}}
}

func number[M any](key string, most float64, at func(M) *float64) fileField[M] {
	return fileField[M]{key: key, field: key, read: func(item M, text string) (err error) {
		if *at(item), err = strconv.ParseFloat(text, 64); err != nil || !(*at(item) >= 0 && *at(item) <= most) {
			return fmt.Errorf("expected a number from 0 to %v", most)
		}
		return nil
	}}
}

func whole[M any](key string, least, most int, at func(M) *int) fileField[M] {
	return fileField[M]{key: key, field: key, read: func(item M, text string) (err error) {
		if *at(item), err = strconv.Atoi(text); err != nil || *at(item) < least || *at(item) > most {
			return fmt.Errorf("expected a whole number from %d to %d", least, most)
		}
		return nil
	}}
}

func whole32[M any](key string, most int, at func(M) *uint32) fileField[M] {
	return fileField[M]{key: key, field: key, read: func(item M, text string) error {
		count, err := strconv.ParseUint(text, 10, 32)
		if *at(item) = uint32(count); err != nil || int(count) > most {
			return fmt.Errorf("expected a whole number from 0 to %d", most)
		}
		return nil
	}}
}

func quantity[M any](key string, units []unit, at func(M) *float64) fileField[M] {
	return fileField[M]{key: key, field: key, read: func(item M, text string) (err error) {
		*at(item), err = readQuantity(text, units)
		return err
	}}
}

// pathFields are the keys of whatever has a length and gear.
func pathFields[M any](at func(M) *plan.Path) []fileField[M] {
	return []fileField[M]{
		number("km", 40_000, func(item M) *float64 { return &at(item).KM }),
		whole("hops", 0, 100, func(item M) *int { return &at(item).Hops }),
		duration("hop", func(item M) *time.Duration { return &at(item).Hop }),
	}
}

// unit is a name and how many it is; those that end in others come first.
type unit struct {
	name string
	size float64
}

// Makers of disks and links count by thousands, rings by 1024: both are taken, and told apart.
var byteUnits = []unit{
	{"KiB", 1 << 10},
	{"MiB", 1 << 20},
	{"GiB", 1 << 30},
	{"TiB", 1 << 40},
	{"PiB", 1 << 50},
	{"KB", 1e3},
	{"MB", 1e6},
	{"GB", 1e9},
	{"TB", 1e12},
	{"PB", 1e15},
	{"B", 1},
}
var bitUnits = []unit{{"Gbit", 1e9}, {"Mbit", 1e6}, {"Tbit", 1e12}}

// readQuantity reads a number with a unit, such as 64GiB, 3.6PB or 100Gbit.
func readQuantity(text string, units []unit) (float64, error) {
	var names []string
	for _, one := range units {
		names = append(names, one.name)
	}
	for _, one := range units {
		if number, ok := strings.CutSuffix(text, one.name); ok {
			if value, err := strconv.ParseFloat(number, 64); err == nil && value > 0 && !math.IsInf(value, 0) {
				return value * one.size, nil
			}
			break
		}
	}
	return 0, errors.New("expected a number with one of " + strings.Join(names, ", "))
}
