package plan

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	api "github.com/farlog/farlog/pkg/api/v1"
)

func isNear(got, want float64) bool { return math.Abs(got-want) <= 1e-6*math.Abs(want) }

// expectNear compares named numbers.
func expectNear(t *testing.T, pairs map[string][2]float64) {
	t.Helper()
	for what, pair := range pairs {
		if !isNear(pair[0], pair[1]) {
			t.Errorf("%s: %v, expected %v", what, pair[0], pair[1])
		}
	}
}

// one is a stream from one site to another, 40 km away.
func one() Input {
	return Input{
		Outage: 10 * time.Minute, Hours: 8, Days: 250, Card: time.Microsecond,
		Fabric: &api.Fabric{
			Targets: []*api.TargetSpec{{Host: "storage1", Site: "b", CapacityBytes: 64 << 30}},
			Drains:  []*api.DrainSpec{{Host: "central1"}},
			Streams: []*api.StreamSpec{{
				Name: "desk7/orders", RingSizeBytes: 32 << 30,
				Deadline: durationpb.New(time.Millisecond),
			}},
		},
		Sites: []Site{{Name: "a"}, {Name: "b"}},
		Links: []Link{{From: "b", To: "a", Path: Path{KM: 40, Hops: 2, Hop: 500 * time.Nanosecond}, Bits: 50e9}},
		Targets: []Target{{
			Host: "storage1", LinkBits: 100e9, WriteBytes: 2e9, Endurance: 3.6e15, WriteFactor: 2,
			Flush: 2 * time.Microsecond,
		}},
		Drains: []Drain{{Host: "central1", Site: "a", StoreBytes: 500e6}},
		Loads: []Load{{
			Stream: "desk7/orders", Site: "a", Rate: 100_000, Peak: 1_000_000, Burst: 2 * time.Second,
			Payload: 192,
		}},
	}
}

// The numbers of this plan were worked out by hand.
func TestMake_ByHand(t *testing.T) {
	in := one()
	if problems, err := Check(in); err != nil || len(problems) > 0 {
		t.Fatal(problems)
	}
	p := Make(in)
	if len(p.Problems) > 0 {
		t.Fatal(p.Problems)
	}
	s, target, drain, link := p.Streams[0], p.Targets[0], p.Drains[0], p.Links[0]
	// bytes that wait after ten minutes and a burst
	const waits = 256 * (100_000*600 + 900_000*2)
	const wire = 256 + (8 + 14 + 4 + 12 + 20 + 8 + 12 + 4) + 16 + (82 + 16) // a WRITE of one packet, and a flush
	const gear = 2*(2*500e-9+1e-6) + wire*8/50e9
	expectNear(t, map[string][2]float64{
		"record": {float64(s.RecordBytes), 256}, "needs": {
			float64(s.NeedBytes),
			math.Ceil((waits/0.85+0x3000)/4096) * 4096,
		}, "ring": {float64(s.RingBytes), 32 << 30},
		"wire": {s.WireBits, 100_000 * wire * 8}, "peak": {s.PeakWireBits, 1e6 * wire * 8},
		"fibre": {s.Members[0].FibreSeconds, 400e-6}, "gear": {s.Members[0].GearSeconds, gear},
		"floor": {s.FloorSeconds, 400e-6 + gear + 2e-6}, "year": {s.BytesPerYear, 256 * 100_000 * 8 * 3600 * 250},
		"card":                {target.LinkLoad, 1e6 * wire * 8 / 100e9},
		"media load":          {target.MediaLoad, 1e6 * 256 / 2e9},
		"wear":                {target.WearPerYear, 2 * 256 * 100_000 * 8 * 3600 * 250 / 3.6e15},
		"drain load":          {drain.Load, 25.6e6 / 500e6},
		"catch up":            {drain.CatchUpSeconds, waits / (500e6 - 25.6e6)},
		"of the stream":       {s.CatchUpSeconds, drain.CatchUpSeconds},
		"records a flush":     {s.RecordsPerFlush, 1e6 * s.FloorSeconds},
		"bridges":             {s.OutageSeconds, (0.85*float64(32<<30-0x3000) - 256*900_000*2) / 25.6e6},
		"appends on the link": {link.BackBits, 1e6 * wire * 8},
		"the drain's reads":   {link.ThereBits, 8 * 1e6 * 256 * (1 + 82.0/4096)},
		"load of the link":    {link.Load, 1e6 * wire * 8 / 50e9},
	})
}

