package audit

import (
	"fmt"
	"iter"
	"slices"
	"testing"

	"github.com/farlog/farlog/pkg/audit/fix"
	"pgregory.net/rapid"
)

// desk is a model of one order between a trader and a venue that keep to the rules. It writes the messages of a life
// that it draws step by step; what it knows of quantities and state is the oracle for the life cycle.
type desk struct {
	t        *rapid.T
	entries  []Entry
	id       string
	requests int
	reports  int
	qty, cum int
	notional int // in cents
	isNew    bool
	isHalted bool
	trades   []modelTrade
	end      byte
}

type modelTrade struct {
	execID   string
	qty, px  int
	position int // in entries
}

func drawLife(t *rapid.T) *desk {
	d := &desk{t: t, id: "A", qty: rapid.IntRange(1, 5000).Draw(t, "qty")}
	d.write("35=D|11=A|55=XYZ|54=1|38=%d|", d.qty)
	if rapid.Bool().Draw(t, "isPendingNew") {
		d.report('A', 'A', "")
	}
	if rapid.IntRange(0, 19).Draw(t, "isRejected") == 0 {
		d.end = '8'
		d.report('8', '8', "")
		return d
	}
	d.isNew = true
	d.report('0', '0', "")
	for range rapid.IntRange(0, 25).Draw(t, "steps") {
		d.step()
	}
	return d
}

var choices = []string{"trade", "trade", "trade", "bust", "correct", "cancel", "replace", "halt", "status", "close"}

func (d *desk) step() {
	choice := rapid.SampledFrom(choices).Draw(d.t, "step")
	isLive := d.end == 0 && d.cum < d.qty
	switch {
	case choice == "status":
		d.reports++
		d.write("35=H|11=%s|55=XYZ|54=1|", d.id)
		d.report('I', d.status(), "")
	case choice == "bust" && len(d.trades) > 0 && (isLive || d.end == 0):
		d.changeTrade('H')
	case choice == "correct" && len(d.trades) > 0 && d.end == 0:
		d.changeTrade('G')
	case !isLive:
		return
	case choice == "trade":
		d.trade(d.status)
	case choice == "halt":
		d.isHalted = !d.isHalted
		d.report(map[bool]byte{true: '9', false: 'D'}[d.isHalted], d.status(), "")
	case choice == "close":
		d.end = rapid.SampledFrom([]byte("3C")).Draw(d.t, "end")
		d.report(d.end, d.end, "")
	case choice == "cancel":
		d.cancel()
	case choice == "replace":
		d.replace()
	}
}

func (d *desk) trade(status func() byte) {
	qty := rapid.IntRange(1, d.qty-d.cum).Draw(d.t, "lastQty")
	px := rapid.IntRange(9000, 11000).Draw(d.t, "lastPx")
	d.cum += qty
	d.notional += qty * px
	d.report('F', status(), fmt.Sprintf("32=%d|31=%d.%02d|", qty, px/100, px%100))
	d.trades = append(d.trades, modelTrade{fmt.Sprintf("E%d", d.reports), qty, px, len(d.entries) - 1})
}

func (d *desk) changeTrade(kind byte) {
	last := d.trades[len(d.trades)-1]
	d.trades = d.trades[:len(d.trades)-1]
	d.cum -= last.qty
	d.notional -= last.qty * last.px
	if kind == 'G' {
		last.px++
		d.cum += last.qty
		d.notional += last.qty * last.px
	}
	d.report(kind, d.status(), fmt.Sprintf("19=%s|32=%d|31=%d.%02d|", last.execID, last.qty, last.px/100, last.px%100))
	if kind == 'G' {
		last.execID = fmt.Sprintf("E%d", d.reports)
		d.trades = append(d.trades, last)
	}
}

// cancel: granted at once, or after a while in which the order may trade; refused when it has filled meanwhile.
func (d *desk) cancel() {
	orig, request := d.request('F')
	if rapid.Bool().Draw(d.t, "isPending") {
		d.reportRequest('6', '6', request, orig)
		for d.cum < d.qty && rapid.IntRange(0, 2).Draw(d.t, "crosses") == 0 {
			d.trade(func() byte { return '6' })
		}
	}
	if d.cum == d.qty {
		d.write("35=9|11=%s|41=%s|39=2|434=1|", request, orig)
		return
	}
	d.end, d.id = '4', request
	d.reportRequest('4', '4', request, orig)
}

func (d *desk) replace() {
	orig, request := d.request('G')
	if rapid.Bool().Draw(d.t, "isPending") {
		d.reportRequest('E', 'E', request, orig)
	}
	if rapid.IntRange(0, 3).Draw(d.t, "isRefused") == 0 {
		d.write("35=9|11=%s|41=%s|39=%c|434=2|", request, orig, d.status())
		return
	}
	d.id = request
	d.qty = d.cum + rapid.IntRange(1, 5000).Draw(d.t, "newLeaves")
	d.reportRequest('5', d.status(), request, orig)
}

func (d *desk) request(kind byte) (orig, request string) {
	d.requests++
	request = fmt.Sprintf("A%d", d.requests)
	d.write("35=%c|11=%s|41=%s|55=XYZ|54=1|38=%d|", kind, request, d.id, d.qty)
	return d.id, request
}

