package fixlog

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/farlog/farlog/pkg/audit/fix"
)

// patchKind is what has to be rewritten in a message of the next lap.
type patchKind uint8

const (
	patchID       patchKind = iota // the lap's prefix goes in front of the id
	patchKeyID                     // the same; this id is the record's key, number bytes long
	patchSequence                  // number + lap × messages of the session's side
	patchTime                      // the time of sending minus number, length bytes long
)

// patch is a place in the body where a literal run of bytes ends and something new begins.
type patch struct {
	literalEnd uint32 // bytes of template.body before this patch
	kind       patchKind
	length     uint8 // patchTime
	side       int32 // patchSequence: index of the side that counts
	number     int64
}

// template is a recorded message taken apart: literal bytes and the places to patch between them. CheckSum needs no
// second pass over the literal bytes, because their sum is kept.
type template struct {
	head        string // "8=FIX.4.4" SOH "9="
	body        []byte // literal bytes from "35=" up to "10=" without what patches write
	literalSum  byte   // of head and body
	patches     []patch
	prefixCount int // patches that write the prefix
	timeLen     int // bytes that time patches write
	class       uint16
	direction   Direction
}

// side is one direction of one session: MsgSeqNum counts there.
type side struct {
	begin, sender, target []byte
	messageCount          int64
}

// compiler makes templates and learns the sides on the way.
type compiler struct {
	sides   []side
	message fix.Message
}

func (c *compiler) compile(entry Entry) (template, error) {
	message := &c.message
	if err := fix.Parse(entry.Message, message); err != nil {
		return template{}, err
	}
	if problems := message.Check(); len(problems) > 0 {
		return template{}, fmt.Errorf("%s", problems[0])
	}
	own, opposite, err := c.countMessage(message)
	if err != nil {
		return template{}, err
	}
	sentNS, err := fix.ParseTimestamp(message.Get(fix.SendingTime))
	if err != nil {
		return template{}, fmt.Errorf("SendingTime: %w", err)
	}
	msgType := message.Get(fix.MsgType)
	made := template{
		head: "8=" + string(message.Get(fix.BeginString)) + "\x019=", class: fix.ClassOf(msgType),
		direction: entry.Direction, body: make([]byte, 0, len(entry.Message)),
	}
	keyTag := fix.KeyTag(msgType)
	for _, field := range message.Fields[2 : len(message.Fields)-1] {
		made.body = append(strconv.AppendInt(made.body, int64(field.Tag), 10), '=')
		if err := made.addValue(field, keyTag, sentNS, own, opposite); err != nil {
			return template{}, fmt.Errorf("%s: %w", fix.TagName(field.Tag), err)
		}
		if field.Tag == keyTag {
			keyTag = 0 // only the first is the key
		}
		made.body = append(made.body, fix.SOH)
	}
	made.literalSum = fix.Sum([]byte(made.head)) + fix.Sum(made.body)
	return made, nil
}

// countMessage finds the message's side and checks that MsgSeqNum continues there from 1: only then does a lap continue
// it.
func (c *compiler) countMessage(message *fix.Message) (own, opposite int32, err error) {
	begin, sender, target := message.Get(fix.BeginString), message.Get(fix.SenderCompID), message.Get(fix.TargetCompID)
	own, opposite = c.sideIndex(begin, sender, target), c.sideIndex(begin, target, sender)
	c.sides[own].messageCount++
	sequence, _ := fix.Int(message.Get(fix.MsgSeqNum))
	if int64(sequence) != c.sides[own].messageCount {
		return 0, 0, fmt.Errorf("MsgSeqNum of %s %s>%s is %q, expected %d", begin, sender, target,
			message.Get(fix.MsgSeqNum), c.sides[own].messageCount)
	}
	return own, opposite, nil
}

func (c *compiler) sideIndex(begin, sender, target []byte) int32 {
	for i := range c.sides {
		s := &c.sides[i]
		if bytes.Equal(s.begin, begin) && bytes.Equal(s.sender, sender) && bytes.Equal(s.target, target) {
			return int32(i)
		}
	}
	c.sides = append(c.sides, side{begin: begin, sender: sender, target: target})
	return int32(len(c.sides) - 1)
}

func (t *template) addValue(field fix.Field, keyTag int, sentNS int64, own, opposite int32) error {
	at := patch{literalEnd: uint32(len(t.body))}
	switch field.Tag {
	case fix.ClOrdID, fix.OrigClOrdID, fix.OrderID, fix.ExecID, fix.ExecRefID, fix.ListID, fix.SecondaryOrderID,
		fix.SecondaryClOrdID, fix.SecondaryExecID, fix.ClOrdLinkID, fix.TradeMatchID:
		at.kind = patchID
		if field.Tag == keyTag {
			at.kind, at.number = patchKeyID, int64(len(field.Value))
		}
		t.prefixCount++
		t.body = append(t.body, field.Value...)
	case fix.MsgSeqNum, fix.RefSeqNum, fix.LastMsgSeqNum:
		sequence, ok := fix.Int(field.Value)
		if !ok {
			return fmt.Errorf("%q: expected a number", field.Value)
		}
		at.kind, at.number, at.side = patchSequence, int64(sequence), opposite
		if field.Tag == fix.MsgSeqNum {
			at.side = own
		}
	case fix.SendingTime, fix.TransactTime:
		ns, err := fix.ParseTimestamp(field.Value)
		if err != nil {
			return err
		}
		at.kind, at.number, at.length = patchTime, sentNS-ns, uint8(len(field.Value))
		t.timeLen += len(field.Value)
	default:
		t.body = append(t.body, field.Value...)
		return nil
	}
	t.patches = append(t.patches, at)
	return nil
}
