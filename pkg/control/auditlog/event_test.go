package auditlog

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// One that an earlier control plane left whole in etcd does not stand in the way of those behind it.
func TestAudit_LargeOneOfBefore(t *testing.T) {
	event := Event{ID: "1", Outcome: "OK"}
	for i := range 3000 {
		event.Changes = append(event.Changes, fmt.Sprintf("new stream desk%d", i))
	}
	raw, err := json.Marshal(event)
	if err != nil {
		t.Fatal(err)
	}
	records, isReady := recordsOf(raw, time.Now())
	var changes []string
	for _, record := range records {
		var part Event
		if err := json.Unmarshal(record, &part); err != nil || len(record) > ChangesMax*4/3 || part.ID != event.ID {
			t.Errorf("%d bytes: %v", len(record), err)
		}
		changes = append(changes, part.Changes...)
	}
	if !isReady || !slices.Equal(changes, event.Changes) {
		t.Errorf("%d records tell of %d changes, expected %d", len(records), len(changes), len(event.Changes))
	}
}

// Handlers give a nil response beside their error: nothing was deleted or replaced then, and the event must not say so.
func TestSetOutcome_RefusedChangesNothing(t *testing.T) {
	for _, response := range []proto.Message{
		(*api.DeleteStreamResponse)(nil), (*api.DeleteRouteResponse)(nil), (*api.ReplaceMemberResponse)(nil),
		(*api.RebindStreamResponse)(nil),
	} {
		event := Event{Stream: "a"}
		event.setOutcome(response, errors.New("no"))
		if event.Outcome == "OK" || event.Error == "" || len(event.Changes) > 0 {
			t.Errorf("%T: outcome %s, error %q, changes %q: expected an error and no change", response, event.Outcome,
				event.Error, event.Changes)
		}
	}
}
