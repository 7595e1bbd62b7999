package state

import (
	"fmt"
	"strings"
	"testing"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// What a history no longer knows, it does not claim to know.
func TestHistory_ForgetsWhatIsGone(t *testing.T) {
	v, h := NewView(), newHistory()
	h.begin(10)
	for i := range endedMost + 1 {
		h.note(int64(11+i), subject{changedRoute, fmt.Sprintf("r%d", i)})
	}
	if names, isKnown := h.ChangedSince(changedRoute, 10, 12); !isKnown || strings.Join(names, " ") != "r0 r1" {
		t.Errorf("got %v, %v", names, isKnown)
	}
	v.Revision, v.Routes["r7"] = 9000, new(api.Route)
	h.shorten(v)
	if _, isKnown := h.ChangedSince(changedRoute, 8999, 9000); isKnown || h.Revision(changedRoute, "r7") == 0 ||
		h.Revision(changedRoute, "r8") != 0 {
		t.Error("it knows of what it has forgotten, or forgot what is there")
	}
}
