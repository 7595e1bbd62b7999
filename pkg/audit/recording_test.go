package audit

import (
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/farlog/farlog/pkg/audit/fix"
	"github.com/farlog/farlog/pkg/audit/fixlog"
)

const recordingPath = "../../testdata/fix/orders.fixlog.zst"

// sourceOf makes a source of recorded messages, with positions as a stream would have them.
func sourceOf(recording []fixlog.Entry) Source {
	return func() iter.Seq2[Entry, error] {
		return func(yield func(Entry, error) bool) {
			for i, entry := range recording {
				if !yield(Entry{TimestampNS: entry.TimestampNS, LSN: uint64(i) * 320, Payload: entry.Message}, nil) {
					return
				}
			}
		}
	}
}

// loadOnce is shared by the tests, which do not change what it gives.
var loadOnce = sync.OnceValues(func() ([]fixlog.Entry, error) { return fixlog.Load(recordingPath) })

func loadRecording(t testing.TB) []fixlog.Entry {
	t.Helper()
	recording, err := loadOnce()
	if err != nil {
		t.Fatal(err)
	}
	return recording
}

// allOrders follows every order of a recording in one pass.
func allOrders(t testing.TB, source Source) map[string]*lifecycle {
	t.Helper()
	lives, firsts := map[string]*lifecycle{}, map[string]*lifecycle{}
	var message fix.Message
	for entry := range source() {
		if err := fix.Parse(entry.Payload, &message); err != nil {
			t.Fatal(err)
		}
		decode(entry, &message, func(e *event) {
			life := lives[e.clOrdID]
			if life == nil && e.origID != "" {
				life = lives[e.origID]
			}
			if life == nil {
				life = newLifecycle()
				firsts[e.clOrdID] = life
			}
			lives[e.clOrdID] = life
			life.apply(e)
		})
	}
	return firsts
}

// The engines' own arithmetic and state changes are the oracle: no order of the recording has an anomaly, every order
// ends, and each state of the specification is passed through by some order.
func TestLifecycle_EveryRecordedOrderIsSound(t *testing.T) {
	seen := map[string]int{}
	lives := allOrders(t, sourceOf(loadRecording(t)))
	for id, life := range lives {
		order := life.finish()
		for _, anomaly := range order.Anomalies {
			t.Errorf("order %s: lsn %d: %s: %s", id, anomaly.LSN, anomaly.Kind, anomaly.Text)
		}
		if !slices.Contains([]string{"Filled", "Done for day", "Canceled", "Rejected", "Expired", "Calculated"},
			order.Status) {
			t.Errorf("order %s ends as %q", id, order.Status)
		}
		if len(order.Waiting) > 0 {
			t.Errorf("order %s: no answer to %v", id, order.Waiting)
		}
		for _, step := range order.Steps {
			seen[step.Status]++
		}
		checkTableWidth(t, order)
	}
	for _, status := range fix.Statuses() {
		if seen[fix.StatusName(status)] == 0 {
			t.Errorf("no order was ever %s", fix.StatusName(status))
		}
	}
	t.Logf("%d orders", len(lives))
}

func checkTableWidth(t *testing.T, order *Order) {
	t.Helper()
	var table strings.Builder
	if err := order.WriteTable(&table); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(table.String()) {
		if width := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); width > tableWidth {
			t.Errorf("order %s: line of %d columns, expected at most %d: %s", order.ClOrdIDs[0], width, tableWidth,
				line)
		}
	}
}

// An order that was replaced and canceled is found by any of its ids, and by the venue's, always as the same.
func TestFindOrder_AnyIdOfTheChainFindsTheSameLife(t *testing.T) {
	source := sourceOf(loadRecording(t))
	var longest *Order
	for _, life := range allOrders(t, source) {
		order := life.finish()
		if longest == nil || len(order.ClOrdIDs) > len(longest.ClOrdIDs) ||
			len(order.ClOrdIDs) == len(longest.ClOrdIDs) && order.ClOrdIDs[0] < longest.ClOrdIDs[0] {
			longest = order
		}
	}
	var want strings.Builder
	if err := longest.WriteTable(&want); err != nil {
		t.Fatal(err)
	}
	for _, key := range append([]string{longest.OrderID}, longest.ClOrdIDs...) {
		order, err := FindOrder(source, key)
		if err != nil {
			t.Fatal(err)
		}
		var got strings.Builder
		if err := order.WriteTable(&got); err != nil {
			t.Fatal(err)
		}
		if got.String() != want.String() {
			t.Errorf("key %s finds\n%s\nexpected\n%s", key, got.String(), want.String())
		}
	}
}

func BenchmarkFindOrder(b *testing.B) {
	source := sourceOf(loadRecording(b))
	for b.Loop() {
		if _, err := FindOrder(source, "D7-006000"); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*float64(len(loadRecording(b)))/b.Elapsed().Seconds(), "records/s")
}
