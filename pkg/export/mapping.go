package export

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/farlog/farlog/pkg/audit/fix"
	"github.com/farlog/farlog/pkg/config"
	"github.com/farlog/farlog/pkg/query"
)

const (
	mappingFormat   = "farlog-profile"
	mappingBytesMax = 1 << 20
	rowsRecords     = "records"
	rowsClock       = "clock"
)

// Sources of a field, but for constants followed by a name.
const (
	sourceRecord   = "record."
	sourceFIX      = "fix."
	sourceFIXCheck = "fix.check"
	sourceClock    = "clock."
	sourceConstant = "constant"
	sourceUnmapped = "unmapped"
)

// Forms of a field that is a time.
var timeForms = map[string]string{
	"utc-us": "2006-01-02T15:04:05.000000Z",
	"utc-ns": timeForm,
	"date":   "2006-01-02",
}

// Mapping is a profile: which fields a report has, and where each comes from.
type Mapping struct {
	Name    string
	Version int
	Rows    string // what makes a row: records or clock
	Where   *query.Filter
	Fields  []MappedField
	raw     []byte
}

// MappedField is a column of a report.
type MappedField struct {
	Name       string
	Source     string
	Form       string // of a time; "" = as it is
	About      string
	IsRequired bool
	Values     map[string]string // of the source, to those of the field; nil: as they are

	tag    int         // of a source of FIX
	field  query.Field // of a source of a record
	column int         // of a source of the clock evidence
}

// ParseMapping reads a mapping file. Errors: ErrInvalid, with each mistake as NAME:LINE:COLUMN.
func ParseMapping(name string, raw []byte) (*Mapping, error) {
	p := mappingParser{mapping: &Mapping{raw: raw}}
	if len(raw) > mappingBytesMax {
		return nil, fmt.Errorf("%w: %s: %d bytes, expected at most %d", ErrInvalid, name, len(raw), mappingBytesMax)
	}
	root, mistake := config.Document(raw)
	if mistake != nil {
		p.mistakes = append(p.mistakes, mistake)
	} else {
		p.file(root)
	}
	if len(p.mistakes) == 0 {
		return p.mapping, nil
	}
	errs := []error{ErrInvalid}
	for _, one := range p.mistakes {
		errs = append(errs, fmt.Errorf("%s:%d:%d: %s", name, one.Line, one.Column, one.Text))
	}
	return nil, errors.Join(errs...)
}

// mappingParser collects what is wrong with a file.
type mappingParser struct {
	mapping  *Mapping
	mistakes []*config.Mistake
}

func (p *mappingParser) fail(at *yaml.Node, format string, args ...any) {
	p.mistakes = append(
		p.mistakes,
		&config.Mistake{Line: at.Line, Column: at.Column, Text: fmt.Sprintf(format, args...)},
	)
}

// keys takes a mapping of YAML apart: each key at most once, none that is unknown, those that have to be there.
func (p *mappingParser) keys(node *yaml.Node, what string, known, required []string) map[string]*yaml.Node {
	found := map[string]*yaml.Node{}
	if node.Kind != yaml.MappingNode {
		p.fail(node, "%s: expected KEY: VALUE", what)
		return found
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		switch {
		case !slices.Contains(known, key.Value):
			p.fail(key, "unknown key %q of %s: expected %s", key.Value, what, strings.Join(known, ", "))
		case found[key.Value] != nil:
			p.fail(key, "key %q of %s is there twice", key.Value, what)
		case value.Kind == yaml.AliasNode || value.Style&yaml.TaggedStyle != 0:
			p.fail(value, "%s of %s: expected a value without an alias or a tag", key.Value, what)
		default:
			found[key.Value] = value
		}
	}
	for _, key := range required {
		if found[key] == nil {
			p.fail(node, "%s has no %s", what, key)
		}
	}
	return found
}

// text is a value; "" when it is not there.
func (p *mappingParser) text(found map[string]*yaml.Node, key string, allowed ...string) string {
	node := found[key]
	if node == nil {
		return ""
	}
	if node.Kind != yaml.ScalarNode || node.Value == "" {
		p.fail(node, "%s: expected a text", key)
		return ""
	}
	if len(allowed) > 0 && !slices.Contains(allowed, node.Value) {
		p.fail(node, "%s %q: expected %s", key, node.Value, strings.Join(allowed, " or "))
	}
	return node.Value
}

