package query

import (
	"bytes"
	"encoding/base64"
	"encoding/csv"
	"encoding/json"
	"io"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
	"pgregory.net/rapid"

	"github.com/farlog/farlog/pkg/record"
	"github.com/farlog/farlog/pkg/store"
)

// unescape is the way back from Escape.
func unescape(t *rapid.T, text string) []byte {
	var raw []byte
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] != '\\':
			raw = append(raw, text[i])
		case text[i+1] == '\\':
			raw = append(raw, '\\')
			i++
		default:
			value, err := strconv.ParseUint(text[i+2:i+4], 16, 8)
			if err != nil || text[i+1] != 'x' {
				t.Fatalf("%q at %d", text, i)
			}
			raw = append(raw, byte(value))
			i += 3
		}
	}
	return raw
}

func drawRow(t *rapid.T) *Row {
	raw := rapid.OneOf(rapid.SliceOfN(rapid.Byte(), 0, 50), rapid.Map(rapid.String(), func(s string) []byte {
		return []byte(s)
	}), rapid.SampledFrom([][]byte{[]byte(`\x41\`), []byte("a\r\nb"), []byte("\u202eb"), []byte(`"<&>"`), nil}))
	return &Row{Store: "s", Stream: rapid.StringMatching(`[a-z/"]{1,9}`).Draw(t, "stream"), Item: store.Item{
		Generation: rapid.Uint64().Draw(t, "generation"),
		Record: record.Record{
			Header: record.Header{
				LSN: rapid.Uint64().Draw(t, "lsn"), Seq: rapid.Uint64().Draw(t, "seq"),
				Epoch: rapid.Uint32().Draw(t, "epoch"), Class: rapid.Uint16().Draw(t, "class"),
				TimestampNS: rapid.Uint64Range(0, math.MaxInt64).Draw(t, "ts"),
				ClockErrNS:  rapid.SampledFrom([]uint32{0, 250, record.ClockErrUnknown}).Draw(t, "err"),
			},
			Key: raw.Draw(t, "key"), Payload: raw.Draw(t, "payload"),
		},
	}}
}

// read reads one format back: of each row the values by name, numbers as their digits, "" for an unknown one.
func read(t *rapid.T, format string, raw []byte) (rows []map[string]string) {
	switch format {
	case FormatJSON:
		return readJSON(t, raw)
	case FormatCSV:
		return readCSV(t, raw)
	}
	return readParquet(t, raw)
}

func readJSON(t *rapid.T, raw []byte) (rows []map[string]string) {
	for line := range bytes.Lines(raw) {
		decoder := json.NewDecoder(bytes.NewReader(line))
		decoder.UseNumber()
		var values map[string]any
		if err := decoder.Decode(&values); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		row := map[string]string{}
		for name, value := range values {
			switch value := value.(type) {
			case json.Number:
				row[name] = value.String()
			case string:
				row[name] = value
			case nil:
				row[name] = ""
			}
			if short, isBytes := strings.CutSuffix(name, "_base64"); isBytes {
				decoded, err := base64.StdEncoding.DecodeString(row[name])
				if err != nil {
					t.Fatal(err)
				}
				row[short] = string(decoded)
				delete(row, name)
			}
		}
		rows = append(rows, row)
	}
	return rows
}

func readCSV(t *rapid.T, raw []byte) (rows []map[string]string) {
	lines, err := csv.NewReader(bytes.NewReader(raw)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines[1:] {
		row := map[string]string{}
		for i, name := range lines[0] {
			row[name] = string(unescape(t, line[i]))
		}
		rows = append(rows, row)
	}
	return rows
}

func readParquet(t *rapid.T, raw []byte) (rows []map[string]string) {
	file, err := parquet.OpenFile(bytes.NewReader(raw), int64(len(raw)))
	if err != nil {
		t.Fatal(err)
	}
	names := file.Schema().Columns()
	for _, group := range file.RowGroups() {
		reader := group.Rows()
		for {
			one := make([]parquet.Row, 1)
			n, err := reader.ReadRows(one)
			if n == 1 {
				row := map[string]string{}
				for i, value := range one[0] {
					row[names[i][0]] = parquetText(names[i][0], value)
				}
				rows = append(rows, row)
			}
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := reader.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return rows
}

func parquetText(name string, value parquet.Value) string {
	switch {
	case value.IsNull():
		return ""
	case value.Kind() == parquet.ByteArray:
		return string(value.ByteArray())
	case name == "time":
		return (&record.Header{TimestampNS: uint64(value.Int64())}).Time().Format(timeForm)
	}
	return strconv.FormatUint(uint64(value.Int64()), 10)
}

// Each format gives back what a record holds, byte by byte.
func TestEncoders_AreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfNDistinct(rapid.SampledFrom(FieldNames()), 1, len(fields), rapid.ID).Draw(t, "fields")
		list, err := Fields(names)
		if err != nil {
			t.Fatal(err)
		}
		rows := rapid.SliceOfN(rapid.Custom(drawRow), 0, 20).Draw(t, "rows")
		for _, format := range []string{FormatJSON, FormatCSV, FormatParquet} {
			var out bytes.Buffer
			encoder, err := NewEncoder(format, &out, list)
			if err != nil {
				t.Fatal(err)
			}
			for _, row := range rows {
				if err := encoder.Write(row); err != nil {
					t.Fatal(err)
				}
			}
			if err := encoder.Close(); err != nil {
				t.Fatal(err)
			}
			got := read(t, format, out.Bytes())
			if len(got) != len(rows) {
				t.Fatalf("%s: %d rows, expected %d:\n%s", format, len(got), len(rows), out.String())
			}
			for i, row := range rows {
				expectRow(t, format, list, got[i], row)
			}
		}
	})
}

func expectRow(t *rapid.T, format string, list []Field, got map[string]string, row *Row) {
	if len(got) != len(list) {
		t.Fatalf("%s: %d values, expected %d", format, len(got), len(list))
	}
	for _, f := range list {
		want := string(unescape(t, f.Text(row)))
		if raw, isBytes := f.Bytes(row); isBytes {
			want = string(raw)
		}
		if got[f.Name] != want {
			t.Fatalf("%s: %s is %q, expected %q", format, f.Name, got[f.Name], want)
		}
	}
}

// A row whose only value is unknown or empty is a row of CSV all the same.
func TestCSV_OneEmptyValue(t *testing.T) {
	list, err := Fields([]string{"key"})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	encoder, err := NewEncoder(FormatCSV, &out, list)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"a", "", "b"} {
		if err := encoder.Write(rowOf(1, key, "")); err != nil {
			t.Fatal(err)
		}
	}
	if err := encoder.Close(); err != nil || out.String() != "key\na\n\"\"\nb\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
}

// Escape gives one line that a terminal shows as it is, and nothing is lost.
func TestEscape_IsPrintableAndExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		row := drawRow(t)
		text := Escape(row.Payload)
		if !bytes.Equal(unescape(t, text), row.Payload) {
			t.Fatalf("%q of %q", text, row.Payload)
		}
		for _, char := range text {
			if !strconv.IsPrint(char) {
				t.Fatalf("%q shows %q", text, char)
			}
		}
	})
}

func TestFields_NamesThatThereAreNot(t *testing.T) {
	for _, names := range [][]string{{"lsn", "price"}, {"lsn", "lsn"}, {""}} {
		if _, err := Fields(names); err == nil || !strings.Contains(err.Error(), "expected some of store, stream") {
			t.Errorf("%q: %v", names, err)
		}
	}
}
