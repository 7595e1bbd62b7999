package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/reflect/protoreflect"

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

// fileField is a key of an item: the name of the field in the API, and how its value is read and written. A key with
// one value has set, any other read. What write gives nil for is left out. fromAPI, where there is one, turns a value
// that the API gives as a text into what a file has.
type fileField[M any] struct {
	key, field string
	items      []fileField[M] // of a list: the keys of its items
	set        func(item M, text string) error
	read       func(f *fabricFile, item M, path string, node *yaml.Node)
	write      func(M) *yaml.Node
	fromAPI    func(text string) string
}

// readFabric reads a fabric.yaml and goes on behind what is wrong, so that all of it is told.
func readFabric(raw []byte) *fabricFile {
	f := &fabricFile{fabric: new(api.Fabric), places: map[string]place{}, keys: map[string]string{}}
	root, mistake := config.Document(raw)
	if mistake != nil { // an empty file declares nothing, which with --prune is to delete all: that is said as {}
		f.problems = append(f.problems, fileProblem{Line: mistake.Line, Column: mistake.Column, Rule: mistake.Text})
		return f
	}
	planned := apiField{key: "plan", field: "plan", read: func(f *fabricFile, _ protoreflect.Message, path string,
		node *yaml.Node,
	) {
		f.hasPlan = true
		readKeys(f, node, path, &f.planned, plannedFields)
	}}
	readKeys(f, root, "", f.fabric.ProtoReflect(), append(slices.Clone(fabricFields), planned))
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

// readKeys reads the keys of one item.
func readKeys[M any](f *fabricFile, node *yaml.Node, path string, item M, fields []fileField[M]) {
	known := make([]string, len(fields))
	for i, field := range fields {
		known[i] = field.key
	}
	for key, value := range f.members(node, path, known) {
		field := fields[slices.Index(known, key)]
		full := strings.TrimPrefix(path+"."+key, ".")
		f.note(strings.TrimPrefix(path+"."+field.field, "."), full, value)
		if field.set == nil {
			field.read(f, item, full, value)
		} else {
			setKey(f, value, full, func(text string) error { return field.set(item, text) })
		}
	}
}

// readItems reads a list; add makes one more item.
func readItems[M any](f *fabricFile, path string, node *yaml.Node, fields []fileField[M], add func() M) {
	if node.Kind == yaml.ScalarNode && node.Tag == "!!null" {
		return
	}
	if node.Kind != yaml.SequenceNode {
		f.fail(node, path, "", "expected a list")
		return
	}
	for i, element := range node.Content {
		element = config.Referred(element)
		at := fmt.Sprintf("%s[%d]", path, i)
		f.places["fabric."+at] = place{element.Line, element.Column}
		readKeys(f, element, at, add(), fields)
	}
}

// setKey reads a key that has one value.
func setKey(f *fabricFile, node *yaml.Node, path string, set func(string) error) {
	if node.Kind != yaml.ScalarNode {
		f.fail(node, path, "", "expected one value")
	} else if node.Tag == "!!null" {
		f.fail(node, path, node.Value, "expected a value, or no such key")
	} else if err := set(node.Value); err != nil {
		f.fail(node, path, node.Value, ruleOf(err))
	}
}

// ruleOf is what was expected, of an error that also says of what.
func ruleOf(err error) string {
	if _, rule, ok := strings.Cut(err.Error(), ": expected"); ok {
		return "expected" + rule
	}
	return err.Error()
}

// addProblems adds what the control plane found, each at its place. What stands where something is wrong already
// follows from that.
func (f *fabricFile) addProblems(problems []*api.Problem) {
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
	parts, fields := strings.Split(field, "."), fabricFields
	for i, part := range parts {
		name, _, _ := strings.Cut(part, "[")
		at := slices.IndexFunc(fields, func(one apiField) bool { return one.field == name })
		if at < 0 {
			break
		}
		parts[i] = fields[at].key + strings.TrimPrefix(part, name)
		fields = fields[at].items
	}
	return strings.Join(parts, ".")
}

// writeFabric is readFabric the other way. One that declares nothing is {}.
func writeFabric(fabric *api.Fabric) ([]byte, error) {
	return yaml.Marshal(writeKeys(fabric.ProtoReflect(), fabricFields))
}

func writeKeys(item protoreflect.Message, fields []apiField) *yaml.Node {
	mapping := &yaml.Node{Kind: yaml.MappingNode}
	for _, field := range fields {
		if node := field.write(item); node != nil {
			mapping.Content = append(mapping.Content, scalar(field.key), node)
		}
	}
	return mapping
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
