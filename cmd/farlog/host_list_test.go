package main

import (
	"strings"
	"testing"
	"time"
)

// A host that does not report any more is marked; one whose last report another control plane has may be some minutes
// old.
func TestHostRow_Silent(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for age, want := range map[time.Duration]string{0: "", 5 * time.Minute: "", 13 * time.Minute: ", silent 13m"} {
		row := hostRow{Reported: now.Add(-age)}
		if got := strings.TrimPrefix(row.reportedText(now), row.Reported.Format(time.RFC3339)); got != want {
			t.Errorf("%s: %q, expected %q", age, got, want)
		}
	}
}
