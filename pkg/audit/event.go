package audit

import (
	"fmt"

	"github.com/farlog/farlog/pkg/audit/fix"
)

// act is what a message does to an order, told alike for all versions of FIX.
type act uint8

const (
	actNone       act = iota // a message of no consequence for the order
	actOrder                 // a new order, alone or in a list
	actRequest               // a request to cancel or to replace
	actQuestion              // a status request
	actNew                   // acknowledged as New
	actPending               // pending new, pending cancel, pending replace
	actTrade                 //
	actBust                  // a trade taken back
	actCorrect               // a trade's quantity or price put right
	actReplaced              //
	actCanceled              //
	actRejected              //
	actSuspended             //
	actStopped               //
	actRestated              //
	actDoneForDay            //
	actExpired               //
	actCalculated            //
	actStatus                // the answer to a question; nothing happened
	actRefused               // a cancel or replace request refused
)

// event is what one message says about one order. A list message makes one event for each of its orders.
type event struct {
	entry     Entry
	msgType   string
	act       act
	clOrdID   string
	origID    string
	orderID   string
	execID    string
	execRefID string
	status    byte // OrdStatus, 0 = none
	isResent  bool // PossDupFlag: the order has seen it before
	symbol    string
	side      byte
	text      string
	session   string

	orderQty, lastQty, lastPx, price, cumQty, leavesQty, avgPx fix.Decimal
	avgPxText                                                  string
	has                                                        fieldSet
	problems                                                   []string
}

// fieldSet says which of the numbers the message had.
type fieldSet uint8

const (
	hasOrderQty fieldSet = 1 << iota
	hasLast
	hasPrice
	hasCumQty
	hasLeavesQty
	hasAvgPx
)

// decode makes the events of a message, and calls yield for each.
func decode(entry Entry, message *fix.Message, yield func(*event)) {
	msgType := message.Type()
	current := event{entry: entry, msgType: msgType, problems: message.Check()}
	switch msgType {
	case fix.TypeNewOrder, fix.TypeCancelRequest, fix.TypeReplaceRequest, fix.TypeStatusRequest,
		fix.TypeExecutionReport,
		fix.TypeCancelReject:
		for _, field := range message.Fields {
			current.set(field)
		}
		current.act = actOf(msgType, message)
		yield(&current)
	case fix.TypeNewOrderList, fix.TypeListStatus:
		decodeList(message, current, yield)
	}
}

// decodeList relies on FIX's rule that the first field of a group's entry begins it: here ClOrdID.
func decodeList(message *fix.Message, head event, yield func(*event)) {
	head.act = actOrder
	if head.msgType == fix.TypeListStatus {
		head.act = actStatus
	}
	current, isInEntry := head, false
	for _, field := range message.Fields {
		if field.Tag == fix.ClOrdID {
			if isInEntry {
				yield(&current)
			}
			current, isInEntry = head, true
		}
		if isInEntry {
			current.set(field)
		} else {
			head.set(field)
		}
	}
	if isInEntry {
		yield(&current)
	}
}

func (e *event) set(field fix.Field) {
	switch field.Tag {
	case fix.ClOrdID:
		e.clOrdID = string(field.Value)
	case fix.OrigClOrdID:
		e.origID = string(field.Value)
	case fix.OrderID:
		e.orderID = string(field.Value)
	case fix.ExecID:
		e.execID = string(field.Value)
	case fix.ExecRefID:
		e.execRefID = string(field.Value)
	case fix.OrdStatus:
		e.status = first(field.Value)
	case fix.PossDupFlag:
		e.isResent = first(field.Value) == 'Y'
	case fix.Symbol:
		e.symbol = string(field.Value)
	case fix.Side:
		e.side = first(field.Value)
	case fix.Text:
		e.text = string(field.Value)
	case fix.BeginString:
		e.session = string(field.Value)
	case fix.SenderCompID:
		e.session += " " + string(field.Value)
	case fix.TargetCompID:
		e.session += ">" + string(field.Value)
	default:
		e.setNumber(field)
	}
}

func (e *event) setNumber(field fix.Field) {
	switch field.Tag {
	case fix.OrderQty:
		e.number(field, &e.orderQty, hasOrderQty)
	case fix.LastQty:
		e.number(field, &e.lastQty, hasLast)
	case fix.LastPx:
		e.number(field, &e.lastPx, 0)
	case fix.Price:
		e.number(field, &e.price, hasPrice)
	case fix.CumQty:
		e.number(field, &e.cumQty, hasCumQty)
	case fix.LeavesQty:
		e.number(field, &e.leavesQty, hasLeavesQty)
	case fix.AvgPx:
		e.number(field, &e.avgPx, hasAvgPx)
		e.avgPxText = string(field.Value)
	}
}

func (e *event) number(field fix.Field, target *fix.Decimal, bit fieldSet) {
	value, err := fix.ParseDecimal(field.Value)
	if err != nil {
		e.problems = append(e.problems, fmt.Sprintf("%s: %v", fix.TagName(field.Tag), err))
		return
	}
	*target = value
	e.has |= bit
}

// isOut tells the side that sent it: orders and requests come from the trading host, reports and refusals go to it.
func (e *event) isOut() bool {
	return e.act == actOrder || e.act == actRequest || e.act == actQuestion
}

func actOf(msgType string, message *fix.Message) act {
	switch msgType {
	case fix.TypeNewOrder:
		return actOrder
	case fix.TypeCancelRequest, fix.TypeReplaceRequest:
		return actRequest
	case fix.TypeStatusRequest:
		return actQuestion
	case fix.TypeCancelReject:
		return actRefused
	}
	// Up to FIX 4.2 busts, corrections and status answers are told by ExecTransType and not by ExecType.
	switch first(message.Get(fix.ExecTransType)) {
	case '1':
		return actBust
	case '2':
		return actCorrect
	case '3':
		return actStatus
	}
	return actByExecType[first(message.Get(fix.ExecType))]
}

var actByExecType = [256]act{
	'0': actNew, '1': actTrade, '2': actTrade, '3': actDoneForDay, '4': actCanceled, '5': actReplaced, '6': actPending,
	'7': actStopped, '8': actRejected, '9': actSuspended, 'A': actPending, 'B': actCalculated, 'C': actExpired,
	'D': actRestated, 'E': actPending, 'F': actTrade, 'G': actCorrect, 'H': actBust, 'I': actStatus,
}

func first(value []byte) byte {
	if len(value) == 0 {
		return 0
	}
	return value[0]
}
