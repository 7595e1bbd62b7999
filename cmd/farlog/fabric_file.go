package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/config"
	"github.com/farlog/farlog/pkg/plan"
)

// fabricFile is a fabric.yaml: what it declares, where each field of that stands, and what is wrong with it.
type fabricFile struct {
	fabric   *api.Fabric
	places   map[string]place // by the field's path in the API, as fabric.streams[2].align
	keys     map[string]string
	planned  plan.Input // what only farlog plan asks for
	hasPlan  bool
	problems []fileProblem
	more     int // that the control plane has found and not told
}

// place is where something stands in a file, from 1.
type place struct{ line, column int }

// fileProblem is one thing that is wrong with a fabric.yaml.
type fileProblem struct {
	Line   int    `json:"line"`
	Column int    `json:"column"`
	Field  string `json:"field,omitempty"`
	Value  string `json:"value,omitempty"`
	Rule   string `json:"rule"`
}

// text is the problem for people.
func (p fileProblem) text() string {
	if what := strings.TrimSpace(p.Field + " " + p.Value); what != "" {
		return what + ": " + p.Rule
	}
	return p.Rule
}

// fileField is a key of an item: the name of the field in the API, and how its value is read and written.
type fileField[M any] struct {
	key, field string
	read       func(M, string) error
	write      func(M) string // "" = leave it out
}

var targetFields = []fileField[*api.TargetSpec]{
	{
		"host", "host", func(t *api.TargetSpec, text string) error { t.Host = text; return nil },
		func(t *api.TargetSpec) string { return t.Host },
	},
	{
		"capacity", "capacity_bytes", func(t *api.TargetSpec, text string) (err error) {
			t.CapacityBytes, err = config.ParseSize(text)
			return err
		},
		func(t *api.TargetSpec) string { return sizeOrNothing(t.CapacityBytes) },
	},
	{
		"closed", "is_closed", func(t *api.TargetSpec, text string) (err error) {
			t.IsClosed,
				err = readBool(text)
			return err
		},
		func(t *api.TargetSpec) string { return map[bool]string{true: "true"}[t.IsClosed] },
	},
	{
		"rack", "rack", func(t *api.TargetSpec, text string) error { t.Rack = text; return nil },
		func(t *api.TargetSpec) string { return t.Rack },
	},
	{
		"site", "site", func(t *api.TargetSpec, text string) error { t.Site = text; return nil },
		func(t *api.TargetSpec) string { return t.Site },
	},
	{
		"wear_limit", "wear_limit_percent", func(t *api.TargetSpec, text string) (err error) {
			t.WearLimitPercent, err = readPercent(text)
			return err
		},
		func(t *api.TargetSpec) string { return percentOrNothing(t.WearLimitPercent) },
	},
}

var tenantFields = []fileField[*api.TenantSpec]{
	{
		"name", "name", func(t *api.TenantSpec, text string) error { t.Name = text; return nil },
		func(t *api.TenantSpec) string { return t.Name },
	},
	{"streams", "streams_max", func(t *api.TenantSpec, text string) error {
		count, err := readCount(text)
		t.StreamsMax = uint64(count)
		return err
	}, func(t *api.TenantSpec) string { return countOrNothing(uint32(t.StreamsMax)) }},
	{"ring_bytes", "ring_bytes_max", func(t *api.TenantSpec, text string) (err error) {
		t.RingBytesMax, err = config.ParseSize(text)
		return err
	}, func(t *api.TenantSpec) string { return sizeOrNothing(t.RingBytesMax) }},
	{"records_per_second", "records_per_second_max", func(t *api.TenantSpec, text string) (err error) {
		t.RecordsPerSecondMax, err = readRate(text)
		return err
	}, func(t *api.TenantSpec) string { return rateOrNothing(t.RecordsPerSecondMax) }},
	{"bytes_per_second", "bytes_per_second_max", func(t *api.TenantSpec, text string) (err error) {
		t.BytesPerSecondMax, err = config.ParseSize(text)
		return err
	}, func(t *api.TenantSpec) string { return sizeOrNothing(t.BytesPerSecondMax) }},
}

