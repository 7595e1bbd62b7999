package auditlog

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"
)

// One that an earlier control plane left whole in etcd does not stand in the way of those behind it.
func TestActs_LargeOneOfBefore(t *testing.T) {
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
