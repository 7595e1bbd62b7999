// Package fix reads and checks FIX messages in their tag=value form: 8=FIX.4.4|9=…|35=…| … 10=nnn|, with the byte 0x01
// (SOH) where | is written here.
//
// It knows no dictionary beyond the few tags that carry raw data: a tag that it has never learned of is a field like
// any other. What is broken in the framing is an error of Parse; a wrong body length or check sum is told by Check,
// because an auditor wants to see such a message and not lose it.
package fix

import (
	"errors"
	"fmt"
)

// SOH ends every field.
const SOH = 0x01

// TagMax is the highest tag that Parse accepts: far above all that the standard or a counterparty has in use.
const TagMax = 1 << 24

// ErrMalformed is what every error of Parse wraps.
var ErrMalformed = errors.New("not a FIX message")

// Field is one tag=value. Value is a slice of the message's bytes.
type Field struct {
	Tag   int
	Value []byte
}

// Message is a parsed message. It is reused by Parse: fields of the message before are overwritten.
type Message struct {
	Raw    []byte
	Fields []Field

	bodyStart  int // offset of the first byte after the BodyLength field
	checkStart int // offset of "10="
}

// Parse splits raw, which must hold one whole message, into fields. The message keeps slices of raw. It allocates only
// when Fields has to grow.
func Parse(raw []byte, message *Message) error {
	*message = Message{Raw: raw, Fields: message.Fields[:0]}
	dataTag, dataLen := 0, 0
	for offset := 0; offset < len(raw); {
		tag, valueStart, err := parseTag(raw, offset)
		if err != nil {
			return err
		}
		valueEnd, err := findValueEnd(raw, valueStart, tag == dataTag, dataLen)
		if err != nil {
			return err
		}
		value := raw[valueStart:valueEnd]
		if err := message.place(tag, value, offset, valueEnd+1); err != nil {
			return err
		}
		message.Fields = append(message.Fields, Field{Tag: tag, Value: value})
		dataTag = dataTagOf(tag)
		dataLen, _ = Int(value)
		offset = valueEnd + 1
	}
	if message.checkStart == 0 {
		return fmt.Errorf("%w: it ends without a CheckSum (10=) after %d bytes", ErrMalformed, len(raw))
	}
	return nil
}

// Get returns the value of the first field with this tag, nil when there is none.
func (m *Message) Get(tag int) []byte {
	for i := range m.Fields {
		if m.Fields[i].Tag == tag {
			return m.Fields[i].Value
		}
	}
	return nil
}

// Type returns the MsgType, "" when the message is empty.
func (m *Message) Type() string {
	return string(m.Get(MsgType))
}

// Check compares BodyLength and CheckSum with the bytes and returns one sentence for each that is wrong.
func (m *Message) Check() []string {
	var problems []string
	body := m.checkStart - m.bodyStart
	if declared, ok := Int(m.Get(BodyLength)); !ok || declared != body {
		problems = append(problems, fmt.Sprintf("body length says %q, the body has %d bytes", m.Get(BodyLength), body))
	}
	sum := Sum(m.Raw[:m.checkStart])
	if declared := m.Get(CheckSum); string(declared) != formatSum(sum) {
		problems = append(problems, fmt.Sprintf("check sum says %q, the bytes give %s", declared, formatSum(sum)))
	}
	return problems
}

// Sum is the FIX check sum: all bytes up to the CheckSum field added up, modulo 256.
func Sum(raw []byte) byte {
	sum := byte(0)
	for _, b := range raw {
		sum += b
	}
	return sum
}

// Int reads a non-negative decimal number; leading zeros are allowed, as FIX allows them.
func Int(value []byte) (int, bool) {
	if len(value) == 0 || len(value) > 18 {
		return 0, false
	}
	n := 0
	for _, c := range value {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return n, true
}

// place holds the message to the order that FIX prescribes: 8 first, 9 second, 35 third, 10 last and only there.
func (m *Message) place(tag int, value []byte, start, end int) error {
	index := len(m.Fields)
	if index < len(headOrder) && tag != headOrder[index] {
		return fmt.Errorf("%w: field %d is tag %d, expected %d (%s)", ErrMalformed, index+1, tag, headOrder[index],
			TagName(headOrder[index]))
	}
	switch tag {
	case BeginString:
		if index != 0 || len(value) < 4 || string(value[:3]) != "FIX" {
			return fmt.Errorf("%w: BeginString at offset %d is %q, expected FIX… and only at the start", ErrMalformed,
				start, value)
		}
	case BodyLength:
		if index != 1 {
			return fmt.Errorf("%w: a second BodyLength at offset %d", ErrMalformed, start)
		}
		m.bodyStart = end
	case CheckSum:
		if end != len(m.Raw) {
			return fmt.Errorf("%w: %d bytes follow the CheckSum field", ErrMalformed, len(m.Raw)-end)
		}
		m.checkStart = start
	}
	return nil
}

var headOrder = [...]int{BeginString, BodyLength, MsgType}

func parseTag(raw []byte, offset int) (tag, valueStart int, err error) {
	i := offset
	for ; i < len(raw) && raw[i] >= '0' && raw[i] <= '9' && tag <= TagMax; i++ {
		tag = tag*10 + int(raw[i]-'0')
	}
	if i == offset || tag == 0 || tag > TagMax || i == len(raw) || raw[i] != '=' {
		return 0, 0, fmt.Errorf("%w: at offset %d there is %q, expected a tag from 1 to %d and '='", ErrMalformed,
			offset, clip(raw[offset:]), TagMax)
	}
	return tag, i + 1, nil
}

// findValueEnd returns the offset of the SOH that ends the value. A data field may hold SOH bytes: its length is known
// from the length field right before it. Where that length does not end on SOH, the field is read like any other.
func findValueEnd(raw []byte, start int, isData bool, dataLen int) (int, error) {
	if isData && dataLen <= len(raw)-start-1 && raw[start+dataLen] == SOH {
		return start + dataLen, nil
	}
	for i := start; i < len(raw); i++ {
		if raw[i] == SOH {
			return i, nil
		}
	}
	return 0, fmt.Errorf("%w: the value at offset %d, %q, does not end with SOH (0x01)", ErrMalformed, start,
		clip(raw[start:]))
}

// dataTagOf returns the data field whose length the tag carries, 0 for all other tags.
func dataTagOf(tag int) int {
	switch tag {
	case 93:
		return 89 // SignatureLength, Signature
	case 90, 95, 212, 348, 350, 352, 354, 356, 358, 360, 362, 364, 445, 618, 621:
		return tag + 1
	}
	return 0
}

func formatSum(sum byte) string {
	return string([]byte{'0' + sum/100, '0' + sum/10%10, '0' + sum%10})
}

func clip(b []byte) []byte {
	return b[:min(len(b), 24)]
}