var streamFields = []fileField[*api.StreamSpec]{
	{
		"name", "name", func(s *api.StreamSpec, text string) error { s.Name = text; return nil },
		func(s *api.StreamSpec) string { return s.Name },
	},
	{
		"size", "ring_size_bytes", func(s *api.StreamSpec, text string) (err error) {
			s.RingSizeBytes, err = config.ParseSize(text)
			return err
		},
		func(s *api.StreamSpec) string { return sizeOrNothing(s.RingSizeBytes) },
	},
	{
		"record_len_max", "record_len_max", func(s *api.StreamSpec, text string) (err error) {
			s.RecordLenMax,
				err = readSize32(text)
			return err
		},
		func(s *api.StreamSpec) string { return sizeOrNothing(uint64(s.RecordLenMax)) },
	},
	{
		"align", "align", func(s *api.StreamSpec, text string) (err error) { s.Align, err = readSize32(text); return err },
		func(s *api.StreamSpec) string { return strconv.FormatUint(uint64(s.Align), 10) },
	},
	{"level", "level", func(s *api.StreamSpec, text string) (err error) {
		var level int32
		level, err = readEnum(text, "LEVEL_", api.Level_value, "posted, visible or persistent")
		s.Level = api.Level(level)
		return err
	}, func(s *api.StreamSpec) string { return shortName(s.Level.String()) }},
	{"policy", "policy", func(s *api.StreamSpec, text string) (err error) {
		var policy int32
		policy, err = readEnum(text, "POLICY_", api.Policy_value, "block or reject")
		s.Policy = api.Policy(policy)
		return err
	}, func(s *api.StreamSpec) string { return shortName(s.Policy.String()) }},
	{"deadline", "deadline", func(s *api.StreamSpec, text string) error {
		deadline, err := config.ParseDuration(text)
		s.Deadline = durationpb.New(deadline)
		return err
	}, func(s *api.StreamSpec) string { return durationOrNothing(s.Deadline.AsDuration()) }},
	{
		"members", "members", func(s *api.StreamSpec, text string) (err error) {
			s.Members,
				err = readCount(text)
			return err
		},
		func(s *api.StreamSpec) string { return countOrNothing(s.Members) },
	},
	{
		"needed", "needed", func(s *api.StreamSpec, text string) (err error) {
			s.Needed,
				err = readCount(text)
			return err
		},
		func(s *api.StreamSpec) string { return countOrNothing(s.Needed) },
	},
	{
		"failure_domain", "failure_domain", func(s *api.StreamSpec,
			text string,
		) error {
			s.FailureDomain = text
			return nil
		},
		func(s *api.StreamSpec) string { return s.FailureDomain },
	},
	{
		"target", "target_host", func(s *api.StreamSpec, text string) error { s.TargetHost = text; return nil },
		func(s *api.StreamSpec) string { return s.TargetHost },
	},
	{
		"writer_host", "writer_host", func(s *api.StreamSpec, text string) error { s.WriterHost = text; return nil },
		func(s *api.StreamSpec) string { return s.WriterHost },
	},
	{"latency_limit", "latency_limit", func(s *api.StreamSpec, text string) error {
		limit, err := config.ParseDuration(text)
		s.LatencyLimit = durationpb.New(limit)
		return err
	}, func(s *api.StreamSpec) string { return durationOrNothing(s.LatencyLimit.AsDuration()) }},
	{
		"drain", "drain_host", func(s *api.StreamSpec, text string) error { s.DrainHost = text; return nil },
		func(s *api.StreamSpec) string { return s.DrainHost },
	},
	{
		"records_per_second", "records_per_second", func(s *api.StreamSpec, text string) (err error) {
			s.RecordsPerSecond,
				err = readRate(text)
			return err
		},
		func(s *api.StreamSpec) string { return rateOrNothing(s.RecordsPerSecond) },
	},
	{
		"bytes_per_second", "bytes_per_second", func(s *api.StreamSpec, text string) (err error) {
			s.BytesPerSecond, err = config.ParseSize(text)
			return err
		},
		func(s *api.StreamSpec) string { return sizeOrNothing(s.BytesPerSecond) },
	},
}

func rateOrNothing(rate uint64) string {
	if rate == 0 {
		return ""
	}
	return strconv.FormatUint(rate, 10)
}

func readRate(text string) (uint64, error) {
	rate, err := strconv.ParseUint(text, 10, 64)
	if err != nil || rate == 0 {
		return 0, fmt.Errorf("expected a whole number of records a second, from 1 on")
	}
	return rate, nil
}

func sizeOrNothing(bytes uint64) string {
	if bytes == 0 {
		return ""
	}
	return config.FormatSize(bytes)
}

func countOrNothing(count uint32) string {
	if count == 0 {
		return ""
	}
	return strconv.FormatUint(uint64(count), 10)
}

func readCount(text string) (uint32, error) {
	count, err := strconv.ParseUint(text, 10, 32)
	if err != nil || count == 0 {
		return 0, fmt.Errorf("expected a whole number from 1 on")
	}
	return uint32(count), nil
}

func percentOrNothing(percent uint32) string {
	if percent == 0 {
		return ""
	}
	return strconv.FormatUint(uint64(percent), 10) + "%"
}

// readPercent reads how far a device may be worn: 80%.
func readPercent(text string) (uint32, error) {
	digits, isPercent := strings.CutSuffix(text, "%")
	percent, err := strconv.ParseUint(digits, 10, 8)
	if err != nil || !isPercent || percent == 0 {
		return 0, fmt.Errorf("expected a whole number of percent from 1%% to 255%%, such as 80%%")
	}
	return uint32(percent), nil
}

