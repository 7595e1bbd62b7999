package target

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/farlog"
)

const (
	draining = api.DeletionStage_DELETION_STAGE_DRAINING
	removing = api.DeletionStage_DELETION_STAGE_REMOVING
)

// ending is a ring of a stream that is being deleted.
func ending(stage api.DeletionStage, uuid []byte) *api.RingSpec {
	spec := want("desk7/orders", 99)
	spec.Deletion, spec.RingUuid, spec.Admission = stage, uuid, &api.Admission{EpochMin: 5}
	return spec
}

func openWriter(t *testing.T, one *Target, uri string, epoch uint32) *farlog.Writer {
	t.Helper()
	writer, err := farlog.OpenWriter(uri, farlog.WriterOptions{
		Level: farlog.LevelVisible, Epoch: epoch,
		CountersDir: one.config.CountersDir, Deadline: 10 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	return writer
}

// drainAll releases all that a ring holds.
func drainAll(t *testing.T, uri string) {
	t.Helper()
	reader, err := farlog.OpenReader(uri, farlog.ReaderOptions{Drain: true})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	for buf := make([]byte, 1<<16); ; {
		batch, err := reader.Read(buf)
		if err != nil {
			return
		}
		if err := reader.Release(batch.NextLSN, batch.NextSeq, batch.LastEpoch); err != nil {
			t.Fatal(err)
		}
	}
}

// forEachHome runs a test with a ring in a file of its own, and with one in a region that it shares.
func forEachHome(t *testing.T, test func(t *testing.T, one *Target)) {
	t.Run("file", func(t *testing.T) { test(t, newTarget(t, t.TempDir())) })
	t.Run("region", func(t *testing.T) {
		one := newTarget(t, t.TempDir())
		one.config.Regions = []string{"mem:" + filepath.Join(t.TempDir(), "region") + "?size=4194304"}
		test(t, one)
	})
}

// A writer that has the ring keeps it open; when it is gone no grant from before lets anybody in again; and with
// records in it the ring stays.
func TestEnd_RingGoesWhenWritersAreOutAndAllIsStored(t *testing.T) {
	forEachHome(t, func(t *testing.T, one *Target) {
		state := see(one, want("desk7/orders", 99))[0].State
		writer := openWriter(t, one, state.Uri, 4)
		if _, err := writer.Append(farlog.Entry{Data: []byte("order")}, 0); err != nil {
			t.Fatal(err)
		}
		if got := see(one, ending(draining, state.RingUuid))[0].State; got.Closed || got.EpochMin != 5 ||
			!got.WriterHeld {
			t.Errorf("with a writer in: %v", got)
		}
		if _, err := writer.Append(farlog.Entry{Data: []byte("late")}, 0); err == nil {
			t.Error("a writer below the fence appends")
		}
		writer.Close()
		if got := see(one, ending(draining, state.RingUuid))[0].State; !got.Closed || got.LagBytes == 0 {
			t.Errorf("with a record in it: %v", got)
		}
		if _, err := farlog.OpenWriter(state.Uri, farlog.WriterOptions{
			Level: farlog.LevelVisible,
			Epoch: 4,
		}); err == nil {
			t.Error("a grant from before lets a writer in")
		}
		if got := see(one, ending(removing, state.RingUuid))[0].State; got.Removed ||
			!strings.Contains(got.Error, "not drained") {
			t.Errorf("asked to remove a ring with a record in it: %v", got)
		}
		drainAll(t, state.Uri)
		if got := see(one, ending(draining, state.RingUuid))[0].State; !got.Closed || got.LagBytes != 0 ||
			got.Removed {
			t.Errorf("drained: %v", got)
		}
		for range 2 { // the control plane may not have received it the first time
			if got := see(one, ending(removing, state.RingUuid))[0].State; !got.Removed || len(got.RingUuid) > 0 ||
				got.Error != "" {
				t.Errorf("removed: %v", got)
			}
		}
		again := want("desk7/orders", 100)
		again.Stream.StreamId = 8
		if got := see(one, again)[0].State; got.Error != "" || string(got.RingUuid) == string(state.RingUuid) ||
			got.StreamId != 8 {
			t.Errorf("a new stream of the name: %v", got)
		}
	})
}

// What a target does not know as the ring of that stream it does not remove, whatever it is asked.
func TestEnd_AnotherRingStays(t *testing.T) {
	forEachHome(t, func(t *testing.T, one *Target) {
		state := see(one, want("desk7/orders", 99))[0].State
		other := ending(removing, []byte("0123456789abcdef"))
		if got := see(one, other)[0].State; got.Removed || !strings.Contains(got.Error, "nothing is removed") {
			t.Errorf("got %v", got)
		}
		foreign := ending(removing, state.RingUuid)
		foreign.Stream.Salt = 5
		if got := see(one, foreign)[0].State; got.Removed || got.Error == "" {
			t.Errorf("got %v", got)
		}
		if _, err := farlog.Inspect(state.Uri); err != nil {
			t.Error(err)
		}
	})
}

// A ring that is missing before all of it was known to be stored is an error, also at its end; one that was never made
// is none.
func TestEnd_MissingRing(t *testing.T) {
	one := newTarget(t, t.TempDir())
	if got := see(one, ending(draining, nil))[0].State; !got.Closed || got.Removed || got.Error != "" {
		t.Errorf("never made: %v", got)
	}
	if left, _ := os.ReadDir(one.config.Dir); len(left) > 1 { // the lock
		t.Errorf("made for its end: %v", left)
	}
	if got := see(one, ending(draining, []byte("0123456789abcdef")))[0].State; got.Closed ||
		!strings.Contains(got.Error, "missing") {
		t.Errorf("lost: %v", got)
	}
}