// An acknowledgement of k members is as late as the k-th nearest; each of them has the whole bandwidth, ring and wear.
// The control plane's own placement puts them on different sites.
func TestMake_Members(t *testing.T) {
	in := one()
	in.Fabric.Targets = []*api.TargetSpec{
		{Host: "near", Site: "a"},
		{Host: "near2", Site: "a"},
		{Host: "middle", Site: "b"},
		{Host: "far", Site: "c"},
	}
	in.Fabric.Streams[0] = &api.StreamSpec{
		Name: "desk7/orders", RingSizeBytes: 32 << 30, Members: 3,
		FailureDomain: "site",
	}
	in.Sites = append(in.Sites, Site{Name: "c"})
	// the direct way is longer
	in.Links = append(in.Links, Link{From: "b", To: "c", Path: Path{KM: 100}},
		Link{From: "a", To: "c", Path: Path{KM: 1000}})
	in.Targets = []Target{
		{Host: "near", Endurance: 1e18},
		{Host: "middle", Flush: 500 * time.Microsecond},
		{Host: "far", Endurance: 1e18},
	}
	p := Make(in)
	s := p.Streams[0]
	if len(p.Problems) > 0 || len(s.Members) != 3 || s.Needed != 2 {
		t.Fatalf("%+v", p)
	}
	const wire = 256 + 82 + 16 + 98
	expectNear(t, map[string][2]float64{
		"nearest": {s.Members[0].FloorSeconds, 2e-6}, "middle": {
			s.FloorSeconds,
			2*(40*5e-6+2*500e-9+1e-6) + wire*8/50e9 + 500e-6,
		}, "far": {s.Members[2].FibreSeconds, 2 * 140 * 5e-6},
		"wire": {s.WireBits, 3 * 100_000 * wire * 8}, "a - b carries two": {p.Links[0].BackBits, 2 * 1e6 * wire * 8},
		"b - c one": {p.Links[1].ThereBits, 1e6 * wire * 8}, "a - c none": {p.Links[2].ThereBits, 0},
		"wear": {p.Targets[3].BytesPerYear, s.BytesPerYear}, "ring": {float64(p.Targets[3].RingBytes), 32 << 30},
	})
	for needed, want := range []float64{
		1: s.Members[0].FloorSeconds, 2: s.Members[1].FloorSeconds,
		3: s.Members[2].FloorSeconds,
	} {
		in.Fabric.Streams[0].Needed = uint32(needed)
		if p := Make(in); needed > 0 && p.Streams[0].FloorSeconds != want {
			t.Errorf("%d of 3: %v, expected %v", needed, p.Streams[0].FloorSeconds, want)
		}
	}
}

// A route is as slow as the slowest leg that is required, among those that its rules and those of the routes that it
// selects give for a class and a criticality; its bandwidth is that of all legs, which is what their streams get.
func TestMake_Routes(t *testing.T) {
	in := one()
	in.Fabric.Targets = append(in.Fabric.Targets, &api.TargetSpec{Host: "here", Site: "a"})
	in.Fabric.Streams = nil
	for name, host := range map[string]string{"local": "here", "remote": "storage1", "rare": "storage1"} {
		in.Fabric.Streams = append(in.Fabric.Streams, &api.StreamSpec{
			Name: name, TargetHost: host,
			RingSizeBytes: 1 << 30,
		})
	}
	in.Fabric.Routes = []*api.RouteSpec{
		{Name: "all", Rules: []*api.RouteRule{
			{Legs: []*api.RouteLeg{{Stream: "local"}}},
			{CriticalityMin: 2, Route: "second"},
		}},
		{Name: "second", Rules: []*api.RouteRule{
			{Legs: []*api.RouteLeg{{Stream: "remote"}}},
			{
				Classes: []*api.ClassRange{{First: 7, Last: 9}},
				Legs:    []*api.RouteLeg{{Stream: "rare", Optional: true}},
			},
		}},
	}
	in.Loads = []Load{
		{Route: "all", Host: "here", Rate: 1000, Payload: 192},
		{Route: "all", Host: "here", Criticality: 2, Rate: 100, Payload: 192},
		{Route: "all", Host: "here", Criticality: 3, Class: 8, Rate: 10, Payload: 448},
	}
	if problems, err := Check(in); err != nil || len(problems) > 0 {
		t.Fatal(problems)
	}
	p := Make(in)
	if len(p.Problems) > 0 || len(p.Routes) != 3 {
		t.Fatalf("%+v", p)
	}
	streams := map[string]StreamPlan{}
	for _, s := range p.Streams {
		streams[s.Name] = s
	}
	const wire, larger = 256 + 82 + 16 + 98, 512 + 82 + 16 + 98
	expectNear(t, map[string][2]float64{
		"local":                           {streams["local"].BytesPerYear, (1100*256 + 10*512) * 8 * 3600 * 250},
		"remote":                          {streams["remote"].WireBits, (100*wire + 10*larger) * 8},
		"rare":                            {streams["rare"].WireBits, 10 * larger * 8},
		"on the writer's host":            {p.Routes[0].FloorSeconds, 0},
		"with a far leg":                  {p.Routes[1].FloorSeconds, streams["remote"].FloorSeconds},
		"its bandwidth":                   {p.Routes[1].WireBits, 100 * wire * 8},
		"of two far legs":                 {p.Routes[2].WireBits, 2 * 10 * larger * 8},
		"the optional one does not count": {p.Routes[2].FloorSeconds, streams["remote"].FloorSeconds},
	})
	if len(p.Routes[0].Legs) != 1 || len(p.Routes[1].Legs) != 2 || len(p.Routes[2].Legs) != 3 ||
		p.Routes[2].Slowest != "remote" {
		t.Errorf("%+v", p.Routes)
	}
}