func durationOrNothing(duration time.Duration) string {
	if duration == 0 {
		return ""
	}
	return duration.String()
}

func readBool(text string) (bool, error) {
	if text != "true" && text != "false" {
		return false, fmt.Errorf("expected true or false")
	}
	return text == "true", nil
}

func readSize32(text string) (uint32, error) {
	size, err := config.ParseSize(text)
	if err == nil && size > 1<<31 {
		err = fmt.Errorf("expected at most 2GiB")
	}
	return uint32(size), err
}

func readEnum(text, prefix string, values map[string]int32, expected string) (int32, error) {
	value, ok := values[prefix+strings.ToUpper(text)]
	if !ok || value == 0 {
		return 0, fmt.Errorf("expected %s", expected)
	}
	return value, nil
}

// readFabric reads a fabric.yaml and goes on behind what is wrong, so that all of it is told.
func readFabric(raw []byte) *fabricFile {
	f := &fabricFile{fabric: new(api.Fabric), places: map[string]place{}, keys: map[string]string{}}
	root, mistake := config.Document(raw)
	if mistake != nil { // an empty file declares nothing, which with --prune is to delete all: that is said as {}
		f.problems = append(f.problems, fileProblem{Line: mistake.Line, Column: mistake.Column, Rule: mistake.Text})
		return f
	}
	for key, value := range f.members(root, "", []string{"targets", "drains", "tenants", "streams", "routes", "plan"}) {
		f.note(key, key, value)
		switch key {
		case "targets":
			f.fabric.Targets = readItems(f, key, value, targetFields,
				func() *api.TargetSpec { return new(api.TargetSpec) })
		case "drains":
			f.fabric.Drains = readItems(f, key, value, drainFields, func() *api.DrainSpec { return new(api.DrainSpec) })
		case "tenants":
			f.fabric.Tenants = readItems(f, key, value, tenantFields,
				func() *api.TenantSpec { return new(api.TenantSpec) })
		case "streams":
			f.fabric.Streams = readItems(f, key, value, streamFields,
				func() *api.StreamSpec { return new(api.StreamSpec) })
		case "routes":
			f.fabric.Routes = readItemsWith(f, key, value, routeFields, routeLists,
				func() *api.RouteSpec { return new(api.RouteSpec) })
		case "plan":
			f.readPlanned(value)
		}
	}
	return f
}

func (f *fabricFile) fail(at *yaml.Node, field, value, rule string) {
	f.problems = append(f.problems, fileProblem{
		Line: at.Line, Column: at.Column, Field: field, Value: value,
		Rule: rule,
	})
}

// members goes through a mapping; a key that is unknown or comes twice is a problem.
func (f *fabricFile) members(node *yaml.Node, path string, known []string) func(func(string, *yaml.Node) bool) {
	return func(yield func(string, *yaml.Node) bool) {
		if node.Kind != yaml.MappingNode {
			f.fail(node, path, "", "expected keys: "+strings.Join(known, ", "))
			return
		}
		seen := map[string]bool{}
		for i := 0; i+1 < len(node.Content); i += 2 {
			key, value := node.Content[i], config.Referred(node.Content[i+1])
			switch {
			case !slices.Contains(known, key.Value):
				f.fail(key, path, key.Value, "unknown key, expected one of "+strings.Join(known, ", "))
			case seen[key.Value]:
				f.fail(key, path, key.Value, "the key is there twice")
			default:
				if !yield(key.Value, value) {
					return
				}
			}
			seen[key.Value] = true
		}
	}
}

// note remembers where a field stands, and what it is called in the file.
func (f *fabricFile) note(field, key string, node *yaml.Node) {
	f.places["fabric."+field], f.keys["fabric."+field] = place{node.Line, node.Column}, key
}

// readItems reads a list of targets or streams.
func readItems[M any](f *fabricFile, list string, node *yaml.Node, fields []fileField[M], make func() M) (items []M) {
	return readItemsWith(f, list, node, fields, nil, make)
}

