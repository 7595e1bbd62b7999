package slogfarlog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/slogtest"
	"time"

	"go.uber.org/goleak"

	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/record"
)

func TestMain(m *testing.M) {
	if uri := os.Getenv(childRing); uri != "" {
		logUntilKilled(uri)
	}
	goleak.VerifyTestMain(m)
}

// newRing formats a ring on tmpfs.
func newRing(tb testing.TB, sizeBytes uint64, recordLenMax uint32) string {
	tb.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "farlog-slog-")
	if err != nil {
		tb.Skipf("no tmpfs at /dev/shm: %v", err)
	}
	tb.Cleanup(func() { os.RemoveAll(dir) })
	uri := "mem:" + filepath.Join(dir, "events.ring")
	if err := farlog.Format(uri, farlog.FormatOptions{SizeBytes: sizeBytes, RecordLenMax: recordLenMax}); err != nil {
		tb.Fatal(err)
	}
	return uri
}

func openShared(tb testing.TB, uri string, policy farlog.Policy) *farlog.Shared {
	tb.Helper()
	w, err := farlog.OpenShared(uri, farlog.WriterOptions{
		Level: farlog.LevelVisible, Policy: policy,
		CountersDir: "none",
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { w.Close() })
	return w
}

func newHandler(tb testing.TB, w *farlog.Shared, options Options) *Handler {
	tb.Helper()
	h, err := New(w, options)
	if err != nil {
		tb.Fatal(err)
	}
	return h
}

// drain takes the application's records out of a ring, in order.
type drain struct {
	testing.TB
	reader *farlog.Reader
	id     record.Identity
	buf    []byte
}

func openDrain(tb testing.TB, uri string) *drain {
	tb.Helper()
	reader, err := farlog.OpenReader(uri, farlog.ReaderOptions{Drain: true})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { reader.Close() })
	status, err := reader.Status()
	if err != nil {
		tb.Fatal(err)
	}
	return &drain{tb, reader, record.Identity{Salt: status.Salt, Align: status.Align}, make([]byte, 4<<20)}
}

type event struct {
	class     uint16
	key, text string
}

func (d *drain) take() (events []event) {
	d.Helper()
	for {
		batch, err := d.reader.Read(d.buf)
		if errors.Is(err, farlog.ErrNotYet) {
			return events
		}
		if err != nil {
			d.Fatal(err)
		}
		for raw := batch.Bytes; len(raw) > 0; {
			one, err := record.Decode(raw, d.id)
			if err != nil {
				d.Fatal(err)
			}
			if !one.Flags.IsControl() {
				events = append(events, event{one.Class, string(one.Key), string(one.Payload)})
			}
			raw = raw[len(one.Raw):]
		}
		if err := d.reader.Release(batch.NextLSN, batch.NextSeq, batch.LastEpoch); err != nil {
			d.Fatal(err)
		}
	}
}

func TestHandler_KeepsTheRulesOfSlog(t *testing.T) {
	var uri string
	slogtest.Run(t, func(t *testing.T) slog.Handler {
		uri = newRing(t, 1<<20, 0)
		return newHandler(t, openShared(t, uri, farlog.PolicyReject), Options{})
	}, func(t *testing.T) map[string]any {
		events := openDrain(t, uri).take()
		if len(events) != 1 {
			t.Fatalf("%d events: want 1", len(events))
		}
		var fields map[string]any
		if err := json.Unmarshal([]byte(events[0].text), &fields); err != nil {
			t.Fatal(err)
		}
		return fields
	})
}

// The same events through slog's own handlers: the same text, without the newline.
func TestHandler_SpellsAsSlogDoes(t *testing.T) {
	own := slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(_ []string, attr slog.Attr) slog.Attr {
		if attr.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return attr
	}}
	for _, format := range []Format{FormatJSON, FormatText} {
		uri := newRing(t, 1<<20, 0)
		var want bytes.Buffer
		var standard slog.Handler = slog.NewJSONHandler(&want, &own)
		if format == FormatText {
			standard = slog.NewTextHandler(&want, &own)
		}
		ours := newHandler(t, openShared(t, uri, farlog.PolicyReject), Options{HandlerOptions: own, Format: format})
		for _, h := range []slog.Handler{standard, ours} {
			log := slog.New(h).With("desk", 7).WithGroup("order").With("id", "ORD-1", slog.Group("leg", "n", 1))
			log.Debug("new", "price", 17.25, "text", "次の注文 🜚\nsecond line")
			log.Error("rejected", "err", errors.New("no such instrument"), slog.Group("why", "code", 3))
			slog.New(h).Info("plain")
		}
		var got strings.Builder
		for _, one := range openDrain(t, uri).take() {
			got.WriteString(one.text + "\n")
		}
		if got.String() != want.String() {
			t.Errorf("format %d:\n%swant\n%s", format, got.String(), want.String())
		}
	}
}

func TestHandler_ClassAndKey(t *testing.T) {
	uri := newRing(t, 1<<20, 0)
	h := newHandler(t, openShared(t, uri, farlog.PolicyReject), Options{
		HandlerOptions: slog.HandlerOptions{Level: slog.LevelDebug - 4}, KeyAttr: "ClOrdID",
	})
	log := slog.New(h)
	log.Log(context.Background(), slog.LevelDebug-4, "trace")
	log.Debug("debug", "ClOrdID", "A")
	log.With("ClOrdID", "B").Info("with")
	log.With("ClOrdID", "B").Warn("own goes first", "ClOrdID", "C")
	log.WithGroup("g").Error("group", slog.Group("order", "ClOrdID", 4711))
	log.With("ClOrdID", "B", "ClOrdID", "D").Log(context.Background(), slog.LevelError+4, "fatal")
	want := []event{{1, "", ""}, {2, "A", ""}, {3, "B", ""}, {4, "C", ""}, {5, "4711", ""}, {6, "D", ""}}
	got := openDrain(t, uri).take()
	if len(got) != len(want) {
		t.Fatalf("%d events: want %d", len(got), len(want))
	}
	for i := range want {
		if got[i].class != want[i].class || got[i].key != want[i].key {
			t.Errorf("event %d %q: class %d key %q, want class %d key %q", i, got[i].text, got[i].class, got[i].key,
				want[i].class, want[i].key)
		}
	}
}

