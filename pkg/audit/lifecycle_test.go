package audit

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"iter"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/farlog/farlog/pkg/audit/fix"
	"github.com/farlog/farlog/pkg/audit/fixlog"
)

var update = flag.Bool("update", false, "rewrite testdata/*.golden")

// excerpts are lives of the recording, whole, that go different ways.
var excerpts = []struct{ name, key string }{
	{"busted 4.4", "D7-000904"},
	{"corrected 4.2", "D7-001954"},
	{"replaced 4.2 then canceled", "D7-002337"},
	{"suspended and resumed", "D7-000007"},
	{"stopped", "D7-000013"},
	{"list", "D7-000160"},
	{"fill crosses cancel", "D7-000056"},
	{"canceled after trades", "D7-000429"},
	{"rejected", "D7-000010"},
	{"calculated done for day", "D7-000152"},
	{"expired status request", "D7-002480"},
}

func loadExcerpt(t testing.TB) []fixlog.Entry {
	t.Helper()
	entries, err := fixlog.Load("testdata/excerpt.fixlog")
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

func TestFindOrder_ExcerptsReadAsCommitted(t *testing.T) {
	var got strings.Builder
	source := sourceOf(loadExcerpt(t))
	for _, excerpt := range excerpts {
		order, err := FindOrder(source, excerpt.key)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&got, "=== %s\n", excerpt.name)
		if err := order.WriteTable(&got); err != nil {
			t.Fatal(err)
		}
	}
	const golden = "testdata/excerpt.golden"
	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("got\n%s\nexpected\n%s", got.String(), want)
	}
}

// edit changes the messages of an order's life; each message is framed again, so that only the life is wrong.
type edit func(life []fixlog.Entry) []fixlog.Entry

// spoiledKey is the excerpt that is spoiled, a plain life: new order, Pending new, New, two trades, a cancel request
// that is granted.
const spoiledKey = "D7-000429"

func TestFindOrder_NamesWhatIsWrong(t *testing.T) {
	isNew := func(m *fix.Message) bool { return m.Type() == "8" && string(m.Get(fix.ExecType)) == "0" }
	isTrade := func(m *fix.Message) bool { return m.Type() == "8" && m.Get(fix.LastQty) != nil }
	isCanceled := func(m *fix.Message) bool { return m.Type() == "8" && string(m.Get(fix.ExecType)) == "4" }
	isOrder := func(m *fix.Message) bool { return m.Type() == fix.TypeNewOrder }
	isRequest := func(m *fix.Message) bool { return m.Type() == fix.TypeCancelRequest }
	for _, test := range []struct {
		name string
		edit edit
		want []Kind
	}{
		{"nothing", func(life []fixlog.Entry) []fixlog.Entry { return life }, nil},
		{"New is lost", drop(isNew), []Kind{MissingNew}},
		{"the order is lost", drop(isOrder), []Kind{MissingOrder}},
		{"the order is there twice", double(isOrder), []Kind{DuplicateOrder}},
		{"the cancel request is lost", drop(isRequest), []Kind{MissingRequest}},
		{"a trade is lost", drop(isTrade), []Kind{CumQtyWrong}},
		{"a trade is there twice", double(isTrade), []Kind{DuplicateReport}},
		{
			"a trade after the cancel", after(isTrade, fix.ExecID, "LATE"),
			[]Kind{FillAfterCancel, CumQtyBack, LeavesQtyWrong, StatusWrong, CumQtyWrong},
		},
		{"cum qty of the cancel too low", set(isCanceled, fix.CumQty, "1"), []Kind{CumQtyBack}},
		{"cum qty of the cancel too high", set(isCanceled, fix.CumQty, "36"), []Kind{CumQtyWrong}},
		{"cum qty above the order", set(isCanceled, fix.CumQty, "1000000"), []Kind{CumQtyWrong, Overfill}},
		{"leaves qty of the cancel not zero", set(isCanceled, fix.LeavesQty, "5"), []Kind{LeavesQtyWrong}},
		{"average price off by a cent", set(isCanceled, fix.AvgPx, "0.01"), []Kind{AvgPxWrong}},
		{"New with a quantity traded", set(isNew, fix.OrdStatus, "1"), []Kind{StatusWrong}},
		{"another symbol", set(isCanceled, fix.Symbol, "OTHER"), []Kind{SymbolChanged}},
		{"a number that is none", set(isCanceled, fix.CumQty, "many"), []Kind{BadMessage}},
		{
			"the cancel twice with another ExecID", after(isCanceled, fix.ExecID, "AGAIN"),
			[]Kind{ReportAfterEnd, MissingRequest},
		},
		{"the clock stepped back", stepBack, []Kind{TimeBack}},
	} {
		t.Run(test.name, func(t *testing.T) {
			order, err := FindOrder(sourceOf(test.edit(loadSpoilable(t))), spoiledKey)
			if err != nil {
				t.Fatal(err)
			}
			var kinds []Kind
			for _, anomaly := range order.Anomalies {
				if !slices.Contains(kinds, anomaly.Kind) {
					kinds = append(kinds, anomaly.Kind)
				}
			}
			for _, kind := range kinds {
				if !slices.Contains(test.want, kind) {
					t.Errorf("%q is told, expected %q: %v", kind, test.want, order.Anomalies)
				}
			}
			if len(test.want) > 0 && !slices.Contains(kinds, test.want[0]) {
				t.Errorf("%q is not told: %v", test.want[0], order.Anomalies)
			}
		})
	}
}

