package query

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"
)

// Encoder writes rows.
type Encoder interface {
	Write(row *Row) error
	// Close writes what is left. Without it what was written is not whole: that is what a failed query leaves.
	Close() error
}

// Formats of NewEncoder.
const (
	FormatJSON    = "json"
	FormatCSV     = "csv"
	FormatParquet = "parquet"
)

// NewEncoder makes an encoder of a format.
func NewEncoder(format string, out io.Writer, list []Field) (Encoder, error) {
	buffered := bufio.NewWriterSize(out, 64<<10)
	switch format {
	case FormatJSON:
		return newJSONEncoder(buffered, list), nil
	case FormatCSV:
		return newCSVEncoder(buffered, list)
	case FormatParquet:
		return newParquetEncoder(buffered, list), nil
	}
	return nil, fmt.Errorf("format %q: expected %s, %s or %s", format, FormatJSON, FormatCSV, FormatParquet)
}

// jsonEncoder writes an object a line. Bytes that are UTF-8 are a string, which nothing but the escapes of JSON stand
// in; others are base64, in a field with _base64 behind its name.
type jsonEncoder struct {
	out    *bufio.Writer
	list   []Field
	line   bytes.Buffer
	quoted *json.Encoder // into line
}

func newJSONEncoder(out *bufio.Writer, list []Field) *jsonEncoder {
	e := &jsonEncoder{out: out, list: list}
	e.quoted = json.NewEncoder(&e.line)
	e.quoted.SetEscapeHTML(false)
	return e
}

func (e *jsonEncoder) Write(row *Row) error {
	e.line.Reset()
	separator := byte('{')
	for _, f := range e.list {
		name, value := f.Name, any(nil)
		switch {
		case f.isUnknown(row):
		case f.IsNumber():
			value = f.number(row)
		case f.kind != kindVarious:
			value = f.text(row)
		case utf8.Valid(f.raw(row)):
			value = string(f.raw(row))
		default:
			name, value = name+"_base64", f.raw(row)
		}
		e.line.WriteByte(separator)
		separator = ','
		e.line.WriteString(strconv.Quote(name))
		e.line.WriteByte(':')
		if err := e.quoted.Encode(value); err != nil {
			return fmt.Errorf("encode %s: %w", name, err)
		}
		e.line.Truncate(e.line.Len() - 1) // the newline
	}
	e.line.WriteString("}\n")
	_, err := e.out.Write(e.line.Bytes())
	return err
}

func (e *jsonEncoder) Close() error { return e.out.Flush() }

// csvEncoder writes a head and a line a row (RFC 4180), with Field.Text as values.
type csvEncoder struct {
	out    *csv.Writer
	under  *bufio.Writer
	list   []Field
	values []string
}

func newCSVEncoder(out *bufio.Writer, list []Field) (*csvEncoder, error) {
	e := &csvEncoder{out: csv.NewWriter(out), under: out, list: list, values: make([]string, len(list))}
	for i, f := range list {
		e.values[i] = f.Name
	}
	return e, e.out.Write(e.values)
}

func (e *csvEncoder) Write(row *Row) error {
	for i, f := range e.list {
		e.values[i] = f.Text(row)
	}
	if len(e.values) > 1 || e.values[0] != "" {
		return e.out.Write(e.values)
	}
	if e.out.Flush(); e.out.Error() != nil {
		return e.out.Error()
	}
	_, err := e.under.WriteString("\"\"\n") // an empty line is no row to who reads it
	return err
}

func (e *csvEncoder) Close() error {
	if e.out.Flush(); e.out.Error() != nil {
		return e.out.Error()
	}
	return e.under.Flush()
}
