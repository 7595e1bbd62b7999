package main

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	api "github.com/farlog/farlog/pkg/api/v1"
)

func TestReadFabric_EachProblemAtItsPlace(t *testing.T) {
	file := readFabric([]byte(`targets:
- host: storage1
  capacity: 1TB
  closed: maybe
  shelf: 7
streams:
- name: desk7/orders
  size: 64MiB
  size: 1MiB
  deadline: 5
- size: [1, 2]
  level: eternal
  members: three
- just text
router: x
`))
	file.addProblems([]*api.Problem{
		{Field: "fabric.streams[0].ring_size_bytes", Value: "67108864", Rule: "expected less"},
		{Field: "fabric.streams[1].name", Value: `""`, Rule: "expected 1 to 63 letters"},
		{Field: "fabric.streams[1].level", Value: "0", Rule: "follows from what was not read"},
	})
	var got []string
	for _, one := range file.problems {
		got = append(got, fmt.Sprintf("%d:%d: %s", one.Line, one.Column, one.text()))
	}
	want := []string{
		"3:13: targets[0].capacity 1TB: expected a whole number of bytes, or one with KiB, MiB, GiB or TiB, such as " +
			"64MiB",
		`4:11: targets[0].closed maybe: expected true or false`,
		"5:3: targets[0] shelf: unknown key, expected one of host, capacity, closed, rack, site, wear_limit, " +
			"namespaces, ports",
		`8:9: streams[0].size 67108864: expected less`,
		`9:3: streams[0] size: the key is there twice`,
		`10:13: streams[0].deadline 5: expected a number with a unit, such as 250us, 5s or 1m30s`,
		`11:3: streams[1].name "": expected 1 to 63 letters`,
		`11:9: streams[1].size: expected one value`,
		`12:10: streams[1].level eternal: expected posted, visible or persistent`,
		`13:12: streams[1].members three: expected a whole number from 1 on`,
		"14:3: streams[2]: expected keys: name, size, record_len_max, align, level, policy, deadline, members, " +
			"needed, failure_domain, kind, encryption, target, writer_host, latency_limit, drain, " +
			"records_per_second, bytes_per_second",
		`15:1: router: unknown key, expected one of targets, drains, tenants, streams, routes, plan`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestFieldsText_AsTheFileHasIt(t *testing.T) {
	for want, change := range map[string]*api.Change{
		"size 16MiB, record_len_max 253KiB, drain central1, later 7": {
			Kind: "stream", Created: true,
			Fields: []*api.FieldChange{
				{Name: "ring_size_bytes", After: "16777216"},
				{Name: "record_len_max", After: "259072"},
				{Name: "drain_host", After: "central1"},
				{Name: "later", After: "7"},
			},
		},
		"capacity - -> 4GiB, closed false -> true, wear_limit 80% -> -": {Kind: "target", Fields: []*api.FieldChange{
			{Name: "capacity_bytes", Before: "0", After: "4294967296"},
			{Name: "closed", Before: "false", After: "true"},
			{Name: "wear_limit_percent", Before: "80", After: "0"},
		}},
		"store - -> /var/lib, closed true -> false": {
			Kind: "drain",
			Fields: []*api.FieldChange{
				{Name: "store_dir", After: "/var/lib"},
				{Name: "closed", Before: "true", After: "false"},
			},
		},
		"streams 2 -> 3, ring_bytes 4MiB -> 4194305": {
			Kind: "tenant",
			Fields: []*api.FieldChange{
				{Name: "streams_max", Before: "2", After: "3"},
				{Name: "ring_bytes_max", Before: "4194304", After: "4194305"},
			},
		},
	} {
		if got := fieldsText(change); got != want {
			t.Errorf("%q, expected %q", got, want)
		}
	}
}

func TestReadFabric_WhatIsNoYAML(t *testing.T) {
	for text, want := range map[string]string{
		"streams: [":                          "2:1: did not find expected node content",
		"a: b\n c: d\n":                       "2:3: mapping values are not allowed in this context",
		"streams: 7":                          "1:10: streams: expected a list",
		"- a":                                 "1:1: expected keys: targets, drains, tenants, streams",
		"drains: [{host: a, streams_max: 0}]": "1:33: drains[0].streams_max 0: expected a whole number from 1 on",
		"drains: [{host: a, limit: 3}]": "1:20: drains[0] limit: unknown key, expected one of host, store, " +
			"streams_max, closed",
		"drains: [{host: a, closed: 3}]":   "1:28: drains[0].closed 3: expected true or false",
		"streams: &x [*x]":                 "",
		"streams: [{name: *x}]":            "1:18: unknown anchor 'x' referenced",
		"":                                 "1:1: the file is empty",
		"\ufeff":                           "1:1: the file is empty",
		"streams: []\n---\nstreams: []\n":  "2:1: a second document begins here: expected one in a file",
		"streams: [{name: a, size: null}]": "1:27: streams[0].size null: expected a value, or no such key",
		"streams: [{name: a, target: ~}]":  "1:29: streams[0].target ~: expected a value, or no such key",
		"targets: &t\n- host: *t":          "2:9: targets[0].host: expected one value",
	} {
		file := readFabric([]byte(text))
		var got string
		for _, one := range file.problems {
			got += fmt.Sprintf("%d:%d: %s", one.Line, one.Column, one.text())
		}
		if want == "" && got == "" || !strings.Contains(got, want) {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	if file := readFabric([]byte("{}")); len(file.problems) != 0 || len(file.fabric.Streams) != 0 {
		t.Errorf("a file that declares nothing: %+v", file)
	}
}

// What is exported is read as what it was, whatever the names look like.
// fabricName draws names, among them what YAML reads as another type.
var fabricName = rapid.OneOf(rapid.SampledFrom([]string{
	"1", "yes", "null", "1e3", "0x1f", "true", "~", "2026-11-21",
	"1_000", "a/b", ".5", "no", "-",
}),
	rapid.StringMatching(`[A-Za-z0-9._-]{1,20}`))

func drawFabric(rt *rapid.T) *api.Fabric {
	fabric, name := new(api.Fabric), fabricName
	for range rapid.IntRange(0, 3).Draw(rt, "targets") {
		fabric.Targets = append(fabric.Targets, &api.TargetSpec{
			Host:          name.Draw(rt, "host"),
			CapacityBytes: rapid.Uint64Range(0, 1<<50).Draw(rt, "capacity"),
			Closed:        rapid.Bool().Draw(rt, "closed"),
		})
		if rapid.Bool().Draw(rt, "has place") {
			target := fabric.Targets[len(fabric.Targets)-1]
			target.Rack, target.Site = name.Draw(rt, "rack"), name.Draw(rt, "site")
			target.WearLimitPercent = rapid.Uint32Range(0, 255).Draw(rt, "wear limit")
		}
	}
	for range rapid.IntRange(0, 2).Draw(rt, "drains") {
		fabric.Drains = append(fabric.Drains, &api.DrainSpec{
			Host:       name.Draw(rt, "drain's host"),
			StoreDir:   rapid.SampledFrom([]string{"", "/var/lib/farlog"}).Draw(rt, "store"),
			StreamsMax: rapid.Uint32Range(0, 9).Draw(rt, "streams_max"),
			Closed:     rapid.Bool().Draw(rt, "drain closed"),
		})
	}
	for range rapid.IntRange(0, 2).Draw(rt, "tenants") {
		fabric.Tenants = append(fabric.Tenants, &api.TenantSpec{
			Name:                name.Draw(rt, "tenant"),
			StreamsMax:          rapid.Uint64Range(0, 9).Draw(rt, "streams_max"),
			RingBytesMax:        rapid.Uint64Range(0, 1<<44).Draw(rt, "ring_bytes"),
			RecordsPerSecondMax: rapid.Uint64().Draw(rt, "records of all"),
			BytesPerSecondMax:   rapid.Uint64().Draw(rt, "bytes of all"),
		})
	}
	for range rapid.IntRange(0, 3).Draw(rt, "streams") {
		fabric.Streams = append(fabric.Streams, drawStream(rt))
	}
	return fabric
}

func drawStream(rt *rapid.T) *api.StreamSpec {
	name := fabricName
	spec := &api.StreamSpec{
		Name:          name.Draw(rt, "name"),
		RingSizeBytes: rapid.Uint64Range(1, 1<<44).Draw(rt, "size"),
		RecordLenMax:  rapid.Uint32Range(1, 1<<30).Draw(rt, "record"),
		Align:         rapid.Uint32Range(1, 4096).Draw(rt, "align"),
		Level:         api.Level(rapid.IntRange(1, 3).Draw(rt, "level")),
		Policy:        api.Policy(rapid.IntRange(1, 2).Draw(rt, "policy")),
	}
	if rapid.Bool().Draw(rt, "has rates") {
		spec.RecordsPerSecond, spec.BytesPerSecond = rapid.Uint64Range(1, 1e12).Draw(rt, "records"),
			rapid.Uint64Range(1, 1e14).Draw(rt, "bytes")
	}
	if rapid.Bool().Draw(rt, "has deadline") {
		spec.Deadline = &durationpb.Duration{Nanos: rapid.Int32Range(1, 999999999).Draw(rt, "deadline")}
	}
	if rapid.Bool().Draw(rt, "placed") {
		spec.TargetHost, spec.DrainHost, spec.WriterHost = name.Draw(rt, "target"), name.Draw(rt, "drain"),
			name.Draw(rt, "writer host")
	}
	if spec.WriterHost != "" && rapid.Bool().Draw(rt, "limited") {
		spec.LatencyLimit = &durationpb.Duration{Nanos: rapid.Int32Range(1, 999999999).Draw(rt,
			"latency limit")}
	}
	if rapid.Bool().Draw(rt, "has members") {
		spec.Members, spec.Needed = rapid.Uint32Range(1, 9).Draw(rt, "members"),
			rapid.Uint32Range(1, 9).Draw(rt, "needed")
		spec.FailureDomain = rapid.SampledFrom([]string{"host", "rack", "site"}).Draw(rt, "domain")
	}
	return spec
}

func TestWriteFabric_ReadsAsItself(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		fabric := drawFabric(rt)
		raw, err := writeFabric(fabric)
		if err != nil {
			rt.Fatal(err)
		}
		if file := readFabric(raw); len(file.problems) > 0 || !proto.Equal(file.fabric, fabric) {
			rt.Fatalf("%s\nwas read as %v, %v", raw, file.fabric, file.problems)
		}
	})
}

// Whatever a file holds, it is read to its end, and every problem has a place in it.
func TestReadFabric_AnyText(t *testing.T) {
	words := rapid.SampledFrom([]string{
		"targets:", "streams:", "\n- ", "\n  ", "name:", "size:", " x", " 64MiB",
		"host:", " &a", " *a", " [", "]", "{", "}", ",", "\"", "#", ":", "|", "\t",
		"<<:", "!!int", "---\n", "...\n", " 1", "deadline:", "level:", "\x00", "\xff",
	})
	rapid.Check(t, func(rt *rapid.T) {
		text := strings.Join(rapid.SliceOfN(words, 0, 30).Draw(rt, "words"), "")
		file := readFabric([]byte(text))
		file.addProblems([]*api.Problem{{Field: "fabric.streams[0].name", Rule: "x"}})
		for _, one := range file.problems {
			if one.Line < 1 || one.Column < 1 || one.text() == "" {
				rt.Fatalf("%q: %+v", text, one)
			}
		}
	})
}

// An alias stands for what its anchor has, of whatever kind.
func TestReadFabric_Aliases(t *testing.T) {
	file := readFabric([]byte(`streams:
- &one {name: &name a, size: 1MiB}
- {name: *name, size: 2MiB}
- *one
drains: &none []
targets: *none
`))
	if len(file.problems) > 0 || len(file.fabric.Streams) != 3 || file.fabric.Streams[1].Name != "a" ||
		file.fabric.Streams[2].RingSizeBytes != 1<<20 {
		t.Errorf("got %v, %v", file.fabric, file.problems)
	}
}

// A file with more mistakes than anybody reads: the first of them are told, and the rest is counted, that of the
// control plane with it.
func TestTellProblems_MoreThanAnybodyReads(t *testing.T) {
	file := &fabricFile{more: 9_000}
	for line := range 1_000 {
		file.problems = append(file.problems, fileProblem{
			Line: line + 1, Column: 3, Field: "name",
			Rule: "expected each name once",
		})
	}
	stdout, stderr := new(strings.Builder), new(strings.Builder)
	err := printProblems(&environment{stdout: stdout, stderr: stderr, output: "json"}, "f.yaml", file, "changed")
	if err == nil || err.Error() != "f.yaml: 10000 problems of which 100 are shown, nothing is changed" {
		t.Error(err)
	}
	lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
	if len(lines) != problemsTold || lines[99] != "f.yaml:100:3: name: expected each name once" {
		t.Errorf("%d lines, the last %q", len(lines), lines[len(lines)-1])
	}
	if strings.Count(stdout.String(), `"line"`) != problemsTold || !strings.Contains(stdout.String(), `"more": 9900`) {
		t.Errorf("%s", stdout)
	}
	file.problems, file.more = file.problems[:1], 0
	stdout.Reset()
	if err := printProblems(&environment{stdout: stdout, stderr: stderr, output: "json"}, "f.yaml", file,
		"changed"); err.Error() != "f.yaml: 1 problem, nothing is changed" ||
		!strings.Contains(stdout.String(), `"more": 0`) {
		t.Error(err, stdout)
	}
}
