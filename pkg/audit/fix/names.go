package fix

import "strconv"

// The tags that farlog reads.
const (
	Account          = 1
	AvgPx            = 6
	BeginString      = 8
	BodyLength       = 9
	CheckSum         = 10
	ClOrdID          = 11
	CumQty           = 14
	ExecID           = 17
	ExecRefID        = 19
	ExecTransType    = 20
	LastPx           = 31
	LastQty          = 32
	MsgSeqNum        = 34
	MsgType          = 35
	OrderID          = 37
	OrderQty         = 38
	OrdStatus        = 39
	OrdType          = 40
	OrigClOrdID      = 41
	PossDupFlag      = 43
	Price            = 44
	RefSeqNum        = 45
	SenderCompID     = 49
	SendingTime      = 52
	Side             = 54
	Symbol           = 55
	TargetCompID     = 56
	Text             = 58
	TimeInForce      = 59
	TransactTime     = 60
	ListID           = 66
	CxlRejReason     = 102
	OrdRejReason     = 103
	ExecType         = 150
	LeavesQty        = 151
	SecondaryOrderID = 198
	LastMsgSeqNum    = 369
	CxlRejResponseTo = 434
	SecondaryClOrdID = 526
	SecondaryExecID  = 527
	ClOrdLinkID      = 583
	TradeMatchID     = 880
)

// The message types that carry orders, and the administrative ones.
const (
	TypeHeartbeat         = "0"
	TypeLogout            = "5"
	TypeExecutionReport   = "8"
	TypeCancelReject      = "9"
	TypeLogon             = "A"
	TypeNewOrder          = "D"
	TypeNewOrderList      = "E"
	TypeCancelRequest     = "F"
	TypeReplaceRequest    = "G"
	TypeStatusRequest     = "H"
	TypeListExecute       = "L"
	TypeListStatus        = "N"
	TypeListCancelRequest = "K"
)

var tagNames = map[int]string{
	Account: "Account", AvgPx: "AvgPx", BeginString: "BeginString", BodyLength: "BodyLength", CheckSum: "CheckSum",
	ClOrdID: "ClOrdID", CumQty: "CumQty", ExecID: "ExecID", ExecRefID: "ExecRefID", ExecTransType: "ExecTransType",
	LastPx: "LastPx", LastQty: "LastQty", MsgSeqNum: "MsgSeqNum", MsgType: "MsgType", OrderID: "OrderID",
	OrderQty: "OrderQty", OrdStatus: "OrdStatus", OrdType: "OrdType", OrigClOrdID: "OrigClOrdID",
	PossDupFlag: "PossDupFlag", Price: "Price", RefSeqNum: "RefSeqNum", SenderCompID: "SenderCompID",
	SendingTime: "SendingTime", Side: "Side", Symbol: "Symbol", TargetCompID: "TargetCompID", Text: "Text",
	TimeInForce: "TimeInForce", TransactTime: "TransactTime", ListID: "ListID", CxlRejReason: "CxlRejReason",
	OrdRejReason: "OrdRejReason", ExecType: "ExecType", LeavesQty: "LeavesQty", CxlRejResponseTo: "CxlRejResponseTo",
}

var typeNames = map[string]string{
	TypeHeartbeat: "Heartbeat", "1": "TestRequest", "2": "ResendRequest", "3": "Reject", "4": "SequenceReset",
	TypeLogout: "Logout", TypeExecutionReport: "ExecutionReport", TypeCancelReject: "OrderCancelReject",
	TypeLogon:    "Logon",
	TypeNewOrder: "NewOrderSingle", TypeNewOrderList: "NewOrderList", TypeCancelRequest: "OrderCancelRequest",
	TypeReplaceRequest: "OrderCancelReplaceRequest", TypeStatusRequest: "OrderStatusRequest",
	TypeListCancelRequest: "ListCancelRequest", TypeListExecute: "ListExecute", TypeListStatus: "ListStatus",
	"j": "BusinessMessageReject",
}

// statusNames are the order states of the FIX specification, by OrdStatus.
var statusNames = map[byte]string{
	'0': "New", '1': "Partially filled", '2': "Filled", '3': "Done for day", '4': "Canceled", '5': "Replaced",
	'6': "Pending cancel", '7': "Stopped", '8': "Rejected", '9': "Suspended", 'A': "Pending new", 'B': "Calculated",
	'C': "Expired", 'D': "Accepted for bidding", 'E': "Pending replace",
}

// TagName returns the name of a tag, or its number where it is not one that farlog reads.
func TagName(tag int) string {
	if name, ok := tagNames[tag]; ok {
		return name
	}
	return strconv.Itoa(tag)
}

// TypeName returns the name of a MsgType, or "MsgType x".
func TypeName(msgType string) string {
	if name, ok := typeNames[msgType]; ok {
		return name
	}
	return "MsgType " + msgType
}

// StatusName returns the name of an OrdStatus, or "OrdStatus x".
func StatusName(status byte) string {
	if name, ok := statusNames[status]; ok {
		return name
	}
	return "OrdStatus " + string(rune(status))
}

// Statuses returns all order states in the order of their codes.
func Statuses() []byte {
	return []byte("0123456789ABCDE")
}
