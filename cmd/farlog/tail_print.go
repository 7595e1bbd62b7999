//go:build cgo

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/farlog/farlog/pkg/record"
)

// recordPrinter writes records for people or programs.
type recordPrinter struct {
	format string
	writer *bufio.Writer
	line   []byte
}

type recordJSON struct {
	Time    time.Time `json:"time"`
	Epoch   uint32    `json:"epoch"`
	LSN     uint64    `json:"lsn"`
	Seq     uint64    `json:"seq"`
	Flags   string    `json:"flags,omitempty"`
	Class   uint16    `json:"class"`
	Key     string    `json:"key,omitempty"`
	Payload string    `json:"payload,omitempty"`
	// PayloadBytes is base64, in place of Payload, when the payload is not UTF-8.
	PayloadBytes []byte `json:"payload_base64,omitempty"`
}

func (p *recordPrinter) print(header record.Header, key, payload []byte) error {
	switch p.format {
	case formatRaw:
		if header.Flags.IsControl() {
			return nil
		}
		p.line = append(append(p.line[:0], payload...), '\n')
	case formatJSON:
		p.line = append(encodeRecord(header, key, payload), '\n')
	default:
		p.line = append(header.Time().AppendFormat(p.line[:0], "2006-01-02T15:04:05.000000000Z"), ' ')
		p.line = strconv.AppendUint(p.line, header.Seq, 10)
		p.line = fmt.Appendf(p.line, " %d %s %s\n", header.Class, orDash(printable(key)), lineText(header, payload))
	}
	_, err := p.writer.Write(p.line)
	return err
}

func encodeRecord(header record.Header, key, payload []byte) []byte {
	shown := recordJSON{
		Time: header.Time(), Epoch: header.Epoch, LSN: header.LSN, Seq: header.Seq, Class: header.Class,
		Key: string(key),
	}
	if header.Flags.IsControl() {
		shown.Flags = header.Flags.String()
	}
	if utf8.Valid(payload) {
		shown.Payload = string(payload)
	} else {
		shown.PayloadBytes = payload
	}
	raw, _ := json.Marshal(shown) // of these types it cannot fail
	return raw
}

// lineText shows a payload on one line; of farlog's own records it says what they are.
func lineText(header record.Header, payload []byte) string {
	switch {
	case header.Flags&record.FlagEpoch != 0:
		return fmt.Sprintf("[EPOCH %d begins]", header.Epoch)
	case header.Flags.IsControl():
		return "[" + header.Flags.String() + "]"
	}
	return printable(payload)
}

// printable shows the FIX separator as |, and escapes whatever would break the line or the terminal.
func printable(raw []byte) string {
	var text strings.Builder
	for _, r := range string(raw) {
		switch {
		case r == 0x01:
			text.WriteByte('|')
		case r == '\\' || strconv.IsPrint(r) && r != utf8.RuneError:
			text.WriteRune(r)
		default:
			quoted := strconv.QuoteRuneToASCII(r)
			text.WriteString(quoted[1 : len(quoted)-1])
		}
	}
	return text.String()
}
