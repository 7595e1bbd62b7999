package plan

import (
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func isNear(got, want float64) bool { return math.Abs(got-want) <= 1e-6*math.Abs(want) }

// The numbers of this plan were worked out by hand.
func TestMake_ByHand(t *testing.T) {
	in := Input{
		Outage: 10 * time.Minute, Hours: 8, Days: 250,
		Targets: []Target{{Name: "storage1", LinkBits: 100e9, CapacityBytes: 64 << 30, WriteBytes: 2e9, Endurance: 3.6e15, WriteFactor: 2, Flush: 2 * time.Microsecond}},
		Drains:  []Drain{{Name: "central1", StoreBytes: 500e6}},
		Streams: []Stream{{Name: "desk7/orders", Target: "storage1", Drain: "central1", Rate: 100_000, Peak: 1_000_000, Burst: 2 * time.Second, Payload: 192, Deadline: time.Millisecond,
			Route: Route{KM: 40, Hops: 2, Hop: 500 * time.Nanosecond, Card: time.Microsecond}}},
	}
	p := Make(in)
	if len(p.Problems) > 0 {
		t.Fatal(p.Problems)
	}
	s, target, drain := p.Streams[0], p.Targets[0], p.Drains[0]
	const waits = 256 * (100_000*600 + 900_000*2)                           // bytes that wait after ten minutes and a burst
	const wire = 256 + (8 + 14 + 4 + 12 + 20 + 8 + 12 + 4) + 16 + (82 + 16) // a WRITE of one packet, and a flush
	for what, pair := range map[string][2]float64{
		"record": {float64(s.RecordBytes), 256}, "ring": {float64(s.RingBytes), math.Ceil((waits/0.85+0x3000)/4096) * 4096},
		"wire": {s.WireBits, 100_000 * wire * 8}, "peak": {s.PeakWireBits, 1e6 * wire * 8}, "fibre": {s.FibreSeconds, 400e-6},
		"gear": {s.GearSeconds, 2*(2*500e-9+1e-6) + wire*8/100e9}, "floor": {s.FloorSeconds, 400e-6 + 2*(2*500e-9+1e-6) + wire*8/100e9 + 2e-6},
		"year": {s.BytesPerYear, 256 * 100_000 * 8 * 3600 * 250}, "link load": {target.LinkLoad, 1e6 * wire * 8 / 100e9}, "media load": {target.MediaLoad, 1e6 * 256 / 2e9},
		"wear": {target.WearPerYear, 2 * 256 * 100_000 * 8 * 3600 * 250 / 3.6e15}, "drain load": {drain.Load, 25.6e6 / 500e6},
		"catch up": {drain.CatchUpSeconds, waits / (500e6 - 25.6e6)}, "of the stream": {s.CatchUpSeconds, drain.CatchUpSeconds}, "records a flush": {s.RecordsPerFlush, 1e6 * s.FloorSeconds},
	} {
		if !isNear(pair[0], pair[1]) {
			t.Errorf("%s: %v, expected %v", what, pair[0], pair[1])
		}
	}
	if s.OutageSeconds < 600 || s.OutageSeconds > 601 {
		t.Errorf("the ring bridges %v s", s.OutageSeconds)
	}
}

// Each thing that cannot hold is refused by its name, all at once, and what is just below is not.
func TestMake_Refuses(t *testing.T) {
	base := func() Input {
		return Input{Outage: time.Minute,
			Targets: []Target{{Name: "t", LinkBits: 1e9, CapacityBytes: 1 << 40, WriteBytes: 1e9, Endurance: 1e18, Flush: time.Microsecond}}, Drains: []Drain{{Name: "d", StoreBytes: 1e9}},
			Streams: []Stream{{Name: "s", Target: "t", Drain: "d", Rate: 1000, Payload: 192, Deadline: time.Millisecond, Route: Route{KM: 10}}}}
	}
	if p := Make(base()); len(p.Problems) > 0 {
		t.Fatal(p.Problems)
	}
	for want, spoil := range map[string]func(*Input){
		"ring of 16384 bytes":              func(in *Input) { in.Streams[0].Ring = 16384 },
		"its rings need":                   func(in *Input) { in.Targets[0].CapacityBytes = 1 << 20 },
		"its link is loaded":               func(in *Input) { in.Targets[0].LinkBits = 4.4e6 },
		"its media would have to take":     func(in *Input) { in.Targets[0].WriteBytes = 1000 },
		"its media last":                   func(in *Input) { in.Targets[0].Endurance = 1e12 },
		"an append takes at least 1.00":    func(in *Input) { in.Streams[0].Route.KM = 100 },
		"never catches up":                 func(in *Input) { in.Drains[0].StoreBytes = 256_000 },
		`target "nowhere" is not declared`: func(in *Input) { in.Streams[0].Target = "nowhere" },
		`drain "nobody" is not declared`:   func(in *Input) { in.Streams[0].Drain = "nobody" },
	} {
		in := base()
		spoil(&in)
		p := Make(in)
		if len(p.Problems) != 1 || !strings.Contains(p.Problems[0], want) {
			t.Errorf("expected %q, got %q", want, p.Problems)
		}
	}
	in := base()
	in.Targets[0].LinkBits, in.Drains[0].StoreBytes, in.Targets[0].CapacityBytes = 4.4e6, 1, 1
	if p := Make(in); len(p.Problems) != 3 {
		t.Errorf("three things are wrong, told are %q", p.Problems)
	}
}

// The ring that a plan gives bridges the outage, one a page smaller does not, and more of anything never needs less.
func TestMake_RingBridgesTheOutage(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		stream := Stream{Name: "s", Target: "t", Drain: "d", Rate: rapid.Float64Range(1, 1e6).Draw(rt, "rate"), Payload: rapid.IntRange(1, 1<<20).Draw(rt, "payload"),
			Align: 64 << rapid.IntRange(0, 6).Draw(rt, "align")}
		stream.Peak, stream.Burst = stream.Rate*rapid.Float64Range(1, 20).Draw(rt, "peak"), time.Duration(rapid.IntRange(0, 5).Draw(rt, "burst"))*time.Second
		in := Input{Outage: time.Duration(rapid.Int64Range(1, int64(24*time.Hour)).Draw(rt, "outage")), Targets: []Target{{Name: "t"}}, Drains: []Drain{{Name: "d", StoreBytes: 1e18}}, Streams: []Stream{stream}}
		p := Make(in)
		if len(p.Problems) > 0 || p.Streams[0].OutageSeconds < in.Outage.Seconds()*(1-1e-9) {
			rt.Fatalf("%v: bridges %v of %v", p.Problems, p.Streams[0].OutageSeconds, in.Outage)
		}
		in.Streams[0].Ring = p.Streams[0].RingBytes
		if again := Make(in); len(again.Problems) > 0 {
			rt.Fatalf("its own ring is refused: %v", again.Problems)
		}
		in.Streams[0].Ring -= ringAlign
		if smaller := Make(in); len(smaller.Problems) != 1 {
			rt.Fatalf("a smaller ring is not refused")
		}
		in.Streams[0].Ring, in.Streams[0].Payload = 0, stream.Payload+4096
		if larger := Make(in); larger.Streams[0].RingBytes < p.Streams[0].RingBytes {
			rt.Fatalf("larger records need a ring of %d, smaller ones %d", larger.Streams[0].RingBytes, p.Streams[0].RingBytes)
		}
	})
}

