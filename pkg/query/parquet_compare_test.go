package query

import (
	"bufio"
	"bytes"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
)

// The same bytes under another type are other numbers and times for who reads the file.
func TestParquetComparer_TypesOfColumns(t *testing.T) {
	list, err := Fields([]string{"lsn", "time"})
	if err != nil {
		t.Fatal(err)
	}
	row := &Row{}
	row.LSN, row.TimestampNS = 7, 1_700_000_000_000_000_000
	for _, one := range []struct {
		name      string
		lsn, time parquet.Node
		isSame    bool
	}{
		{"as written", parquet.Uint(64), parquet.Timestamp(parquet.Nanosecond), true},
		{"microseconds", parquet.Uint(64), parquet.Timestamp(parquet.Microsecond), false},
		{"a floating-point number", parquet.Leaf(parquet.DoubleType), parquet.Timestamp(parquet.Nanosecond), false},
		{"a signed number", parquet.Int(64), parquet.Timestamp(parquet.Nanosecond), false},
	} {
		var file bytes.Buffer
		encoder := newParquetEncoder(bufio.NewWriter(&file), list)
		encoder.writer = parquet.NewGenericWriter[any](encoder.out, parquet.NewSchema("farlog", parquet.Group{
			"lsn":  parquet.Compressed(one.lsn, &parquet.Zstd),
			"time": parquet.Compressed(one.time, &parquet.Zstd),
		}))
		if err := encoder.Write(row); err != nil {
			t.Fatal(err)
		}
		if err := encoder.Close(); err != nil {
			t.Fatal(err)
		}
		comparer, err := NewParquetComparer(bytes.NewReader(file.Bytes()), int64(file.Len()), list)
		if one.isSame {
			if err == nil {
				err = comparer.Write(row)
			}
			if err == nil {
				err = comparer.Close()
			}
			if err != nil {
				t.Errorf("%s: %v", one.name, err)
			}
		} else if err == nil || !strings.HasPrefix(err.Error(), "columns are ") {
			t.Errorf("%s: error %v, want that the columns are others", one.name, err)
		}
	}
}