func (d *desk) status() byte {
	switch {
	case d.end != 0:
		return d.end
	case d.cum == d.qty:
		return '2'
	case d.isHalted:
		return '9'
	case d.cum > 0:
		return '1'
	}
	return '0'
}

func (d *desk) report(execType, status byte, more string) {
	d.reports++
	d.write("35=8|37=O1|11=%s|17=E%d|%s", d.id, d.reports, d.reportBody(execType, status, more))
}

func (d *desk) reportRequest(execType, status byte, request, orig string) {
	d.reports++
	d.write("35=8|37=O1|11=%s|41=%s|17=E%d|%s", request, orig, d.reports, d.reportBody(execType, status, ""))
}

func (d *desk) reportBody(execType, status byte, more string) string {
	leaves, avg := d.qty-d.cum, 0.0
	if d.end != 0 {
		leaves = 0
	}
	if d.cum > 0 {
		avg = float64(d.notional) / 100 / float64(d.cum)
	}
	return fmt.Sprintf("150=%c|39=%c|55=XYZ|54=1|38=%d|%s151=%d|14=%d|6=%.6f|", execType, status, d.qty, more, leaves,
		d.cum, avg)
}

func (d *desk) write(format string, arguments ...any) {
	body := []byte(fmt.Sprintf(format, arguments...))
	for i, b := range body {
		if b == '|' {
			body[i] = fix.SOH
		}
	}
	number := len(d.entries)
	d.entries = append(d.entries, Entry{
		TimestampNS: int64(number), LSN: uint64(number) * 256,
		Payload: frame("FIX.4.4", body),
	})
}

func sourceOfEntries(entries []Entry) Source {
	return func() iter.Seq2[Entry, error] {
		return func(yield func(Entry, error) bool) {
			for _, entry := range entries {
				if !yield(entry, nil) {
					return
				}
			}
		}
	}
}

func mustFind(t *rapid.T, entries []Entry) *Order {
	order, err := FindOrder(sourceOfEntries(entries), "A")
	if err != nil {
		t.Fatal(err)
	}
	return order
}

// A life that keeps to the rules has no anomaly and ends where the model ends.
func TestLifecycle_LegalLifeHasNoAnomaly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawLife(t)
		order := mustFind(t, d.entries)
		if len(order.Anomalies) > 0 {
			t.Fatalf("anomalies: %v", order.Anomalies)
		}
		if order.Status != fix.StatusName(d.status()) || order.CumQty.String() != fmt.Sprint(d.cum) ||
			len(order.Waiting) > 0 {
			t.Fatalf("ends as %s with %v traded, waiting %v; expected %s and %d", order.Status, order.CumQty,
				order.Waiting,
				fix.StatusName(d.status()), d.cum)
		}
		if len(order.Steps) != len(d.entries) {
			t.Fatalf("%d steps of %d messages", len(order.Steps), len(d.entries))
		}
	})
}

// Whatever is broken in a legal life, it is told, and under its name.
func TestLifecycle_BrokenLifeIsNamed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawLife(t)
		var want Kind
		switch rapid.SampledFrom([]string{"late fill", "lost New", "lost order", "lost trade", "twice"}).Draw(t,
			"fault") {
		case "late fill":
			if d.end != '4' || d.cum == d.qty {
				t.Skip("not canceled")
			}
			d.end, want = 0, FillAfterCancel
			d.trade(d.status)
		case "lost New":
			if len(d.trades) == 0 {
				t.Skip("never traded")
			}
			want = MissingNew
			d.entries = slices.DeleteFunc(d.entries, isNewReport)
		case "lost order":
			d.entries, want = d.entries[1:], MissingOrder
		case "lost trade":
			at := d.lastTradeWithAFollower()
			if at < 0 {
				t.Skip("no trade with a report after it")
			}
			d.entries, want = slices.Delete(d.entries, at, at+1), CumQtyWrong
		case "twice":
			d.entries, want = append(d.entries, d.entries[lastReport(d.entries)]), DuplicateReport
		}
		order := mustFind(t, d.entries)
		if !slices.ContainsFunc(order.Anomalies, func(a Anomaly) bool { return a.Kind == want }) {
			t.Fatalf("%q is not told: %v", want, order.Anomalies)
		}
	})
}

func (d *desk) lastTradeWithAFollower() int {
	for i := len(d.trades) - 1; i >= 0; i-- {
		at := d.trades[i].position
		if at+1 < len(d.entries) && typeOf(d.entries[at+1], fix.ExecType) == "F" {
			return at
		}
	}
	return -1
}

func isNewReport(entry Entry) bool {
	return typeOf(entry, fix.MsgType) == "8" && typeOf(entry, fix.ExecType) == "0"
}

// lastReport is the last execution report that is not the answer to a status request, which may be repeated.
func lastReport(entries []Entry) int {
	at := len(entries) - 1
	for typeOf(entries[at], fix.MsgType) != "8" || typeOf(entries[at], fix.ExecType) == "I" {
		at--
	}
	return at
}

func typeOf(entry Entry, tag int) string {
	var message fix.Message
	if err := fix.Parse(entry.Payload, &message); err != nil {
		panic(err)
	}
	return string(message.Get(tag))
}
