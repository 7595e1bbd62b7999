package target

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/farlog/farlog/pkg/farlog"
)

// Operations that the device refused are logged when there are more than before, each stream's apart, and never again.
func TestDenials_AreLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	logger, one := slog.New(slog.NewTextHandler(&log, nil)), denials{}
	look := func(stream string, denied uint64) string {
		log.Reset()
		one.logNew(stream, "mem:/rings/"+stream, []farlog.Counter{{Name: "lost_count", Value: 9}, {
			Name: "denied_count", Value: denied,
		}}, logger)
		return log.String()
	}
	for _, c := range []struct {
		stream string
		denied uint64
		want   string
	}{
		{"a", 0, ""},
		{"a", 2, "stream=a ring=mem:/rings/a operations=2"},
		{"a", 2, ""},
		{"b", 1, "stream=b ring=mem:/rings/b operations=1"},
		{"a", 3, "stream=a ring=mem:/rings/a operations=1"},
		{"a", 0, ""}, // the ring is served again
		{"a", 1, "stream=a ring=mem:/rings/a operations=1"},
	} {
		if got := look(c.stream, c.denied); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s, %d: %q, expected %q", c.stream, c.denied, got, c.want)
		}
	}
}