func TestParse_AllMistakesAtOnce(t *testing.T) {
	_, err := Parse([]byte("outage: 10\ntargets: [{host: a, link: 100, capacity: 5GiB}, {host: a, endurance: -1TB}]\ndrains: [{host: d}]\n" +
		"streams: [{name: s, rate: 0, payload: 0, peak: 5, align: 100, local: true, km: 3, hops: 2}]\n"))
	if err == nil {
		t.Fatal("taken")
	}
	for _, want := range []string{`outage "10"`, `targets[0].link "100": expected a number with one of Gbit`, `targets[1].host "a": expected a name, each once`, `targets[1].endurance "-1TB"`,
		"drains[0].store_per_second", "streams[0].rate 0", "streams[0].payload 0", "streams[0].peak 5", "streams[0].align 100", "streams[0].local true", `streams[0].hop ""`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no word of %s in\n%v", want, err)
		}
	}
	if _, err := Parse([]byte("outage: 10m\nstreems: []\n")); err == nil || !strings.Contains(err.Error(), "streems") {
		t.Errorf("unknown key: %v", err)
	}
	in, err := Parse([]byte("outage: 10m\ntargets: [{host: t, link: 100Gbit, endurance: 3.6PB, capacity: 1.5GiB}]\ndrains: [{host: d, store_per_second: 500MB}]\n" +
		"streams: [{name: s, target: t, drain: d, rate: 10, payload: 192}]\n"))
	if err != nil || in.Targets[0].LinkBits != 100e9 || in.Targets[0].Endurance != 3.6e15 || in.Targets[0].CapacityBytes != 3<<29 || in.Drains[0].StoreBytes != 5e8 {
		t.Errorf("%+v, %v", in, err)
	}
}