func TestNew_RefusesAtTheStart(t *testing.T) {
	w := openShared(t, newRing(t, 1<<20, 0), farlog.PolicyReject)
	for _, c := range []struct {
		writer  *farlog.Shared
		options Options
		want    string
	}{
		{nil, Options{}, "writer"},
		{w, Options{Format: 9}, "format 9"},
		{w, Options{Policy: -1}, "policy -1"},
		{w, Options{Policy: PolicyBlock}, "patience 0s"},
		{w, Options{Patience: time.Second}, "patience 1s"},
	} {
		if _, err := New(c.writer, c.options); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v: want one that names %q", err, c.want)
		}
	}
}

func TestHandler_LargeEvents(t *testing.T) {
	uri := newRing(t, 16<<20, 2<<20)
	var received error
	h := newHandler(t, openShared(t, uri, farlog.PolicyReject),
		Options{Format: FormatText, OnError: func(_ context.Context, err error) { received = err }})
	large := strings.Repeat("x", 1<<20)
	slog.New(h).Info(large)
	slog.New(h).Info(large + large + large)
	if !errors.Is(received, farlog.ErrTooLarge) {
		t.Errorf("OnError received %v: want ErrTooLarge", received)
	}
	if events := openDrain(t, uri).take(); len(events) != 1 || !strings.Contains(events[0].text, large) {
		t.Errorf("%d events: want the one of 1 MiB", len(events))
	}
}

func TestHandler_TenGoroutines_EachInItsOrder(t *testing.T) {
	uri := newRing(t, 4<<20, 0)
	log := slog.New(newHandler(t, openShared(t, uri, farlog.PolicyReject), Options{
		Format:  FormatText,
		OnError: func(_ context.Context, err error) { t.Error(err) },
	}))
	var group sync.WaitGroup
	for g := range 10 {
		group.Go(func() {
			own := log.With("g", g)
			for n := 1; n <= 500; n++ {
				own.Info("event", "n", n)
			}
		})
	}
	group.Wait()
	last := make(map[int]int)
	for _, one := range openDrain(t, uri).take() {
		var g, n int
		if _, err := fmt.Sscanf(one.text[strings.Index(one.text, " g="):], " g=%d n=%d", &g, &n); err != nil ||
			n != last[g]+1 {
			t.Fatalf("%q: %v, want event %d of goroutine %d", one.text, err, last[g]+1, g)
		}
		last[g] = n
	}
	for g := range 10 {
		if last[g] != 500 {
			t.Errorf("goroutine %d: %d events, want 500", g, last[g])
		}
	}
}

type chatty struct{ log *slog.Logger }

func (c chatty) LogValue() slog.Value {
	c.log.Info("from within")
	return slog.StringValue("said")
}

func TestHandler_ValueThatLogs_IsRefusedNotDeadlocked(t *testing.T) {
	uri := newRing(t, 1<<20, 0)
	var received []error
	log := slog.New(newHandler(t, openShared(t, uri, farlog.PolicyReject),
		Options{OnError: func(_ context.Context, err error) { received = append(received, err) }}))
	log.Info("outer", "value", chatty{log})
	if len(received) != 1 || !errors.Is(received[0], ErrRecursion) {
		t.Errorf("OnError received %v: want ErrRecursion once", received)
	}
	if events := openDrain(t, uri).take(); len(events) != 1 ||
		!strings.Contains(events[0].text, `"outer","value":"said"`) {
		t.Errorf("events %v: want the outer one", events)
	}
}

func TestHandler_AllocatesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("the race detector, which runs the short tests, empties the pools")
	}
	h := newHandler(t, openShared(t, newRing(t, 16<<20, 0), farlog.PolicyReject), Options{KeyAttr: "ClOrdID"})
	log := slog.New(h).With("desk", "seven")
	count := testing.AllocsPerRun(1000, func() {
		log.LogAttrs(context.Background(), slog.LevelInfo, "new order", slog.String("ClOrdID", "ORD-1"),
			slog.Int("quantity", 100))
	})
	if count != 0 {
		t.Errorf("%v allocations an event: want 0", count)
	}
}

func BenchmarkHandler(b *testing.B) {
	for _, format := range []Format{FormatJSON, FormatText} {
		b.Run([]string{"json", "text"}[format], func(b *testing.B) {
			uri := newRing(b, 64<<20, 0)
			d := openDrain(b, uri)
			h := newHandler(b, openShared(b, uri, farlog.PolicyReject), Options{
				Format: format, KeyAttr: "ClOrdID",
				OnError: func(_ context.Context, err error) { b.Fatal(err) },
			})
			log := slog.New(h).With("desk", "seven")
			ctx := context.Background()
			b.ReportAllocs()
			count := 0
			for b.Loop() {
				if count++; count%100000 == 0 {
					b.StopTimer()
					d.take()
					b.StartTimer()
				}
				log.LogAttrs(ctx, slog.LevelInfo, "new order", slog.String("ClOrdID", "ORD-1"),
					slog.Int("quantity", 100))
			}
		})
	}
}
