package main

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/farlog/farlog/pkg/config"
	"github.com/farlog/farlog/pkg/plan"
)

// plannedFields are the keys of plan: in a fabric.yaml. farlog apply reads what is in there, and leaves it aside.
var plannedFields = []fileField[*plan.Input]{
	plannedList("sites", siteFields, func(p *plan.Input) *[]plan.Site { return &p.Sites }),
	plannedList("links", linkFields, func(p *plan.Input) *[]plan.Link { return &p.Links }),
	plannedList("targets", plannedTargetFields, func(p *plan.Input) *[]plan.Target { return &p.Targets }),
	plannedList("drains", plannedDrainFields, func(p *plan.Input) *[]plan.Drain { return &p.Drains }),
	plannedList("load", loadFields, func(p *plan.Input) *[]plan.Load { return &p.Loads }),
	duration("outage", func(p *plan.Input) *time.Duration { return &p.Outage }),
	number("hours_per_day", 24, func(p *plan.Input) *float64 { return &p.Hours }),
	number("days_per_year", 366, func(p *plan.Input) *float64 { return &p.Days }),
	number("life_years", 100, func(p *plan.Input) *float64 { return &p.Life }),
	duration("card", func(p *plan.Input) *time.Duration { return &p.Card }),
}

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
	whole("class", 0, 65535, func(l *plan.Load) *uint32 { return &l.Class }),
	whole("criticality", 0, 255, func(l *plan.Load) *uint32 { return &l.Criticality }),
	text("site", func(l *plan.Load) *string { return &l.Site }),
	text("host", func(l *plan.Load) *string { return &l.Host }),
	number("rate", 1e12, func(l *plan.Load) *float64 { return &l.Rate }),
	number("peak", 1e12, func(l *plan.Load) *float64 { return &l.Peak }),
	duration("burst", func(l *plan.Load) *time.Duration { return &l.Burst }),
	whole("payload", 1, 1<<31, func(l *plan.Load) *int { return &l.Payload }),
	whole("key", 0, 65535, func(l *plan.Load) *int { return &l.Key }),
}

// plannedList is a key of plan: with a list. Nobody writes plan: back.
func plannedList[M any](key string, fields []fileField[*M], at func(*plan.Input) *[]M) fileField[*plan.Input] {
	return fileField[*plan.Input]{
		key: key, field: key,
		read: func(f *fabricFile, item *plan.Input, path string, node *yaml.Node) {
			list := at(item)
			readItems(f, path, node, fields, func() *M {
				*list = append(*list, *new(M))
				return &(*list)[len(*list)-1]
			})
		},
	}
}

// planned is a key of plan: with one value.
func planned[M, V any](key string, at func(M) *V, read func(string) (V, error)) fileField[M] {
	return fileField[M]{key: key, field: key, set: func(item M, text string) (err error) {
		*at(item), err = read(text)
		return err
	}}
}

func text[M any](key string, at func(M) *string) fileField[M] {
	return planned(key, at, func(text string) (string, error) { return text, nil })
}

func duration[M any](key string, at func(M) *time.Duration) fileField[M] {
	return planned(key, at, config.ParseDuration)
}

func number[M any](key string, most float64, at func(M) *float64) fileField[M] {
	return planned(key, at, func(text string) (float64, error) {
		value, err := strconv.ParseFloat(text, 64)
		if err != nil || !(value >= 0 && value <= most) {
			return 0, fmt.Errorf("expected a number from 0 to %v", most)
		}
		return value, nil
	})
}

func whole[M any, V int | uint32](key string, least, most int, at func(M) *V) fileField[M] {
	return planned(key, at, func(text string) (V, error) {
		value, err := strconv.Atoi(text)
		if err != nil || value < least || value > most {
			return 0, fmt.Errorf("expected a whole number from %d to %d", least, most)
		}
		return V(value), nil
	})
}

func quantity[M any](key string, units []unit, at func(M) *float64) fileField[M] {
	return planned(key, at, func(text string) (float64, error) { return readQuantity(text, units) })
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