// Each thing that cannot hold is refused by its field, and what is just below is not.
func TestMake_Refuses(t *testing.T) {
	for want, spoil := range map[string]func(*Input){
		"fabric.streams[0].ring_size_bytes: expected at least 18": func(in *Input) {
			in.Fabric.Streams[0].RingSizeBytes = 16 << 30
		},
		"fabric.streams[0].ring_size_bytes: desk7/orders needs 4611686018427387904": func(in *Input) {
			in.Loads[0].Rate, in.Loads[0].Peak, in.Outage = 1e12, 1e12, math.MaxInt64
			in.Targets, in.Drains, in.Links[0].Bits, in.Fabric.Targets[0].CapacityBytes = nil, nil, 0, 0
		},
		"fabric.streams[0].target_host: expected targets that": func(in *Input) { in.Fabric.Streams[0].Members = 2 },
		"fabric.plan.links[0].bandwidth: link b - a is loaded": func(in *Input) { in.Links[0].Bits = 4.4e9 },
		"fabric.plan.targets[0].link: the link of target":      func(in *Input) { in.Targets[0].LinkBits = 4.4e9 },
		"fabric.plan.targets[0].write_per_second: the media":   func(in *Input) { in.Targets[0].WriteBytes = 250e6 },
		"fabric.plan.targets[0].endurance: the media":          func(in *Input) { in.Targets[0].Endurance = 1e12 },
		"fabric.streams[0].deadline: expected at least 1.00":   func(in *Input) { in.Links[0].KM = 100 },
		"fabric.streams[1].name: expected a load under plan.load, or": func(in *Input) {
			in.Fabric.Streams = append(in.Fabric.Streams, &api.StreamSpec{Name: "desk7/untold"})
		},
		"fabric.plan.drains[0].store_per_second: the store": func(in *Input) { in.Drains[0].StoreBytes = 25.6e6 },
		"fabric.plan.load[0].site: expected links that lead": func(in *Input) {
			in.Loads[0].Site, in.Sites = "c",
				append(in.Sites, Site{Name: "c"})
		},
		"fabric.streams[0].drain_host: expected a drain that": func(in *Input) { in.Fabric.Drains[0].Closed = true },
		"fabric.plan.load[0].route: its leg desk7/orders has": func(in *Input) {
			in.Loads[0].Stream, in.Loads[0].Route = "", "r"
			in.Fabric.Routes = []*api.RouteSpec{{
				Name: "r",
				Rules: []*api.RouteRule{{Legs: []*api.RouteLeg{{
					Stream:   "desk7/orders",
					Deadline: durationpb.New(400 * time.Microsecond),
				}}}},
			}}
		},
	} {
		in := one()
		spoil(&in)
		if problems, err := Check(in); err != nil || len(problems) > 0 {
			t.Errorf("%s: %v", want, problems)
		}
		p := Make(in)
		if len(p.Problems) != 1 || !strings.HasPrefix(p.Problems[0].Field+": "+p.Problems[0].Rule, want) {
			t.Errorf("expected %q, got %q", want, p.Problems)
		}
	}
	in := one()
	in.Targets[0].LinkBits, in.Drains[0].StoreBytes, in.Links[0].KM = 4.4e9, 1, 400
	if p := Make(in); len(p.Problems) != 3 {
		t.Errorf("three things are wrong, told are %q", p.Problems)
	}
}