// readItemsWith reads a list of items some of whose keys have lists themselves.
func readItemsWith[M any](f *fabricFile, list string, node *yaml.Node, fields []fileField[M], lists []fileList[M],
	make func() M,
) (items []M) {
	if node.Kind == yaml.ScalarNode && node.Tag == "!!null" {
		return nil
	}
	if node.Kind != yaml.SequenceNode {
		f.fail(node, list, "", "expected a list")
		return nil
	}
	known := []string{}
	for _, field := range fields {
		known = append(known, field.key)
	}
	for _, list := range lists {
		known = append(known, list.key)
	}
	for i, element := range node.Content {
		element = config.Referred(element)
		path := fmt.Sprintf("%s[%d]", list, i)
		f.places["fabric."+path] = place{element.Line, element.Column}
		item := make()
		for key, value := range f.members(element, path, known) {
			full, number := path+"."+key, slices.Index(known, key)
			if number >= len(fields) {
				one := lists[number-len(fields)]
				f.note(path+"."+one.field, full, value)
				one.read(f, item, full, value)
				continue
			}
			field := fields[number]
			f.note(path+"."+field.field, full, value)
			if value.Kind != yaml.ScalarNode {
				f.fail(value, full, "", "expected one value")
			} else if value.Tag == "!!null" {
				f.fail(value, full, value.Value, "expected a value, or no such key")
			} else if err := field.read(item, value.Value); err != nil {
				f.fail(value, full, value.Value, ruleOf(err))
			}
		}
		items = append(items, item)
	}
	return items
}

// ruleOf is what was expected, of an error that also says of what.
func ruleOf(err error) string {
	if _, rule, ok := strings.Cut(err.Error(), ": expected"); ok {
		return "expected" + rule
	}
	return err.Error()
}

// take adds what the control plane found, each at its place. What stands where something is wrong already follows from
// that.
func (f *fabricFile) take(problems []*api.Problem) {
	own := map[place]bool{}
	for _, one := range f.problems {
		own[place{one.Line, one.Column}] = true
	}
	for _, one := range problems {
		at, key := f.find(one.Field)
		if !own[at] {
			f.problems = append(f.problems, fileProblem{
				Line: at.line, Column: at.column, Field: key, Value: one.Value,
				Rule: one.Rule,
			})
		}
	}
	slices.SortStableFunc(f.problems, func(a, b fileProblem) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
}

// find gives the place of a field, or of the item that lacks it, and its name in the file.
func (f *fabricFile) find(field string) (place, string) {
	key := f.keys[field]
	if key == "" {
		key = fileName(strings.TrimPrefix(field, "fabric."))
	}
	for path := field; path != ""; path = path[:max(strings.LastIndexByte(path, '.'), 0)] {
		if at, ok := f.places[path]; ok {
			return at, key
		}
	}
	return place{1, 1}, key
}

// fileName is what a field that the file does not have would be called there.
func fileName(field string) string {
	if at := strings.LastIndexByte(field, '.'); strings.HasPrefix(field, "streams[") {
		for _, one := range streamFields {
			if one.field == field[at+1:] {
				return field[:at+1] + one.key
			}
		}
	}
	return field
}

// writeFabric is readFabric the other way.
func writeFabric(fabric *api.Fabric) ([]byte, error) {
	root := &yaml.Node{Kind: yaml.MappingNode}
	root.Content = append(root.Content, scalar("targets"), writeItems(fabric.Targets, targetFields))
	if len(fabric.Drains) > 0 {
		root.Content = append(root.Content, scalar("drains"), writeItems(fabric.Drains, drainFields))
	}
	if len(fabric.Tenants) > 0 {
		root.Content = append(root.Content, scalar("tenants"), writeItems(fabric.Tenants, tenantFields))
	}
	root.Content = append(root.Content, scalar("streams"), writeItems(fabric.Streams, streamFields))
	if len(fabric.Routes) > 0 {
		root.Content = append(root.Content, scalar("routes"), writeItemsWith(fabric.Routes, routeFields, routeLists))
	}
	return yaml.Marshal(root)
}

func writeItems[M any](items []M, fields []fileField[M]) *yaml.Node {
	return writeItemsWith(items, fields, nil)
}

func writeItemsWith[M any](items []M, fields []fileField[M], lists []fileList[M]) *yaml.Node {
	list := &yaml.Node{Kind: yaml.SequenceNode}
	if len(items) == 0 {
		list.Style = yaml.FlowStyle
	}
	for _, item := range items {
		mapping := &yaml.Node{Kind: yaml.MappingNode}
		for _, field := range fields {
			if text := field.write(item); text != "" {
				mapping.Content = append(mapping.Content, scalar(field.key), scalar(text))
			}
		}
		for _, one := range lists {
			if node := one.write(item); node != nil {
				mapping.Content = append(mapping.Content, scalar(one.key), node)
			}
		}
		list.Content = append(list.Content, mapping)
	}
	return list
}

// scalar is a text; one that YAML would take for something else, such as a host named 1, is quoted.
func scalar(text string) *yaml.Node {
	node := new(yaml.Node)
	node.SetString(text)
	var read any
	if err := yaml.Unmarshal([]byte(text), &read); err == nil {
		if _, isText := read.(string); !isText && text != "true" && !isNumber(text) {
			node.Style = yaml.DoubleQuotedStyle
		} else if !isText {
			node.Tag = ""
		}
	}
	return node
}

func isNumber(text string) bool {
	_, err := strconv.ParseUint(text, 10, 64)
	return err == nil
}
