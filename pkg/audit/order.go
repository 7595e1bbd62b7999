// Package audit answers a trader's questions from a stream: what happened to an order, message by message, and whether
// that can have happened.
//
// It reads records from any source of (time, lsn, payload), decodes the FIX in them and follows an order through cancel
// and replace requests, which give it new ids. What contradicts the order state rules of the FIX specification is named
// as an anomaly and never dropped: the stream is the evidence, the audit only reads it.
package audit

import (
	"time"

	"github.com/farlog/farlog/pkg/audit/fix"
)

// Entry is one record of a stream.
type Entry struct {
	TimestampNS int64 // UTC nanoseconds at append
	LSN         uint64
	Payload     []byte // valid only until the source goes on
}

// Order is the life of one order.
type Order struct {
	ClOrdIDs  []string  `json:"clOrdIds"` // in the order in which they were used
	OrderID   string    `json:"orderId,omitempty"`
	Session   string    `json:"session"` // version and parties of the order's first message
	Symbol    string    `json:"symbol"`
	Side      string    `json:"side"`
	Status    string    `json:"status"` // after the last report; "" when there was none
	OrderQty  Number    `json:"orderQty"`
	CumQty    Number    `json:"cumQty"`
	LeavesQty Number    `json:"leavesQty"`
	AvgPx     Number    `json:"avgPx"`
	Steps     []Step    `json:"steps"`
	Anomalies []Anomaly `json:"anomalies"`
	Waiting   []string  `json:"waiting"` // ids of requests that have no answer yet
}

// Step is one message of an order's life.
type Step struct {
	Time      time.Time `json:"time"`
	LSN       uint64    `json:"lsn"`
	Direction string    `json:"direction"` // "out" from the trading host, "in" to it
	Message   string    `json:"message"`   // what it says, e.g. "Trade 300 @ 12.34"
	ClOrdID   string    `json:"clOrdId"`
	Status    string    `json:"status,omitempty"`
	OrderQty  *Number   `json:"orderQty,omitempty"`
	CumQty    *Number   `json:"cumQty,omitempty"`
	LeavesQty *Number   `json:"leavesQty,omitempty"`
	AvgPx     *Number   `json:"avgPx,omitempty"`
	Text      string    `json:"text,omitempty"`
}

// Anomaly is a contradiction in an order's life.
type Anomaly struct {
	Kind Kind   `json:"kind"`
	LSN  uint64 `json:"lsn"`
	Text string `json:"text"`
}

// Kind names a sort of anomaly.
type Kind string

// The anomalies.
const (
	BadMessage      Kind = "bad message"           // body length, check sum or a number is wrong
	DuplicateOrder  Kind = "duplicate order"       // a second new order with the same ClOrdID
	MissingOrder    Kind = "missing order"         // reports or requests without the new order before them
	MissingNew      Kind = "missing New"           // the order works before it was acknowledged
	MissingRequest  Kind = "missing request"       // an answer to a cancel or replace request that is not there
	DuplicateReport Kind = "duplicate report"      // an ExecID that was used before
	FillAfterCancel Kind = "fill after cancel"     //
	FillAfterEnd    Kind = "fill after end"        // a trade of an order that was filled, rejected or expired
	ReportAfterEnd  Kind = "report after end"      // an order comes back to life
	CumQtyBack      Kind = "cum qty goes back"     // although no trade was taken back
	CumQtyWrong     Kind = "cum qty wrong"         // not the sum of the trades
	LeavesQtyWrong  Kind = "leaves qty wrong"      // not what is left of the order
	Overfill        Kind = "overfill"              // more traded than ordered
	AvgPxWrong      Kind = "average price wrong"   // not the average of the trades
	StatusWrong     Kind = "status wrong"          // OrdStatus contradicts the quantities
	UnknownTrade    Kind = "unknown trade"         // a bust or correction of a trade that is not there
	TimeBack        Kind = "time goes back"        // an older record behind a newer one
	SymbolChanged   Kind = "symbol or side differ" // from those of the order
)

// Number is a decimal that JSON shows as a number.
type Number fix.Decimal

// String writes the number without the zeros that say nothing.
func (n Number) String() string {
	return fix.Decimal(n).String()
}

// MarshalJSON writes the number with all its digits.
func (n Number) MarshalJSON() ([]byte, error) {
	return []byte(n.String()), nil
}

// UnmarshalJSON reads what MarshalJSON writes.
func (n *Number) UnmarshalJSON(text []byte) error {
	value, err := fix.ParseDecimal(text)
	if err != nil {
		return err
	}
	*n = Number(value)
	return nil
}

func (e *event) step() Step {
	step := Step{
		Time: time.Unix(0, e.entry.TimestampNS).UTC(), LSN: e.entry.LSN, Direction: "in", Message: e.title(),
		ClOrdID: e.clOrdID, Text: e.text,
	}
	if e.isOut() {
		step.Direction = "out"
	}
	if e.status != 0 {
		step.Status = fix.StatusName(e.status)
	}
	for _, number := range []struct {
		target **Number
		value  fix.Decimal
		bit    fieldSet
	}{
		{&step.OrderQty, e.orderQty, hasOrderQty},
		{&step.CumQty, e.cumQty, hasCumQty},
		{&step.LeavesQty, e.leavesQty, hasLeavesQty},
		{&step.AvgPx, e.avgPx, hasAvgPx},
	} {
		if e.has&number.bit != 0 {
			value := Number(number.value)
			*number.target = &value
		}
	}
	return step
}

// title says what the message does in a few words.
func (e *event) title() string {
	last := " " + e.lastQty.String() + " @ " + e.lastPx.String()
	switch {
	case e.msgType == fix.TypeNewOrderList:
		return "New order, in list"
	case e.msgType == fix.TypeListStatus:
		return "List status"
	case e.msgType == fix.TypeReplaceRequest:
		return "Replace request"
	case e.act == actTrade:
		return "Trade" + last
	case e.act == actBust:
		return "Bust" + last
	case e.act == actCorrect:
		return "Correct" + last
	case e.act == actPending:
		return fix.StatusName(e.status)
	case titles[e.act] != "":
		return titles[e.act]
	}
	return fix.TypeName(e.msgType)
}

var titles = map[act]string{
	actOrder: "New order", actRequest: "Cancel request", actQuestion: "Status request", actNew: "New",
	actReplaced: "Replaced", actCanceled: "Canceled", actRejected: "Rejected", actSuspended: "Suspended",
	actStopped: "Stopped", actRestated: "Restated", actDoneForDay: "Done for day", actExpired: "Expired",
	actCalculated: "Calculated", actStatus: "Order status", actRefused: "Request refused",
}

var sideNames = map[byte]string{
	'1': "buy", '2': "sell", '3': "buy minus", '4': "sell plus", '5': "sell short",
	'6': "sell short exempt",
}

func sideName(side byte) string {
	if name, ok := sideNames[side]; ok {
		return name
	}
	return "side " + string(rune(side))
}