// All that is wrong with an input is told at once, each at its field.
func TestCheck_AllMistakesAtOnce(t *testing.T) {
	in := one()
	in.Outage = 0
	in.Fabric.Targets = append(in.Fabric.Targets, &api.TargetSpec{Host: "storage1", Site: "nowhere"})
	in.Fabric.Streams = append(in.Fabric.Streams, &api.StreamSpec{
		Name: "s", TargetHost: "t", DrainHost: "d",
		Members: 2, Needed: 3,
	},
		&api.StreamSpec{Name: "bad name", RingSizeBytes: 5000, Align: 96})
	in.Fabric.Routes = []*api.RouteSpec{{Name: "r", Rules: []*api.RouteRule{
		{Route: "q"},
		{Legs: []*api.RouteLeg{{Stream: "gone"}}},
	}}, {Name: "q", Rules: []*api.RouteRule{{Route: "r"}, {Route: "p"}}}}
	in.Links = append(in.Links, Link{From: "a", To: "a"}, Link{From: "x"})
	in.Targets = append(in.Targets, Target{Host: "t"})
	in.Loads = append(in.Loads, Load{Stream: "gone", Route: "r", Host: "h"},
		Load{Peak: 5, Site: "x", Rate: 1, Payload: 1})
	var told []string
	problems, err := Check(in)
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range problems {
		told = append(told, strings.TrimPrefix(problem.Field, "fabric."))
	}
	want := "streams[1].needed streams[1].target_host streams[2].name streams[2].ring_size_bytes streams[2].align " +
		"targets[1].host streams[1].drain_host routes[0].rules[0].route routes[0].rules[1].legs[0].stream " +
		"routes[1].rules[0].route routes[1].rules[1].route streams[1].target_host plan.outage plan.targets[1].host " +
		"plan.links[1].to plan.links[2].from plan.links[2].to targets[1].site plan.load[1].stream " +
		"plan.load[1].stream plan.load[1].rate plan.load[1].payload plan.load[1].host plan.load[2].stream " +
		"plan.load[2].peak plan.load[2].site"
	if strings.Join(told, " ") != want {
		t.Errorf("told:\n%s\nexpected:\n%s", strings.Join(told, " "), want)
	}
	in = one()
	in.Fabric.Streams = append(in.Fabric.Streams, &api.StreamSpec{Name: "idle"})
	in.Loads = append(in.Loads, Load{Stream: "desk7/orders", Site: "b", Rate: 1, Payload: 1})
	if problems, err := Check(in); err != nil || len(problems) != 1 || problems[0].Field != "fabric.plan.load[1].site" {
		t.Errorf("a second writer, and a stream that none has: %v", problems)
	}
}

// A stream of which nobody says what is appended to it takes nothing from the plan of the others.
func TestMake_OneOfWhichNothingIsSaid(t *testing.T) {
	in := one()
	alone := Make(in)
	in.Fabric.Streams = append([]*api.StreamSpec{{Name: "desk7/untold", RingSizeBytes: 1 << 20}}, in.Fabric.Streams...)
	if problems, err := Check(in); err != nil || len(problems) > 0 {
		t.Fatal(problems, err)
	}
	p := Make(in)
	if len(p.Problems) != 1 || p.Problems[0].Field != "fabric.streams[0].name" ||
		p.Problems[0].Value != `"desk7/untold"` {
		t.Errorf("told %v", p.Problems)
	}
	if !reflect.DeepEqual(p.Streams, alone.Streams) || !reflect.DeepEqual(p.Links, alone.Links) ||
		!reflect.DeepEqual(p.Targets, alone.Targets) || !reflect.DeepEqual(p.Drains, alone.Drains) {
		t.Errorf("with it %+v, alone %+v", p, alone)
	}
}

