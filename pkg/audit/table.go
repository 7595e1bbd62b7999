package audit

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// tableWidth is what WriteTable keeps to where the numbers of the order let it.
const tableWidth = 100

const (
	timeNanos  = "15:04:05.000000000"
	timeMicros = "15:04:05.000000"
)

// WriteTable writes the order's life for people: a head, one line a message, and what is wrong with it. A line whose
// record has an anomaly ends with '!'.
func (o *Order) WriteTable(w io.Writer) error {
	var out strings.Builder
	o.writeHead(&out)
	rows := o.rows(timeNanos)
	if rowWidth(rows) > tableWidth {
		rows = o.rows(timeMicros)
	}
	writeRows(&out, rows)
	o.writeFoot(&out)
	_, err := io.WriteString(w, out.String())
	return err
}

func (o *Order) writeHead(out *strings.Builder) {
	fmt.Fprintf(out, "order    %s  %s %v %s\n", o.ClOrdIDs[0], o.Side, o.OrderQty, o.Symbol)
	for i, id := range o.ClOrdIDs[1:] {
		fmt.Fprintf(out, "  id %-4s %s\n", fmt.Sprintf("#%d", i+2), id)
	}
	fmt.Fprintf(out, "session  %s, order id %s, %s UTC\n", o.Session, orDash(o.OrderID),
		o.Steps[0].Time.Format("2006-01-02"))
	fmt.Fprintf(out, "result   %s: %v traded at %v, %v left\n\n", orDash(o.Status), o.CumQty, o.AvgPx, o.LeavesQty)
}

// rows are the cells of the table, its heading first. The first id of the order is not repeated; others are told by
// their number in the head.
func (o *Order) rows(timeLayout string) [][]string {
	rows := [][]string{{"time", "", "message", "id", "status", "qty", "cum", "leaves", "avgpx", ""}}
	for i := range o.Steps {
		step := &o.Steps[i]
		arrow, mark, id := "<", "", ""
		if step.Direction == "out" {
			arrow = ">"
		}
		if slices.ContainsFunc(o.Anomalies, func(a Anomaly) bool { return a.LSN == step.LSN }) {
			mark = "!"
		}
		if index := slices.Index(o.ClOrdIDs, step.ClOrdID); index > 0 {
			id = fmt.Sprintf("#%d", index+1)
		}
		rows = append(rows, []string{
			step.Time.Format(timeLayout), arrow, step.Message, id, step.Status,
			cell(step.OrderQty),
			cell(step.CumQty), cell(step.LeavesQty), cell(step.AvgPx), mark,
		})
	}
	return rows
}

func (o *Order) writeFoot(out *strings.Builder) {
	if len(o.Waiting) > 0 {
		fmt.Fprintf(out, "\nno answer yet to %s\n", strings.Join(o.Waiting, ", "))
	}
	if len(o.Anomalies) == 0 {
		out.WriteString("\nanomalies: none\n")
		return
	}
	fmt.Fprintf(out, "\nanomalies: %d\n", len(o.Anomalies))
	for _, anomaly := range o.Anomalies {
		fmt.Fprintf(out, "  lsn %d: %s: %s\n", anomaly.LSN, anomaly.Kind, anomaly.Text)
	}
}

// firstNumberColumn is where columns begin to be aligned to the right.
const firstNumberColumn = 5

func writeRows(out *strings.Builder, rows [][]string) {
	widths := columnWidths(rows)
	for _, row := range rows {
		var line strings.Builder
		for i, text := range row {
			gap := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(text))
			if i >= firstNumberColumn && i < len(row)-1 {
				line.WriteString(gap + text + " ")
			} else {
				line.WriteString(text + gap + " ")
			}
		}
		out.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
}

func rowWidth(rows [][]string) int {
	total := -1
	for _, width := range columnWidths(rows) {
		total += width + 1
	}
	return total
}

func columnWidths(rows [][]string) []int {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, text := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(text))
		}
	}
	return widths
}

func cell(number *Number) string {
	if number == nil {
		return ""
	}
	return number.String()
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