func (p *mappingParser) file(root *yaml.Node) {
	m := p.mapping
	found := p.keys(root, "the mapping file", []string{"format", "name", "version", "rows", "where", "fields"},
		[]string{"format", "name", "version", "rows", "fields"})
	p.text(found, "format", mappingFormat)
	m.Name = p.text(found, "name")
	m.Rows = p.text(found, "rows", rowsRecords, rowsClock)
	if text := p.text(found, "version"); text != "" {
		var err error
		if m.Version, err = strconv.Atoi(text); err != nil || m.Version < 1 {
			p.fail(found["version"], "version %q: expected a whole number from 1 on", text)
		}
	}
	if text := p.text(found, "where"); text != "" {
		var err error
		if m.Where, err = newFilter("where", text); err != nil {
			p.fail(found["where"], "%s", err)
		}
		if m.Rows == rowsClock {
			p.fail(found["where"], "where: expected none, for the rows are no records")
		}
	}
	list := found["fields"]
	if list == nil {
		return
	}
	if list.Kind != yaml.SequenceNode || len(list.Content) == 0 {
		p.fail(list, "fields: expected a list")
		return
	}
	for _, node := range list.Content {
		p.field(node)
	}
}

func (p *mappingParser) field(node *yaml.Node) {
	found := p.keys(node, "a field", []string{"name", "source", "required", "form", "values", "about"},
		[]string{"name", "source"})
	f := MappedField{
		Name: p.text(found, "name"), Source: p.text(found, "source"), About: p.text(found, "about"),
		IsRequired: p.text(found, "required", "true", "false") == "true",
		Form:       p.text(found, "form", "date", "utc-ns", "utc-us"),
	}
	if slices.ContainsFunc(p.mapping.Fields, func(o MappedField) bool { return o.Name == f.Name }) && f.Name != "" {
		p.fail(found["name"], "field %q is there twice", f.Name)
	}
	if f.Source != "" {
		p.source(found["source"], &f)
	}
	isTime := f.Source == sourceRecord+"time" || f.tag != 0
	if f.Form != "" && !isTime {
		p.fail(found["form"], "form %q: expected a source that is a time: record.time or fix.TAG", f.Form)
	}
	if values := found["values"]; values != nil {
		f.Values = map[string]string{}
		if values.Kind != yaml.MappingNode {
			p.fail(values, "values: expected VALUE: VALUE")
			return
		}
		for i := 0; i+1 < len(values.Content); i += 2 {
			key, value := values.Content[i], values.Content[i+1]
			if _, isThere := f.Values[key.Value]; isThere || value.Kind != yaml.ScalarNode {
				p.fail(key, "values: %q: expected one value of each, once", key.Value)
			}
			f.Values[key.Value] = value.Value
		}
	}
	p.mapping.Fields = append(p.mapping.Fields, f)
}

// source finds what a field is taken from.
func (p *mappingParser) source(node *yaml.Node, f *MappedField) {
	isOfClock := p.mapping.Rows == rowsClock
	if f.Source == sourceConstant || f.Source == sourceUnmapped || f.Source == sourceFIXCheck && !isOfClock {
		return
	}
	if name, isClock := strings.CutPrefix(f.Source, sourceClock); isClock && isOfClock {
		if f.column = slices.Index(clockColumns, name); f.column < 0 {
			p.fail(node, "source %q: unknown column of the clock evidence: expected one of %s", f.Source,
				strings.Join(clockColumns, ", "))
		}
		return
	}
	if text, isFIX := strings.CutPrefix(f.Source, sourceFIX); isFIX && !isOfClock {
		tag, isNumber := fix.Int([]byte(text))
		if !isNumber || tag < 1 || tag > fix.TagMax || strconv.Itoa(tag) != text {
			p.fail(node, "source %q: unknown tag: expected fix.1 to fix.%d, or fix.check", f.Source, fix.TagMax)
		}
		f.tag = tag
		return
	}
	if name, isRecord := strings.CutPrefix(f.Source, sourceRecord); isRecord && !isOfClock {
		all := fields()
		i := slices.IndexFunc(all, func(one query.Field) bool { return one.Name == name })
		if i < 0 {
			p.fail(node, "source %q: unknown field of a record", f.Source)
			return
		}
		f.field = all[i]
		return
	}
	p.fail(node, "source %q: expected %s, constant or unmapped", f.Source, map[bool]string{
		true: "clock.COLUMN", false: "record.FIELD, fix.TAG, fix.check",
	}[isOfClock])
}