// A stream that declares its rates needs no load; where there is one it is not more than what is declared.
func TestMake_DeclaredRates(t *testing.T) {
	in := one()
	in.Sites, in.Links, in.Drains[0].Site, in.Fabric.Targets[0].Site, in.Loads[0].Site = nil, nil, "", "", ""
	in.Loads[0].Peak, in.Loads[0].Burst = 0, 0
	by := in
	by.Loads = nil
	by.Fabric = &api.Fabric{
		Targets: in.Fabric.Targets, Drains: in.Fabric.Drains,
		Streams: []*api.StreamSpec{{
			Name: "desk7/orders", RingSizeBytes: 32 << 30, RecordsPerSecond: 100_000,
			BytesPerSecond: 19_200_000,
		}},
	}
	if problems, err := Check(by); err != nil || len(problems) > 0 {
		t.Fatal(problems, err)
	}
	loaded, declared := Make(in), Make(by)
	if a, b := loaded.Streams[0], declared.Streams[0]; a.NeedBytes != b.NeedBytes || a.BytesPerYear != b.BytesPerYear ||
		len(declared.Problems) > 0 {
		t.Errorf("by a load %+v, as declared %+v, %v", a, b, declared.Problems)
	}
	by.Loads = []Load{{Stream: "desk7/orders", Rate: 100_000, Payload: 192, Key: 1}}
	problems, err := Check(by)
	if want := "expected at least 19300000, which"; err != nil || len(problems) != 1 ||
		problems[0].Field != "fabric.streams[0].bytes_per_second" || !strings.HasPrefix(problems[0].Rule, want) {
		t.Errorf("%v, %v", problems, err)
	}
}

// The ring that a plan asks for bridges the outage, one a page smaller does not, and more of anything never needs less.
func TestMake_RingBridgesTheOutage(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		load := Load{
			Stream: "s", Rate: rapid.Float64Range(1, 1e4).Draw(rt, "rate"),
			Payload: rapid.IntRange(1, 1<<13).Draw(rt, "payload"),
		}
		load.Peak, load.Burst = load.Rate*rapid.Float64Range(1, 20).Draw(rt, "peak"),
			time.Duration(rapid.IntRange(1, 5).Draw(rt, "burst"))*time.Second
		spec := &api.StreamSpec{Name: "s", Align: 64 << rapid.IntRange(0, 6).Draw(rt, "align"), RingSizeBytes: 4096}
		in := Input{
			Outage: time.Duration(rapid.Int64Range(1, int64(24*time.Hour)).Draw(rt, "outage")),
			Loads:  []Load{load}, Drains: []Drain{{Host: "d", StoreBytes: 1e18}},
			Fabric: &api.Fabric{Targets: []*api.TargetSpec{{Host: "t"}}, Streams: []*api.StreamSpec{spec}},
		}
		needs := Make(in).Streams[0].NeedBytes
		spec.RingSizeBytes = needs
		if p := Make(in); len(p.Problems) > 0 || p.Streams[0].OutageSeconds < in.Outage.Seconds()*(1-1e-9) {
			rt.Fatalf("%v: bridges %v of %v", p.Problems, p.Streams[0].OutageSeconds, in.Outage)
		}
		spec.RingSizeBytes -= ringAlign
		if smaller := Make(in); len(smaller.Problems) != 1 {
			rt.Fatalf("a smaller ring is not refused")
		}
		in.Loads[0].Payload += 4096
		if larger := Make(in); larger.Streams[0].NeedBytes < needs {
			rt.Fatalf("larger records need a ring of %d, smaller ones %d", larger.Streams[0].NeedBytes, needs)
		}
	})
}

// No way by up to four links is shorter than the one that is taken.
func TestWays_AreShortest(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := Input{}
		for i := range 5 {
			in.Sites = append(in.Sites, Site{
				Name: fmt.Sprint(i),
				Path: Path{KM: rapid.Float64Range(0, 5).Draw(rt, "site")},
			})
		}
		site := rapid.IntRange(0, 4)
		for range rapid.IntRange(0, 8).Draw(rt, "links") {
			from, to := site.Draw(rt, "from"), site.Draw(rt, "to")
			in.Links = append(in.Links, Link{
				From: fmt.Sprint(from), To: fmt.Sprint(to),
				Path: Path{KM: rapid.Float64Range(0, 100).Draw(rt, "km")},
			})
		}
		least := map[string]float64{"0": 0}
		for range 4 {
			for _, link := range in.Links {
				for _, end := range [][2]string{{link.From, link.To}, {link.To, link.From}} {
					if have, ok := least[end[0]]; ok {
						if best, isKnown := least[end[1]]; !isKnown || have+link.KM < best {
							least[end[1]] = have + link.KM
						}
					}
				}
			}
		}
		ways := in.shortestPaths("0")
		if len(ways) != len(least) {
			rt.Fatalf("reached are %v, expected %v", ways, least)
		}
		for name, km := range least {
			if km += in.site("0").KM; name != "0" {
				km += in.site(name).KM
			}
			if math.Abs(ways[name].km-km) > 1e-3 {
				rt.Fatalf("to %s: %v km, expected %v", name, ways[name].km, km)
			}
		}
	})
}
