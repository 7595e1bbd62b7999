package audit

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/farlog/farlog/pkg/audit/fix"
)

// lifecycle follows one order, event by event, and holds each against what came before.
type lifecycle struct {
	order Order

	hasOrder     bool
	isKnownNew   bool // acknowledged: New, or something that includes it
	end          byte // the OrdStatus that ended the order, 0 while it lives
	orderQty     fix.Decimal
	cumQty       fix.Decimal
	trades       map[string]trade // by ExecID
	execIDs      map[string]struct{}
	notional     float64
	isAvgKnown   bool // every trade of the order was seen
	requests     map[string]struct{}
	lastNS       int64
	isMissedTold bool
}

// endStatuses end an order: filled, canceled, rejected, expired, done for the day, calculated.
const endStatuses = "248C3B"

type trade struct {
	qty, px fix.Decimal
}

func newLifecycle() *lifecycle {
	return &lifecycle{
		trades: map[string]trade{}, execIDs: map[string]struct{}{}, requests: map[string]struct{}{},
		isAvgKnown: true, order: Order{Anomalies: []Anomaly{}, Waiting: []string{}},
	}
}

// apply takes the next event of the order.
func (l *lifecycle) apply(e *event) {
	l.describe(e)
	l.order.Steps = append(l.order.Steps, e.step())
	for _, problem := range e.problems {
		l.report(e, BadMessage, "%s", problem)
	}
	if e.entry.TimestampNS < l.lastNS {
		l.report(e, TimeBack, "%d ns before the record in front of it", l.lastNS-e.entry.TimestampNS)
	}
	l.lastNS = e.entry.TimestampNS
	if e.isResent {
		return // told again on request of the other side; nothing happened
	}
	switch e.act {
	case actOrder:
		l.applyOrder(e)
	case actRequest:
		l.checkOrderKnown(e)
		l.requests[e.clOrdID] = struct{}{}
	case actRefused:
		l.checkOrderKnown(e)
		l.answer(e)
		l.applyStatus(e.status)
	case actQuestion, actNone:
		l.checkOrderKnown(e)
	default:
		l.applyReport(e)
	}
}

// finish returns the order. It may be called at any time; more events may follow.
func (l *lifecycle) finish() *Order {
	order := l.order
	order.Waiting = order.Waiting[:0:0]
	for id := range l.requests {
		order.Waiting = append(order.Waiting, id)
	}
	slices.Sort(order.Waiting)
	return &order
}

func (l *lifecycle) applyOrder(e *event) {
	if l.hasOrder {
		l.report(e, DuplicateOrder, "ClOrdID %s was used before", e.clOrdID)
	}
	l.hasOrder = true
	l.orderQty = e.orderQty
	l.order.OrderQty, l.order.LeavesQty = Number(e.orderQty), Number(e.orderQty)
}

func (l *lifecycle) applyReport(e *event) {
	l.checkOrderKnown(e)
	if _, isKnown := l.execIDs[e.execID]; isKnown && e.execID != "" && e.act != actStatus {
		l.report(e, DuplicateReport, "ExecID %s was used before", e.execID)
		return
	}
	l.execIDs[e.execID] = struct{}{}
	if e.has&hasOrderQty != 0 && e.status != 'E' {
		l.orderQty = e.orderQty
	}
	l.checkNew(e)
	l.checkEnd(e)
	if e.origID != "" && (e.act == actCanceled || e.act == actReplaced) {
		l.answer(e)
	}
	l.moveCumQty(e)
	l.checkQuantities(e)
	l.checkAvgPx(e)
	l.checkStatus(e)
	l.saveReport(e)
}

// saveReport keeps what the report says, right or wrong: the next report is held against this one.
func (l *lifecycle) saveReport(e *event) {
	if e.has&hasCumQty != 0 {
		l.cumQty = e.cumQty
	}
	if e.act == actBust || e.act == actReplaced || l.end == '3' {
		l.end = 0 // a filled order lives on after a bust or with more quantity, one done for the day on the next day
	}
	l.applyStatus(e.status)
	o := &l.order
	o.OrderQty, o.CumQty, o.LeavesQty, o.AvgPx = Number(l.orderQty), Number(l.cumQty), Number(e.leavesQty),
		Number(e.avgPx)
}

func (l *lifecycle) applyStatus(status byte) {
	if status == 0 {
		return
	}
	if strings.IndexByte(endStatuses, status) >= 0 {
		l.end = status
	}
	l.order.Status = fix.StatusName(status)
}

// describe fills in what is told once about an order, and its ids.
func (l *lifecycle) describe(e *event) {
	o := &l.order
	if len(o.Steps) == 0 {
		o.Session = e.session
	}
	if !slices.Contains(o.ClOrdIDs, e.clOrdID) {
		o.ClOrdIDs = append(o.ClOrdIDs, e.clOrdID)
	}
	if e.orderID != "" {
		o.OrderID = e.orderID
	}
	if e.symbol == "" || e.side == 0 {
		return
	}
	if o.Symbol != "" && (o.Symbol != e.symbol || o.Side != sideName(e.side)) {
		l.report(e, SymbolChanged, "%s %s, the order is %s %s", sideName(e.side), e.symbol, o.Side, o.Symbol)
	}
	o.Symbol, o.Side = e.symbol, sideName(e.side)
}

