package fix

// The record classes of FIX messages in a stream. Zero is farlog's own.
const (
	ClassSession   = 1 // logon, heartbeat, reject and the other administrative messages
	ClassOrder     = 2 // a new order or a list of them
	ClassRequest   = 3 // cancel, replace, status and list requests
	ClassExecution = 4 // execution reports and list status
	ClassReject    = 5 // a request refused
	ClassOther     = 6
)

// ClassOf returns the record class of a MsgType.
func ClassOf(msgType []byte) uint16 {
	if len(msgType) != 1 {
		return ClassOther
	}
	switch msgType[0] {
	case '0', '1', '2', '3', '4', '5', 'A':
		return ClassSession
	case 'D', 'E':
		return ClassOrder
	case 'F', 'G', 'H', 'K', 'L', 'M':
		return ClassRequest
	case '8', 'N':
		return ClassExecution
	case '9', 'j':
		return ClassReject
	}
	return ClassOther
}

// KeyTag returns the tag whose value finds the message again: ListID of a list of orders, otherwise ClOrdID.
func KeyTag(msgType []byte) int {
	if len(msgType) == 1 {
		switch msgType[0] {
		case 'E', 'N', 'L', 'K', 'M':
			return ListID
		}
	}
	return ClOrdID
}

// KeyAndClass returns the record key and class under which a raw message is appended. The key is a slice of raw, nil
// where the message concerns no order. A payload that is not FIX has no key and ClassOther.
func KeyAndClass(raw []byte) (key []byte, class uint16) {
	var message Message
	if Parse(raw, &message) != nil {
		return nil, ClassOther
	}
	msgType := message.Get(MsgType)
	return message.Get(KeyTag(msgType)), ClassOf(msgType)
}