func TestFindOrder_DamagedFrameIsShownAndNamed(t *testing.T) {
	life := loadSpoilable(t)
	at := bytes.Index(life[2].Message, []byte("\x0110="))
	life[2].Message[at-1] ^= 1
	order, err := FindOrder(sourceOf(life), spoiledKey)
	if err != nil {
		t.Fatal(err)
	}
	if len(order.Anomalies) == 0 || order.Anomalies[0].Kind != BadMessage || order.Anomalies[0].LSN != 2*320 {
		t.Errorf("anomalies are %v, expected a bad message at lsn 640", order.Anomalies)
	}
}

func TestFindOrder_RequestWithoutAnswerIsWaiting(t *testing.T) {
	life := loadSpoilable(t)
	life = life[:len(life)-1] // the cancel that answers
	order, err := FindOrder(sourceOf(life), spoiledKey)
	if err != nil {
		t.Fatal(err)
	}
	if len(order.Waiting) != 1 || len(order.Anomalies) != 0 {
		t.Errorf("waiting %v, anomalies %v, expected one request that waits", order.Waiting, order.Anomalies)
	}
}

func TestFindOrder_ResentReportChangesNothing(t *testing.T) {
	life := loadSpoilable(t)
	again := reframe(life[3].Message, fix.PossDupFlag, "Y")
	life = append(life, fixlog.Entry{TimestampNS: life[len(life)-1].TimestampNS, Message: again})
	order, err := FindOrder(sourceOf(life), spoiledKey)
	if err != nil || len(order.Anomalies) != 0 {
		t.Errorf("%v, anomalies %v, expected none", err, order.Anomalies)
	}
}

func TestFindOrder_UnknownKey(t *testing.T) {
	for _, key := range []string{"", "NOBODY", "D7", "\x01"} {
		if _, err := FindOrder(sourceOf(loadExcerpt(t)), key); !errors.Is(err, ErrNotFound) {
			t.Errorf("key %q: got %v, expected ErrNotFound", key, err)
		}
	}
}

func TestFindOrder_PayloadsThatAreNotFIXAreNoObstacle(t *testing.T) {
	life := loadSpoilable(t)
	noise := fixlog.Entry{Message: []byte("plain text with \x0111=" + spoiledKey + "\x01 and \x0141=X\x01 in it")}
	life = slices.Insert(life, 2, noise)
	order, err := FindOrder(sourceOf(life), spoiledKey)
	if err != nil || len(order.Anomalies) != 0 {
		t.Errorf("%v, anomalies %v, expected none", err, order.Anomalies)
	}
}