func (l *lifecycle) answer(e *event) {
	if _, isKnown := l.requests[e.clOrdID]; !isKnown {
		l.report(e, MissingRequest, "no request %s to which this is the answer", e.clOrdID)
	}
	delete(l.requests, e.clOrdID)
}

// moveCumQty carries the quantity forward by the trade, bust or correction, and compares it with what the report says.
func (l *lifecycle) moveCumQty(e *event) {
	expected := l.cumQty
	switch e.act {
	case actTrade:
		expected += e.lastQty
		l.trades[e.execID] = trade{e.lastQty, e.lastPx}
		l.notional += e.lastQty.Float() * e.lastPx.Float()
	case actBust, actCorrect:
		old, isKnown := l.trades[e.execRefID]
		if !isKnown {
			l.report(e, UnknownTrade, "no trade %s to be changed", e.execRefID)
			l.isAvgKnown = false
			return
		}
		expected -= old.qty
		l.notional -= old.qty.Float() * old.px.Float()
		delete(l.trades, e.execRefID)
		if e.act == actCorrect {
			expected += e.lastQty
			l.notional += e.lastQty.Float() * e.lastPx.Float()
			l.trades[e.execID] = trade{e.lastQty, e.lastPx}
		}
	}
	if e.has&hasCumQty == 0 || e.cumQty == expected {
		return
	}
	l.isAvgKnown = false
	if e.cumQty < l.cumQty && e.act != actBust && e.act != actCorrect {
		l.report(e, CumQtyBack, "from %v to %v", l.cumQty, e.cumQty)
		return
	}
	l.report(e, CumQtyWrong, "%v, the trades make %v", e.cumQty, expected)
}

func (l *lifecycle) checkOrderKnown(e *event) {
	if !l.hasOrder && !l.isMissedTold {
		l.report(e, MissingOrder, "no new order before this %s", fix.TypeName(e.msgType))
		l.isMissedTold = true
	}
}

// checkNew: before an order is acknowledged it can be pending, refused, canceled or end, but not trade.
func (l *lifecycle) checkNew(e *event) {
	switch e.act {
	case actNew:
		l.isKnownNew = true
	case actTrade, actReplaced, actSuspended, actStopped, actRestated, actCalculated:
		if !l.isKnownNew {
			l.report(e, MissingNew, "%s before the order was acknowledged", e.title())
		}
		l.isKnownNew = true
	}
}

func (l *lifecycle) checkEnd(e *event) {
	if l.end == 0 || l.end == '3' {
		return
	}
	switch e.act {
	case actTrade:
		kind := FillAfterEnd
		if l.end == '4' {
			kind = FillAfterCancel
		}
		l.report(e, kind, "%s of an order that is %s", e.title(), fix.StatusName(l.end))
	case actBust, actCorrect, actStatus, actCalculated:
	case actReplaced, actPending:
		if l.end != '2' || e.status == '6' { // only a filled order can be given more quantity
			l.report(e, ReportAfterEnd, "%s of an order that is %s", e.title(), fix.StatusName(l.end))
		}
	default:
		l.report(e, ReportAfterEnd, "%s of an order that is %s", e.title(), fix.StatusName(l.end))
	}
}

func (l *lifecycle) checkQuantities(e *event) {
	const both = hasCumQty | hasLeavesQty
	if e.has&both != both {
		return
	}
	if e.cumQty > l.orderQty {
		l.report(e, Overfill, "%v traded of %v", e.cumQty, l.orderQty)
		return
	}
	left := l.orderQty - e.cumQty
	if strings.IndexByte("48C3B", e.status) >= 0 {
		left = 0
	}
	if e.leavesQty != left {
		l.report(e, LeavesQtyWrong, "%v, expected %v", e.leavesQty, left)
	}
}

// checkAvgPx allows one unit of the last decimal place that the venue gives. Zeros at the end may have been left out,
// and so at least four places are taken to be meant.
func (l *lifecycle) checkAvgPx(e *event) {
	if e.has&hasAvgPx == 0 || e.has&hasCumQty == 0 || !l.isAvgKnown {
		return
	}
	expected := 0.0
	if e.cumQty != 0 {
		expected = l.notional / e.cumQty.Float()
	}
	_, fraction, _ := strings.Cut(e.avgPxText, ".")
	tolerance := math.Pow10(-max(len(fraction), 4)) + math.Abs(expected)*1e-9
	if math.Abs(e.avgPx.Float()-expected) > tolerance {
		l.report(e, AvgPxWrong, "%s, the trades make %.6f", e.avgPxText, expected)
	}
}

func (l *lifecycle) checkStatus(e *event) {
	if e.has&hasCumQty == 0 {
		return
	}
	isWrong := false
	switch e.status {
	case '0', 'A', 'D', '8':
		isWrong = e.cumQty != 0
	case '1':
		isWrong = e.cumQty == 0 || e.cumQty == l.orderQty
	case '2':
		isWrong = e.cumQty < l.orderQty
	}
	if isWrong {
		l.report(e, StatusWrong, "%s with %v traded of %v", fix.StatusName(e.status), e.cumQty, l.orderQty)
	}
}

func (l *lifecycle) report(e *event, kind Kind, format string, arguments ...any) {
	text := fmt.Sprintf(format, arguments...)
	l.order.Anomalies = append(l.order.Anomalies, Anomaly{Kind: kind, LSN: e.entry.LSN, Text: text})
}
