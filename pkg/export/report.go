package export

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/farlog/farlog/pkg/audit/fix"
	"github.com/farlog/farlog/pkg/query"
)

// report writes what a profile makes of the records, or of the clock evidence.
type report struct {
	mapping   *Mapping
	constants map[string]string
	table     *table
	message   fix.Message
	rows      uint64
}

// CheckConstants compares constants with the fields that take one. Required fields without a source are named here,
// before anything is read. Errors: ErrInvalid.
func (m *Mapping) CheckConstants(constants map[string]string) error {
	var without, known []string
	for _, f := range m.Fields {
		if f.Source == sourceConstant {
			known = append(known, f.Name)
		}
		if _, isGiven := constants[f.Name]; f.IsRequired &&
			(f.Source == sourceUnmapped || f.Source == sourceConstant && !isGiven) {
			without = append(without, f.Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(constants)) {
		if !slices.Contains(known, name) {
			return fmt.Errorf("%w: profile %s: constant %q: no field takes it: expected one of %s", ErrInvalid, m.Name,
				name, strings.Join(known, ", "))
		}
	}
	if len(without) > 0 {
		return fmt.Errorf("%w: profile %s: required and not mapped: %s: give a constant as NAME=VALUE (--constant), "+
			"or a mapping file that has a source for each (--profile ./mine.yaml)", ErrInvalid, m.Name,
			strings.Join(without, ", "))
	}
	return nil
}

func (d *derivation) openReport(to outputs, mapping *Mapping, constants map[string]string) (*report, error) {
	if err := mapping.CheckConstants(constants); err != nil {
		return nil, err
	}
	sources, err := d.table(to, reportFieldsFile, "field", "required", "source", "constant", "form", "about")
	if err != nil {
		return nil, err
	}
	head := make([]string, len(mapping.Fields))
	for i, f := range mapping.Fields {
		head[i] = query.Escape([]byte(f.Name))
		if err := sources.write(f.Name, f.IsRequired, f.Source, constants[f.Name], f.Form, f.About); err != nil {
			return nil, err
		}
	}
	if sources.out.Flush(); sources.out.Error() != nil {
		return nil, sources.out.Error()
	}
	r := &report{mapping: mapping, constants: constants}
	r.table, err = d.table(to, reportFile, head...)
	return r, err
}

// record writes a row of a record, when it makes one.
func (r *report) record(ctx context.Context, row *query.Row) error {
	if r.mapping.Rows != rowsRecords {
		return nil
	}
	err := r.recordRow(ctx, row)
	if err != nil {
		err = fmt.Errorf("profile %s: stream %s, lsn %d: %w", r.mapping.Name, row.Stream, row.LSN, err)
	}
	return err
}

func (r *report) recordRow(ctx context.Context, row *query.Row) error {
	if r.mapping.Where != nil {
		if isWanted, err := r.mapping.Where.Matches(ctx, row); err != nil || !isWanted {
			return err
		}
	}
	isFIX := slices.ContainsFunc(r.mapping.Fields, func(f MappedField) bool {
		return strings.HasPrefix(f.Source, sourceFIX)
	})
	if isFIX {
		if err := fix.Parse(row.Payload, &r.message); err != nil {
			return fmt.Errorf("%w; a filter, or where of the mapping file, leaves it out", err)
		}
	}
	return r.write(func(f *MappedField) (string, error) { return r.ofRecord(f, row) })
}

// clock writes a row of the clock evidence.
func (r *report) clock(values []any) error {
	return r.write(func(f *MappedField) (string, error) {
		if strings.HasPrefix(f.Source, sourceClock) {
			return fmt.Sprint(values[f.column]), nil
		}
		return r.constants[f.Name], nil
	})
}

// write writes a row. A required field without a value, and a value that the mapping does not know, are errors.
func (r *report) write(value func(*MappedField) (string, error)) error {
	line := make([]any, len(r.mapping.Fields))
	for i := range r.mapping.Fields {
		f := &r.mapping.Fields[i]
		text, err := value(f)
		if err != nil {
			return fmt.Errorf("field %s: %s: %w", f.Name, f.Source, err)
		}
		if f.Values != nil && text != "" {
			mapped, isKnown := f.Values[text]
			if !isKnown {
				return fmt.Errorf("field %s: %s is %.80q, which the mapping file has no value for", f.Name, f.Source,
					text)
			}
			text = mapped
		}
		if text == "" && f.IsRequired {
			return fmt.Errorf("field %s is required: %s has no value", f.Name, f.Source)
		}
		line[i] = text
	}
	r.rows++
	return r.table.write(line...)
}

// ofRecord is the value of a field; "" = none.
func (r *report) ofRecord(f *MappedField, row *query.Row) (string, error) {
	switch {
	case f.Source == sourceConstant || f.Source == sourceUnmapped:
		return r.constants[f.Name], nil
	case f.Source == sourceFIXCheck:
		return strings.Join(r.message.Check(), "; "), nil
	case f.tag != 0:
		value := r.message.Get(f.tag)
		if f.Form == "" || value == nil {
			return string(value), nil
		}
		ns, err := fix.ParseTimestamp(value)
		return time.Unix(0, ns).UTC().Format(timeForms[f.Form]), err
	case f.Form != "":
		return row.Time().Format(timeForms[f.Form]), nil
	}
	if raw, isBytes := f.field.Bytes(row); isBytes {
		return string(raw), nil
	}
	if f.field.Name == "stream" { // its text is escaped, as the table is
		return row.Stream, nil
	}
	return f.field.Text(row), nil
}
