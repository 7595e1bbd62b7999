package fixlog

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/audit/fix"
)

const startNS = int64(1_700_000_000_123_456_789)

// Two laps and a bit over the whole recording: every message parses, checks and differs from all others; no order id,
// exec id or list id of one lap comes in another; the sequence numbers of each side run on.
func TestGenerator_EveryMessageIsValidAndFresh(t *testing.T) {
	recording := loadRecording(t)
	generator, err := NewGenerator(recording, Options{Run: "T"})
	if err != nil {
		t.Fatal(err)
	}
	idLap := map[string]int{}
	lastSequence := map[string]int{}
	var message fix.Message
	for i := range 2*len(recording) + 1000 {
		number := generator.Number()
		if number != uint64(i) {
			t.Fatalf("message %d is numbered %d", i, number)
		}
		made := generator.Next(startNS + int64(i)*1000)
		if err := fix.Parse(made.Bytes, &message); err != nil {
			t.Fatalf("message %d: %v: %q", i, err, made.Bytes)
		}
		if problems := message.Check(); len(problems) > 0 {
			t.Fatalf("message %d: %v: %q", i, problems, made.Bytes)
		}
		key, class := fix.KeyAndClass(made.Bytes)
		if !bytes.Equal(key, made.Key) || class != made.Class {
			t.Fatalf("message %d: key %q class %d, expected %q and %d", i, made.Key, made.Class, key, class)
		}
		checkIDs(t, &message, i/len(recording), idLap)
		checkSequence(t, &message, lastSequence)
	}
}

func checkIDs(t *testing.T, message *fix.Message, lap int, idLap map[string]int) {
	t.Helper()
	for _, field := range message.Fields {
		switch field.Tag {
		case fix.ClOrdID, fix.OrigClOrdID, fix.OrderID, fix.ExecID, fix.ExecRefID, fix.ListID:
			id := string(field.Value)
			if seen, isKnown := idLap[id]; isKnown && seen != lap {
				t.Fatalf("lap %d repeats %s %q of lap %d", lap, fix.TagName(field.Tag), id, seen)
			}
			idLap[id] = lap
		}
	}
}

func checkSequence(t *testing.T, message *fix.Message, last map[string]int) {
	t.Helper()
	side := fmt.Sprintf("%s %s>%s", message.Get(fix.BeginString), message.Get(fix.SenderCompID),
		message.Get(fix.TargetCompID))
	sequence, ok := fix.Int(message.Get(fix.MsgSeqNum))
	if !ok || sequence != last[side]+1 {
		t.Fatalf("%s: MsgSeqNum %q after %d", side, message.Get(fix.MsgSeqNum), last[side])
	}
	last[side] = sequence
}

