package query

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"

	"github.com/parquet-go/parquet-go"
)

// parquetComparer is an Encoder that writes nothing: it compares rows with those of a file that was written before.
type parquetComparer struct {
	columns []Field // in the order of the file
	groups  []parquet.RowGroup
	rows    parquet.Rows // of the first of the groups; nil: it is not begun
	isEnded bool         // the rows have no more than the batch
	batch   []parquet.Row
	count   uint64
}

// NewParquetComparer compares what is written to it with a file of Parquet that NewEncoder made of the same fields: by
// values, for one version of the format's library may not write the bytes of another. Errors name the row.
func NewParquetComparer(file io.ReaderAt, size int64, list []Field) (e Encoder, err error) {
	defer recovered(&err)
	opened, err := parquet.OpenFile(file, size)
	if err != nil {
		return nil, fmt.Errorf("open Parquet: %w", err)
	}
	want, err := emptyParquet(list)
	if err != nil {
		return nil, err
	}
	// Not the names alone: the same bytes are another number or time in a column of another type.
	if !reflect.DeepEqual(opened.Metadata().Schema, want.Metadata().Schema) {
		return nil, fmt.Errorf("columns are %.400q, expected %.400q", opened.Schema().String(), want.Schema().String())
	}
	return &parquetComparer{columns: parquetColumns(list), groups: opened.RowGroups()}, nil
}

// emptyParquet is a file with these fields and without rows.
func emptyParquet(list []Field) (*parquet.File, error) {
	var file bytes.Buffer
	if err := newParquetEncoder(bufio.NewWriter(&file), list).Close(); err != nil {
		return nil, err
	}
	return parquet.OpenFile(bytes.NewReader(file.Bytes()), int64(file.Len()))
}

// recovered makes an error of a panic of the library, which it has for some damage.
func recovered(err *error) {
	if found := recover(); found != nil {
		*err = fmt.Errorf("read Parquet: damaged: %v", found)
	}
}

func (c *parquetComparer) Write(row *Row) (err error) {
	defer recovered(&err)
	got, err := c.next()
	if err != nil {
		return err
	}
	if got == nil {
		return fmt.Errorf("the file ends behind row %d: expected lsn %d of stream %s", c.count, row.LSN, row.Stream)
	}
	c.count++
	if len(got) != len(c.columns) {
		return fmt.Errorf("row %d has %d values, expected %d", c.count, len(got), len(c.columns))
	}
	for i, f := range c.columns {
		want := f.parquetValue(row, i)
		isSame := got[i].Kind() == want.Kind() && bytes.Equal(got[i].Bytes(), want.Bytes())
		if got[i].Column() != i || !isSame {
			return fmt.Errorf("row %d: %s is %.80q, expected %.80q of lsn %d of stream %s", c.count, f.Name,
				got[i].String(), want.String(), row.LSN, row.Stream)
		}
	}
	return nil
}

func (c *parquetComparer) Close() (err error) {
	defer recovered(&err)
	got, err := c.next()
	if err == nil && got != nil {
		err = fmt.Errorf("there is a row behind row %d: expected none", c.count)
	}
	if c.rows != nil {
		err = errors.Join(err, c.rows.Close())
	}
	return err
}

// next gives the next row of the file; nil: it has no more. The values of a row are good until the next call.
func (c *parquetComparer) next() (parquet.Row, error) {
	for len(c.batch) == 0 {
		if c.isEnded {
			if err := c.rows.Close(); err != nil {
				return nil, fmt.Errorf("read Parquet behind row %d: %w", c.count, err)
			}
			c.rows, c.groups, c.isEnded = nil, c.groups[1:], false
		}
		if len(c.groups) == 0 {
			return nil, nil
		}
		if c.rows == nil {
			c.rows = c.groups[0].Rows()
		}
		batch := make([]parquet.Row, parquetBatch)
		n, err := c.rows.ReadRows(batch)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("read Parquet behind row %d: %w", c.count, err)
		}
		c.batch, c.isEnded = batch[:n], n == 0 || err != nil
	}
	row := c.batch[0]
	c.batch = c.batch[1:]
	return row, nil
}
