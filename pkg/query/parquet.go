package query

import (
	"bufio"
	"cmp"
	"fmt"
	"slices"

	"github.com/parquet-go/parquet-go"
)

// Rows that are written together, and how many of them make a group, which is what is in memory.
const (
	parquetBatch     = 256
	parquetGroupRows = 100_000
	parquetGroupLen  = 64 << 20 // of payloads and keys
)

// parquetEncoder writes one file, with the columns in the order of their names. Bytes are as they are.
type parquetEncoder struct {
	out     *bufio.Writer
	writer  *parquet.GenericWriter[any]
	columns []Field // in the order of the file
	batch   []parquet.Row
	count   int // rows in the group
	size    int // bytes in it
}

func newParquetEncoder(out *bufio.Writer, list []Field) *parquetEncoder {
	e := &parquetEncoder{out: out, columns: parquetColumns(list)}
	group := parquet.Group{}
	for _, f := range list {
		group[f.Name] = parquet.Compressed(f.node(), &parquet.Zstd)
	}
	e.writer = parquet.NewGenericWriter[any](out, parquet.NewSchema("farlog", group))
	return e
}

// parquetColumns are fields in the order of a file.
func parquetColumns(list []Field) []Field {
	return slices.SortedFunc(slices.Values(list), func(a, b Field) int { return cmp.Compare(a.Name, b.Name) })
}

// node is the type of a column.
func (f Field) node() parquet.Node {
	switch f.kind {
	case kindNumber:
		return parquet.Uint(64)
	case kindKnown:
		return parquet.Optional(parquet.Uint(64))
	case kindTime:
		return parquet.Timestamp(parquet.Nanosecond)
	case kindVarious:
		return parquet.Leaf(parquet.ByteArrayType)
	}
	return parquet.Encoded(parquet.String(), &parquet.RLEDictionary)
}

func (f Field) parquetValue(row *Row, column int) parquet.Value {
	switch f.kind {
	case kindNumber:
		return parquet.Int64Value(int64(f.number(row))).Level(0, 0, column)
	case kindKnown:
		if f.isUnknown(row) {
			return parquet.NullValue().Level(0, 0, column)
		}
		return parquet.Int64Value(int64(f.number(row))).Level(0, 1, column)
	case kindTime:
		return parquet.Int64Value(int64(row.TimestampNS)).Level(0, 0, column)
	case kindVarious:
		return parquet.ByteArrayValue(slices.Clone(f.raw(row))).Level(0, 0, column)
	}
	return parquet.ByteArrayValue([]byte(f.text(row))).Level(0, 0, column)
}

func (e *parquetEncoder) Write(row *Row) error {
	values := make(parquet.Row, len(e.columns))
	for i, f := range e.columns {
		values[i] = f.parquetValue(row, i)
	}
	e.batch = append(e.batch, values)
	e.count, e.size = e.count+1, e.size+len(row.Payload)+len(row.Key)
	switch {
	case e.count >= parquetGroupRows || e.size >= parquetGroupLen:
		return e.endGroup()
	case len(e.batch) >= parquetBatch:
		return e.writeBatch()
	}
	return nil
}

func (e *parquetEncoder) writeBatch() error {
	if _, err := e.writer.WriteRows(e.batch); err != nil {
		return fmt.Errorf("write Parquet: %w", err)
	}
	e.batch = e.batch[:0]
	return nil
}

func (e *parquetEncoder) endGroup() error {
	if err := e.writeBatch(); err != nil {
		return err
	}
	e.count, e.size = 0, 0
	if err := e.writer.Flush(); err != nil {
		return fmt.Errorf("write Parquet: %w", err)
	}
	return nil
}

func (e *parquetEncoder) Close() error {
	if err := e.writeBatch(); err != nil {
		return err
	}
	if err := e.writer.Close(); err != nil {
		return fmt.Errorf("write Parquet: %w", err)
	}
	return e.out.Flush()
}
