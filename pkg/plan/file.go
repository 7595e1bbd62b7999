package plan

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// file is a plan.yaml. Everything with a unit is text, so that none is guessed.
type file struct {
	Outage string       `json:"outage"`
	Hours  float64      `json:"hours_per_day"`
	Days   float64      `json:"days_per_year"`
	Life   float64      `json:"life_years"`
	Target []fileTarget `json:"targets"`
	Drain  []fileDrain  `json:"drains"`
	Stream []fileStream `json:"streams"`
}

type fileTarget struct {
	Host      string  `json:"host"`
	Link      string  `json:"link"`
	MTU       int     `json:"mtu"`
	Capacity  string  `json:"capacity"`
	Write     string  `json:"write_per_second"`
	Endurance string  `json:"endurance"`
	Factor    float64 `json:"write_factor"`
	Flush     string  `json:"flush"`
}

type fileDrain struct {
	Host  string `json:"host"`
	Store string `json:"store_per_second"`
}

type fileStream struct {
	Name     string  `json:"name"`
	Target   string  `json:"target"`
	Drain    string  `json:"drain"`
	Rate     float64 `json:"rate"`
	Peak     float64 `json:"peak"`
	Burst    string  `json:"burst"`
	Payload  int     `json:"payload"`
	Key      int     `json:"key"`
	Align    int     `json:"align"`
	Ring     string  `json:"ring"`
	Deadline string  `json:"deadline"`
	Local    bool    `json:"local"`
	KM       float64 `json:"km"`
	Hops     int     `json:"hops"`
	Hop      string  `json:"hop"`
	Card     string  `json:"card"`
}

// reader collects all that is wrong with a file.
type reader struct{ errs []error }

// Parse reads a plan.yaml. The error tells all that is wrong with it.
func Parse(raw []byte) (Input, error) {
	var f file
	if err := yaml.UnmarshalStrict(raw, &f); err != nil {
		return Input{}, fmt.Errorf("expected a plan as docs/planning.md has it: %w", err)
	}
	var r reader
	in := Input{Outage: r.duration("outage", f.Outage, true), Hours: r.number("hours_per_day", f.Hours, 24), Days: r.number("days_per_year", f.Days, 366),
		Life: r.number("life_years", f.Life, 100)}
	if len(f.Stream) == 0 {
		r.fail("streams", "", "expected at least one")
	}
	names := map[string]bool{}
	once := func(at, name string) string {
		if name == "" || names[at[:1]+name] {
			r.fail(at, strconv.Quote(name), "expected a name, each once")
		}
		names[at[:1]+name] = true
		return name
	}
	for i, one := range f.Target {
		at := fmt.Sprintf("targets[%d].", i)
		in.Targets = append(in.Targets, Target{Name: once(at+"host", one.Host), LinkBits: r.units(at+"link", one.Link, bitUnits), MTU: int(r.number(at+"mtu", float64(one.MTU), 4096)),
			CapacityBytes: uint64(r.units(at+"capacity", one.Capacity, byteUnits)), WriteBytes: r.units(at+"write_per_second", one.Write, byteUnits),
			Endurance: r.units(at+"endurance", one.Endurance, byteUnits), WriteFactor: r.number(at+"write_factor", one.Factor, 100), Flush: r.duration(at+"flush", one.Flush, false)})
	}
	for i, one := range f.Drain {
		at := fmt.Sprintf("drains[%d].", i)
		store := r.units(at+"store_per_second", one.Store, byteUnits)
		if store == 0 {
			r.fail(at+"store_per_second", one.Store, "expected what its store takes, such as 500MB: farlog bench or fio measures it")
		}
		in.Drains = append(in.Drains, Drain{Name: once(at+"host", one.Host), StoreBytes: store})
	}
	for i, one := range f.Stream {
		at := fmt.Sprintf("streams[%d].", i)
		once(at+"name", one.Name)
		in.Streams = append(in.Streams, r.stream(at, one))
	}
	return in, errors.Join(r.errs...)
}

func (r *reader) stream(at string, one fileStream) Stream {
	if one.Rate <= 0 {
		r.fail(at+"rate", fmt.Sprint(one.Rate), "expected records a second, more than 0")
	}
	if one.Payload <= 0 || one.Key < 0 {
		r.fail(at+"payload", fmt.Sprint(one.Payload), "expected the bytes of an average record, more than 0")
	}
	if one.Peak != 0 && (one.Peak < one.Rate || one.Burst == "") {
		r.fail(at+"peak", fmt.Sprint(one.Peak), "expected at least the rate, and burst: how long it lasts")
	}
	if align := one.Align; align != 0 && (align < 64 || align > 4096 || align&(align-1) != 0) {
		r.fail(at+"align", fmt.Sprint(align), "expected a power of two from 64 to 4096")
	}
	if one.Local && (one.KM != 0 || one.Hops != 0) {
		r.fail(at+"local", "true", "expected neither km nor hops: the ring is on the writer's own host")
	}
	return Stream{Name: one.Name, Target: one.Target, Drain: one.Drain, Rate: one.Rate, Peak: one.Peak, Burst: r.duration(at+"burst", one.Burst, false), Payload: one.Payload,
		Key: one.Key, Align: one.Align, Ring: uint64(r.units(at+"ring", one.Ring, byteUnits)), Deadline: r.duration(at+"deadline", one.Deadline, false),
		Route: Route{KM: r.number(at+"km", one.KM, 40_000), Hops: int(r.number(at+"hops", float64(one.Hops), 100)), Hop: r.duration(at+"hop", one.Hop, one.Hops > 0),
			Card: r.duration(at+"card", one.Card, false), IsHere: one.Local}}
}

func (r *reader) fail(at, value, rule string) {
	r.errs = append(r.errs, fmt.Errorf("%s", strings.TrimSpace(at+" "+value)+": "+rule))
}

func (r *reader) duration(at, text string, isNeeded bool) time.Duration {
	if text == "" && !isNeeded {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		r.fail(at, strconv.Quote(text), "expected a duration such as 30m or 1500ns")
	}
	return d
}

func (r *reader) number(at string, value, most float64) float64 {
	if value < 0 || value > most || math.IsNaN(value) {
		r.fail(at, fmt.Sprint(value), fmt.Sprintf("expected from 0 to %v", most))
	}
	return value
}

// unit is a name and how many it is; those that end in others come first.
type unit struct {
	name string
	size float64
}

var byteUnits = []unit{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"PiB", 1 << 50}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"PB", 1e15}, {"B", 1}}
var bitUnits = []unit{{"Gbit", 1e9}, {"Mbit", 1e6}, {"Tbit", 1e12}}

// units reads a number with a unit, such as 64GiB, 3.6PB or 100Gbit. Makers of disks and links count by thousands, rings by 1024: both are taken, and told apart.
func (r *reader) units(at, text string, known []unit) float64 {
	if text == "" {
		return 0
	}
	var names []string
	for _, one := range known {
		names = append(names, one.name)
		if number, ok := strings.CutSuffix(text, one.name); ok {
			if value, err := strconv.ParseFloat(number, 64); err == nil && value > 0 && !math.IsInf(value, 0) {
				return value * one.size
			}
			break
		}
	}
	r.fail(at, strconv.Quote(text), "expected a number with one of "+strings.Join(names, ", "))
	return 0
}
