package target

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/farlog"
)

// Operations that the device refused are logged when there are more than before, each stream's apart, and never again;
// the ring warns of them for ten minutes.
func TestDenials_AreLoggedOnceAndShown(t *testing.T) {
	var log bytes.Buffer
	logger, found, now := slog.New(slog.NewTextHandler(&log, nil)), denials{}, time.Unix(1000, 0)
	for i, look := range []struct {
		stream  string
		count   uint64
		after   time.Duration
		want    string // in the log
		isShown bool
	}{
		{"a", 0, 0, "", false},
		{"a", 2, 0, "stream=a ring=mem:/rings/a operations=2", true},
		{"a", 2, time.Minute, "", true},
		{"b", 1, 0, "stream=b ring=mem:/rings/b operations=1", true},
		{"a", 3, time.Minute, "stream=a ring=mem:/rings/a operations=1", true},
		{"a", 3, deniedShown, "", true},
		{"a", 3, time.Second, "", false},
		{"a", 0, 0, "", false}, // the ring is served again
		{"a", 1, 0, "stream=a ring=mem:/rings/a operations=1", true},
	} {
		log.Reset()
		now = now.Add(look.after)
		state := &api.RingState{Stream: look.stream, Uri: "mem:/rings/" + look.stream}
		counters := []farlog.Counter{{Name: "lost_count", Value: 9}, {Name: "denied_count", Value: look.count}}
		found.describe(state, counters, logger, now)
		if got := log.String(); (got == "") != (look.want == "") || !strings.Contains(got, look.want) {
			t.Errorf("look %d: logged %q, expected %q", i, got, look.want)
		}
		if isShown := state.Warning != ""; isShown != look.isShown {
			t.Errorf("look %d: shown: %v, expected %v", i, isShown, look.isShown)
		}
	}
}
