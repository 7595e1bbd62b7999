package fix

import (
	"fmt"
	"time"
)

// TimestampLens are the lengths of a UTCTimestamp: whole seconds, or with 3, 6 or 9 decimal places.
const (
	timestampLenSeconds = len("20060102-15:04:05")
	timestampLenMax     = len("20060102-15:04:05.000000000")
)

// ParseTimestamp reads a UTCTimestamp with 0, 3, 6 or 9 decimal places and returns UTC nanoseconds since 1970.
func ParseTimestamp(value []byte) (unixNS int64, err error) {
	layout := "20060102-15:04:05.000000000"
	switch decimals := len(value) - timestampLenSeconds - 1; decimals {
	case -1:
		layout = layout[:timestampLenSeconds]
	case 3, 6, 9:
		layout = layout[:timestampLenSeconds+1+decimals]
	default:
		return 0, fmt.Errorf("timestamp %q: expected YYYYMMDD-HH:MM:SS with 0, 3, 6 or 9 decimal places", clip(value))
	}
	at, err := time.Parse(layout, string(value))
	if err != nil {
		return 0, fmt.Errorf("timestamp %q: expected YYYYMMDD-HH:MM:SS with 0, 3, 6 or 9 decimal places", value)
	}
	return at.UnixNano(), nil
}

// A Clock writes timestamps. It keeps the text of the last second, because most messages share it with the one before.
type Clock struct {
	second int64
	text   [timestampLenMax]byte
	isSet  bool
}

// Append writes the first length bytes of the timestamp with nine decimals: a length that ParseTimestamp accepts.
func (c *Clock) Append(dst []byte, unixNS int64, length int) []byte {
	second, nanos := unixNS/1e9, unixNS%1e9
	if nanos < 0 {
		second, nanos = second-1, nanos+1e9
	}
	if !c.isSet || second != c.second {
		time.Unix(second, 0).UTC().AppendFormat(c.text[:0], "20060102-15:04:05.")
		c.second, c.isSet = second, true
	}
	for i := timestampLenMax - 1; i > timestampLenSeconds; i-- {
		c.text[i] = byte('0' + nanos%10)
		nanos /= 10
	}
	return append(dst, c.text[:length]...)
}
