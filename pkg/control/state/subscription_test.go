package state

import (
	"fmt"
	"testing"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// A stream that was forgotten among those that changed is not claimed to be known.
func TestChanges_ForgetWhatIsGone(t *testing.T) {
	v, c := NewView(), changes{since: 10, at: map[string]int64{}}
	streams := map[string]bool{}
	for i := range endedMost + 1 {
		streams[fmt.Sprintf("s%d", i)] = true
	}
	v.Revision, v.Streams["s7"] = 12, new(api.Stream)
	if c.note(v, streams); len(c.at) != 1 || c.at["s7"] != 12 || c.since != 12 {
		t.Errorf("%d known since %d", len(c.at), c.since)
	}
}
