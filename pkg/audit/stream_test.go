package audit

import (
	"errors"
	"testing"

	"github.com/farlog/farlog/pkg/audit/fixlog"
	"github.com/farlog/farlog/pkg/store"
	"github.com/farlog/farlog/pkg/store/storetest"
)

// fillStore stores the messages as a drain does and returns the store.
func fillStore(t testing.TB, messages []fixlog.Entry) *store.Store {
	t.Helper()
	opened, err := store.Open(t.TempDir(), store.Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	ring := storetest.NewRing("desk7/orders", 1)
	for _, entry := range messages {
		ring.AppendPayload(entry.Message)
	}
	appender, err := opened.OpenStream(ring.Source)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := appender.Append(storetest.Batch(ring.Records)); err != nil {
		t.Fatal(err)
	}
	if err := appender.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := appender.Close(); err != nil {
		t.Fatal(err)
	}
	return opened
}

// The lives read from a store are those of the recording: same messages, same quantities, no anomaly.
func TestStreamSource_LivesAreThoseOfTheRecording(t *testing.T) {
	excerpt := loadExcerpt(t)
	stored := StreamSource(fillStore(t, excerpt), "desk7/orders", nil)
	for _, life := range excerpts {
		want, err := FindOrder(sourceOf(excerpt), life.key)
		if err != nil {
			t.Fatal(err)
		}
		got, err := FindOrder(stored, life.key)
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Anomalies) > 0 || len(got.Steps) != len(want.Steps) || got.Status != want.Status ||
			got.CumQty != want.CumQty {
			t.Errorf("%s: %d steps, %s, %v, anomalies %v; expected %d, %s, %v", life.name, len(got.Steps), got.Status,
				got.CumQty,
				got.Anomalies, len(want.Steps), want.Status, want.CumQty)
		}
	}
}

func TestStreamSource_UnknownStream(t *testing.T) {
	stored := fillStore(t, loadExcerpt(t))
	if _, err := FindOrder(StreamSource(stored, "desk8/orders", nil), spoiledKey); !errors.Is(err, store.ErrNotFound) {
		t.Fatalf("got %v, expected store.ErrNotFound", err)
	}
}
