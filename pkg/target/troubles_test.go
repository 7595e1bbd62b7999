package target

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	api "github.com/farlog/farlog/pkg/api/v1"
)

func TestTroubles_LogEachReasonOnce(t *testing.T) {
	var log bytes.Buffer
	logger, now := slog.New(slog.NewTextHandler(&log, nil)), time.Unix(1000, 0)
	var found troubles
	for _, look := range []struct {
		text  string
		after time.Duration
		want  string // "" = nothing is logged
	}{
		{"", 0, ""},
		{"a page of it cannot be read", 0, "a page of it cannot be read"},
		{"a page of it cannot be read", time.Hour, ""},
		{"ring is missing", time.Hour, "ring is missing"},
		{"ring is another one", time.Second, ""}, // and a minute later
		{"ring is another one", time.Minute, "ring is another one"},
		{"", time.Second, "can be used again"},
		{"", time.Second, ""},
	} {
		log.Reset()
		now = now.Add(look.after)
		found.logNew(&api.RingState{Stream: "desk7/orders", Uri: "mem:/r", Error: look.text}, logger, now)
		if got := log.String(); (got == "") != (look.want == "") || !strings.Contains(got, look.want) {
			t.Errorf("%q: logged %q, expected %q", look.text, got, look.want)
		}
	}
}