// Apart from what is to be fresh, a generated message is the recorded one, field by field.
func TestGenerator_KeepsAllOtherFields(t *testing.T) {
	recording := loadRecording(t)
	generator, err := NewGenerator(recording, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var recorded, made fix.Message
	for i, entry := range recording {
		if err := fix.Parse(entry.Message, &recorded); err != nil {
			t.Fatal(err)
		}
		if err := fix.Parse(generator.Next(startNS).Bytes, &made); err != nil {
			t.Fatal(err)
		}
		if len(made.Fields) != len(recorded.Fields) {
			t.Fatalf("message %d has %d fields, recorded are %d", i, len(made.Fields), len(recorded.Fields))
		}
		for j, field := range made.Fields {
			want := recorded.Fields[j]
			if field.Tag != want.Tag || !isFreshTag(field.Tag) && !bytes.Equal(field.Value, want.Value) {
				t.Fatalf("message %d: field %d=%q, recorded %d=%q", i, field.Tag, field.Value, want.Tag, want.Value)
			}
			if isFreshTag(field.Tag) && bytes.HasPrefix(field.Value, []byte("0000.")) &&
				!bytes.Equal(field.Value[len("0000."):], want.Value) {
				t.Fatalf("message %d: id %q, recorded %q", i, field.Value, want.Value)
			}
		}
	}
}

func isFreshTag(tag int) bool {
	switch tag {
	case fix.BodyLength, fix.CheckSum, fix.ClOrdID, fix.OrigClOrdID, fix.OrderID, fix.ExecID, fix.ExecRefID, fix.ListID,
		fix.MsgSeqNum, fix.SendingTime, fix.TransactTime:
		return true
	}
	return false
}

func TestGenerator_SendingTimeIsTheTimeGiven(t *testing.T) {
	generator, err := NewGenerator(loadRecording(t)[:20_000], Options{})
	if err != nil {
		t.Fatal(err)
	}
	var message fix.Message
	if err := fix.Parse(generator.Next(startNS).Bytes, &message); err != nil {
		t.Fatal(err)
	}
	want := time.Unix(0, startNS).UTC().Format("20060102-15:04:05.000000")
	if got := string(message.Get(fix.SendingTime)); got != want {
		t.Fatalf("SendingTime is %q, expected %q", got, want)
	}
}

// A feed that was cut off and goes on with First makes the bytes that it would have made.
func TestGenerator_GoesOnFromAnyMessage(t *testing.T) {
	recording := loadRecording(t)[:5000]
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	first := rand.New(rand.NewPCG(seed, 0)).Uint64N(3 * uint64(len(recording)))
	whole, err := NewGenerator(recording, Options{Run: "AB"})
	if err != nil {
		t.Fatal(err)
	}
	rest, err := NewGenerator(recording, Options{Run: "AB", First: first})
	if err != nil {
		t.Fatal(err)
	}
	for range first {
		whole.Next(startNS)
	}
	for i := range 1000 {
		want, got := whole.Next(startNS), rest.Next(startNS)
		if !bytes.Equal(got.Bytes, want.Bytes) {
			t.Fatalf("message %d after the cut at %d is %q, expected %q", i, first, got.Bytes, want.Bytes)
		}
	}
}

func TestFreshID_IsTheKeyThatTheGeneratorGives(t *testing.T) {
	recording := loadRecording(t)[:200]
	generator, err := NewGenerator(recording, Options{Run: "K7", First: 40 * uint64(len(recording))})
	if err != nil {
		t.Fatal(err)
	}
	for i, entry := range recording {
		recorded, _ := fix.KeyAndClass(entry.Message)
		if got := generator.Next(startNS).Key; recorded != nil && string(got) != FreshID("K7", 40, string(recorded)) {
			t.Fatalf("message %d: key %q, expected %q", i, got, FreshID("K7", 40, string(recorded)))
		}
	}
}

func TestNewGenerator_Refuses(t *testing.T) {
	recording := loadRecording(t)[:100]
	broken := bytes.Clone(recording[50].Message)
	broken[30] ^= 1
	for _, test := range []struct {
		name      string
		recording []Entry
		run       string
		want      string
	}{
		{"an empty recording", nil, "", "the recording is empty"},
		{"a run with a space", recording, "a b", `run "a b": expected at most 8 letters or digits`},
		{"a run too long", recording, "abcdefghi", "expected at most 8 letters or digits"},
		{"a wrong check sum", []Entry{{Message: broken}}, "", "message 1 of the recording: check sum says"},
		{"a hole in the sequence", recording[20:], "", "expected 1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := NewGenerator(test.recording, Options{Run: test.run})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("got %v, expected an error with %q", err, test.want)
			}
		})
	}
}

func TestGenerator_AllocatesNothing(t *testing.T) {
	generator, err := NewGenerator(loadRecording(t)[:20_000], Options{})
	if err != nil {
		t.Fatal(err)
	}
	for range generator.LapLen() {
		generator.Next(startNS)
	}
	if allocs := testing.AllocsPerRun(10_000, func() { generator.Next(startNS) }); allocs != 0 {
		t.Fatalf("%v allocations a message, expected 0", allocs)
	}
}

func BenchmarkGenerator(b *testing.B) {
	generator, err := NewGenerator(loadRecording(b), Options{Run: "B"})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	total, now := 0, startNS
	for b.Loop() {
		now += 580_000 // 1,724 a second
		total += len(generator.Next(now).Bytes)
	}
	b.SetBytes(int64(total / b.N))
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
}