func TestFindOrder_SourceErrorIsReturned(t *testing.T) {
	broken := errors.New("disk on fire")
	source := func() iter.Seq2[Entry, error] {
		return func(yield func(Entry, error) bool) { yield(Entry{}, broken) }
	}
	if _, err := FindOrder(source, "A"); !errors.Is(err, broken) {
		t.Fatalf("got %v, expected the source's error", err)
	}
}

// loadSpoilable returns the messages of the life to be spoiled.
func loadSpoilable(t *testing.T) []fixlog.Entry {
	t.Helper()
	var life []fixlog.Entry
	for _, entry := range loadExcerpt(t) {
		if bytes.Contains(entry.Message, []byte("\x0111="+spoiledKey)) {
			life = append(life, entry)
		}
	}
	if len(life) != 7 {
		t.Fatalf("the life of %s has %d messages, expected 7", spoiledKey, len(life))
	}
	return life
}

func drop(isIt func(*fix.Message) bool) edit {
	return func(life []fixlog.Entry) []fixlog.Entry {
		at := find(life, isIt)
		return slices.Delete(life, at, at+1)
	}
}

func double(isIt func(*fix.Message) bool) edit {
	return func(life []fixlog.Entry) []fixlog.Entry {
		at := find(life, isIt)
		return slices.Insert(life, at, life[at])
	}
}

// set changes a field of the message.
func set(isIt func(*fix.Message) bool, tag int, value string) edit {
	return func(life []fixlog.Entry) []fixlog.Entry {
		at := find(life, isIt)
		life[at].Message = reframe(life[at].Message, tag, value)
		return life
	}
}

// after repeats the message at the end of the life with a field changed.
func after(isIt func(*fix.Message) bool, tag int, value string) edit {
	return func(life []fixlog.Entry) []fixlog.Entry {
		again := life[find(life, isIt)]
		again.TimestampNS = life[len(life)-1].TimestampNS
		again.Message = reframe(again.Message, tag, value)
		return append(life, again)
	}
}

func stepBack(life []fixlog.Entry) []fixlog.Entry {
	life[len(life)-1].TimestampNS = life[0].TimestampNS
	return life
}

func find(life []fixlog.Entry, isIt func(*fix.Message) bool) int {
	return slices.IndexFunc(life, func(entry fixlog.Entry) bool {
		var message fix.Message
		return fix.Parse(entry.Message, &message) == nil && isIt(&message)
	})
}

// reframe sets a field of a message, or puts it behind MsgType, and computes BodyLength and CheckSum again.
func reframe(raw []byte, tag int, value string) []byte {
	var message fix.Message
	if err := fix.Parse(raw, &message); err != nil {
		panic(err)
	}
	isSet := message.Get(tag) != nil
	var body []byte
	for _, field := range message.Fields[2 : len(message.Fields)-1] {
		if field.Tag == tag {
			field.Value = []byte(value)
		}
		body = fmt.Appendf(body, "%d=%s\x01", field.Tag, field.Value)
		if field.Tag == fix.MsgType && !isSet {
			body = fmt.Appendf(body, "%d=%s\x01", tag, value)
		}
	}
	return frame(string(message.Get(fix.BeginString)), body)
}

func frame(begin string, body []byte) []byte {
	raw := fmt.Appendf(nil, "8=%s\x019=%d\x01%s", begin, len(body), body)
	return fmt.Appendf(raw, "10=%03d\x01", fix.Sum(raw))
}

// A trade can be taken back once: the second bust of it has no trade to refer to.
func TestFindOrder_BustOfABustedTrade(t *testing.T) {
	isBust := func(m *fix.Message) bool { return string(m.Get(fix.ExecType)) == "H" }
	order, err := FindOrder(sourceOf(after(isBust, fix.ExecID, "AGAIN")(loadExcerpt(t))), "D7-000904")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(order.Anomalies, func(a Anomaly) bool { return a.Kind == UnknownTrade }) {
		t.Errorf("anomalies are %v, expected an unknown trade", order.Anomalies)
	}
}
