package query

import (
	"fmt"
	"slices"
	"strings"

	"github.com/farlog/farlog/pkg/record"
)

// Field is a column.
type Field struct {
	Name string
	kind fieldKind

	text   func(*Row) string
	number func(*Row) uint64
	raw    func(*Row) []byte
}

type fieldKind int

const (
	kindText    fieldKind = iota
	kindTime              // text, and in Parquet a time
	kindNumber            //
	kindKnown             // a number that may be unknown
	kindVarious           // bytes
)

const timeForm = "2006-01-02T15:04:05.000000000Z"

// fields are all that there are, in the order in which they are written by default.
var fields = []Field{
	{Name: "store", kind: kindText, text: func(r *Row) string { return r.Store }},
	{Name: "stream", kind: kindText, text: func(r *Row) string { return r.Stream }},
	{Name: "generation", kind: kindNumber, number: func(r *Row) uint64 { return r.Generation }},
	{Name: "lsn", kind: kindNumber, number: func(r *Row) uint64 { return r.LSN }},
	{Name: "seq", kind: kindNumber, number: func(r *Row) uint64 { return r.Seq }},
	{Name: "epoch", kind: kindNumber, number: func(r *Row) uint64 { return uint64(r.Epoch) }},
	{Name: "time", kind: kindTime, text: func(r *Row) string { return r.Time().Format(timeForm) }},
	{Name: "ts_ns", kind: kindNumber, number: func(r *Row) uint64 { return r.TimestampNS }},
	{Name: "clock_err_ns", kind: kindKnown, number: func(r *Row) uint64 { return uint64(r.ClockErrNS) }},
	{Name: "class", kind: kindNumber, number: func(r *Row) uint64 { return uint64(r.Class) }},
	{Name: "key", kind: kindVarious, raw: func(r *Row) []byte { return r.Key }},
	{Name: "len", kind: kindNumber, number: func(r *Row) uint64 { return uint64(len(r.Payload)) }},
	{Name: "payload", kind: kindVarious, raw: func(r *Row) []byte { return r.Payload }},
}

// FieldNames are those of all fields.
func FieldNames() []string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.Name
	}
	return names
}

// Fields finds fields by their names. An error says which one there is not.
func Fields(names []string) ([]Field, error) {
	list := make([]Field, 0, len(names))
	for _, name := range names {
		i := slices.IndexFunc(fields, func(f Field) bool { return f.Name == name })
		isTwice := slices.ContainsFunc(list, func(f Field) bool { return f.Name == name })
		if i < 0 || isTwice {
			return nil, fmt.Errorf("field %q: expected some of %s, each once", name, strings.Join(FieldNames(), ", "))
		}
		list = append(list, fields[i])
	}
	return list, nil
}

// IsNumber says that the field is written to the right.
func (f Field) IsNumber() bool { return f.kind == kindNumber || f.kind == kindKnown }

// Bytes are the value of a field that holds any bytes; ok is false for others.
func (f Field) Bytes(row *Row) (raw []byte, ok bool) {
	if f.kind != kindVarious {
		return nil, false
	}
	return f.raw(row), true
}

// isUnknown says that a row has no value of the field.
func (f Field) isUnknown(row *Row) bool {
	return f.kind == kindKnown && f.number(row) == uint64(record.ClockErrUnknown)
}

// Text is the value on one line. Nothing is lost: what is no printable UTF-8 is written as \xNN, byte by byte, and a
// backslash as \\. "" where it is unknown.
func (f Field) Text(row *Row) string {
	switch {
	case f.isUnknown(row):
		return ""
	case f.IsNumber():
		return fmt.Sprint(f.number(row))
	case f.kind == kindVarious:
		return Escape(f.raw(row))
	}
	return Escape([]byte(f.text(row)))
}
