package fixlog

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/farlog/farlog/pkg/audit/fix"
)

// Tally counts what a recording holds: the tables of testdata/fix/README.md are made by it.
type Tally struct {
	Messages   int
	Bytes      int64
	FirstNS    int64
	LastNS     int64
	ByType     map[string]*Count
	ByStatus   map[byte]*StatusCount
	BySession  map[string]int // messages by BeginString and the engine's counterparty
	BusiestMS  int            // most messages within a millisecond that begins with a message
	recentNS   []int64
	message    fix.Message
	ClOrdIDs   map[string]struct{}
	BadMessage int // body length or check sum wrong
}

// Count is the messages of one type by direction.
type Count struct {
	In, Out int
}

// StatusCount is the appearances of one OrdStatus by the message that told it.
type StatusCount struct {
	Reports, ListStatus, CancelRejects int
}

// NewTally returns an empty tally.
func NewTally() *Tally {
	return &Tally{
		ByType: map[string]*Count{}, ByStatus: map[byte]*StatusCount{}, BySession: map[string]int{},
		ClOrdIDs: map[string]struct{}{},
	}
}

// Add counts one entry.
func (t *Tally) Add(entry Entry) error {
	if err := fix.Parse(entry.Message, &t.message); err != nil {
		return err
	}
	if len(t.message.Check()) > 0 {
		t.BadMessage++
	}
	if t.Messages == 0 {
		t.FirstNS = entry.TimestampNS
	}
	t.Messages++
	t.Bytes += int64(len(entry.Message))
	t.LastNS = entry.TimestampNS
	t.addBusiest(entry.TimestampNS)
	t.addType(entry.Direction)
	t.addStatuses()
	return nil
}

// Markdown returns the tables.
func (t *Tally) Markdown() string {
	var out strings.Builder
	span := time.Duration(t.LastNS - t.FirstNS)
	fmt.Fprintf(&out, "%d messages, %d bytes of FIX, %d order ids, %.1f s; busiest millisecond: %d messages;\n"+
		"messages with a wrong body length or check sum: %d.\n\n", t.Messages, t.Bytes, len(t.ClOrdIDs), span.Seconds(),
		t.BusiestMS, t.BadMessage)
	out.WriteString("| session | messages |\n|---|---:|\n")
	for _, name := range slices.Sorted(maps.Keys(t.BySession)) {
		fmt.Fprintf(&out, "| %s | %d |\n", name, t.BySession[name])
	}
	out.WriteString("\n| MsgType | name | sent | received |\n|---|---|---:|---:|\n")
	for _, name := range slices.Sorted(maps.Keys(t.ByType)) {
		fmt.Fprintf(&out, "| %s | %s | %d | %d |\n", name, fix.TypeName(name), t.ByType[name].Out, t.ByType[name].In)
	}
	out.WriteString("\n| OrdStatus | name | execution reports | list status | cancel rejects " +
		"|\n|---|---|---:|---:|---:|\n")
	for _, status := range fix.Statuses() {
		count := t.ByStatus[status]
		if count == nil {
			count = &StatusCount{}
		}
		fmt.Fprintf(&out, "| %c | %s | %d | %d | %d |\n", status, fix.StatusName(status), count.Reports,
			count.ListStatus, count.CancelRejects)
	}
	return out.String()
}

func (t *Tally) addBusiest(timestampNS int64) {
	t.recentNS = append(t.recentNS, timestampNS)
	expired := 0
	for timestampNS-t.recentNS[expired] >= int64(time.Millisecond) {
		expired++
	}
	t.recentNS = t.recentNS[expired:]
	t.BusiestMS = max(t.BusiestMS, len(t.recentNS))
}

func (t *Tally) addType(direction Direction) {
	count := t.ByType[t.message.Type()]
	if count == nil {
		count = &Count{}
		t.ByType[t.message.Type()] = count
	}
	counterparty := t.message.Get(fix.TargetCompID)
	if direction == In {
		counterparty = t.message.Get(fix.SenderCompID)
		count.In++
	} else {
		count.Out++
	}
	t.BySession[fmt.Sprintf("%s with %s", t.message.Get(fix.BeginString), counterparty)]++
}

func (t *Tally) addStatuses() {
	for _, field := range t.message.Fields {
		if field.Tag == fix.ClOrdID {
			t.ClOrdIDs[string(field.Value)] = struct{}{}
		}
		if field.Tag != fix.OrdStatus || len(field.Value) != 1 {
			continue
		}
		count := t.ByStatus[field.Value[0]]
		if count == nil {
			count = &StatusCount{}
			t.ByStatus[field.Value[0]] = count
		}
		switch t.message.Type() {
		case fix.TypeExecutionReport:
			count.Reports++
		case fix.TypeListStatus:
			count.ListStatus++
		case fix.TypeCancelReject:
			count.CancelRejects++
		}
	}
}
