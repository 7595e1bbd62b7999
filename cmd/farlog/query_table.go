package main

import (
	"bufio"
	"io"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/farlog/farlog/cmd/internal/output"
	"github.com/farlog/farlog/pkg/query"
)

const (
	queryTableSample = 200 // rows decide how wide columns are
	queryCellMax     = 40  // on a terminal, of all columns but the last
)

// queryTable writes rows for people: of columns that are as wide as the first rows need, in lines that are no wider
// than the terminal.
type queryTable struct {
	out     *bufio.Writer
	columns []query.Field
	width   int // of a line; 0 = no limit
	widths  []int
	sample  [][]string // rows that wait for the widths; nil: they are known
}

func newQueryTable(out io.Writer, columns []query.Field, width int) *queryTable {
	head := make([]string, len(columns))
	t := &queryTable{
		out: bufio.NewWriterSize(out, 64<<10), columns: columns, width: width, widths: make([]int, len(columns)),
	}
	for i, column := range columns {
		head[i] = strings.ToUpper(column.Name)
	}
	t.take(head)
	return t
}

// terminalColumns is how wide a terminal is; 0: it is none.
func terminalColumns(out io.Writer) int {
	file, isFile := output.File(out)
	if !isFile || !isTerminal(out) {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 {
		return sizeUnknown.columns
	}
	return int(size.Col)
}

func (t *queryTable) Write(row *query.Row) error {
	cells := make([]string, len(t.columns))
	for i, column := range t.columns {
		if raw, isBytes := column.Bytes(row); isBytes {
			cells[i] = string(appendText(nil, raw))
		} else {
			cells[i] = orDash(column.Text(row))
		}
		if t.width > 0 && i < len(cells)-1 {
			cells[i] = cut(cells[i], queryCellMax)
		}
	}
	if t.sample == nil {
		return t.line(cells)
	}
	t.take(cells)
	if len(t.sample) > queryTableSample {
		return t.endSample()
	}
	return nil
}

// take keeps a row until the widths are known.
func (t *queryTable) take(cells []string) {
	t.sample = append(t.sample, cells)
	for i, cell := range cells {
		t.widths[i] = max(t.widths[i], utf8.RuneCountInString(cell))
	}
}

func (t *queryTable) endSample() error {
	sample := t.sample
	t.sample = nil
	for _, cells := range sample {
		if err := t.line(cells); err != nil {
			return err
		}
	}
	return nil
}

// line writes a row; what does not fit behind the last column that does is cut off.
func (t *queryTable) line(cells []string) error {
	var line strings.Builder
	for i, cell := range cells {
		fill := strings.Repeat(" ", max(0, t.widths[i]-utf8.RuneCountInString(cell)))
		switch {
		case t.columns[i].IsNumber():
			line.WriteString(fill + cell)
		case i < len(cells)-1:
			line.WriteString(cell + fill)
		default:
			line.WriteString(cell)
		}
		if i < len(cells)-1 {
			line.WriteString("  ")
		}
	}
	text := strings.TrimRight(line.String(), " ")
	if t.width > 0 {
		text = cut(text, t.width)
	}
	_, err := t.out.WriteString(text + "\n")
	return err
}

func (t *queryTable) Close() error {
	if err := t.endSample(); err != nil {
		return err
	}
	return t.out.Flush()
}
