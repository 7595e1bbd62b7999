package main

import (
	"bytes"
	"strings"
	"testing"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// The wear of the most worn device below a stream's rings is told where a target tells it, and else that nobody does:
// by status, by top where the screen has space, and to programs as null.
func TestStatus_Wear(t *testing.T) {
	status := &api.StreamStatus{Stream: &api.Stream{Spec: &api.StreamSpec{Name: "desk7/orders"}}}
	told := &api.StreamStatus{
		Stream: status.Stream, WornTarget: "storage-1",
		Worn: &api.MediaHealth{Device: "/dev/nvme1n1", UsedRatio: 1.03, WrittenBytes: 3 << 40},
	}
	for _, c := range []struct {
		status       *api.StreamStatus
		line, column string
	}{
		{status, "  wear     -\n", "-"},
		{told, "  wear     103% of its endurance, 3.00 TiB written  /dev/nvme1n1 of storage-1\n", "103%"},
	} {
		var screen bytes.Buffer
		row := newStatusRow(c.status)
		row.render(&screen, false)
		if !strings.Contains(screen.String(), c.line) || (row.WearRatio == nil) != (c.status.Worn == nil) {
			t.Errorf("expected %q in:\n%s", c.line, screen.String())
		}
		one := &top{env: new(environment), rows: []statusRow{row}}
		wide := one.lines(screenSize{columns: 200, rows: 10}, false)
		if at := strings.Index(wide[1], "WEAR"); at < 0 || strings.TrimSpace(wide[2][at:at+4]) != c.column {
			t.Errorf("expected %q below WEAR: %q", c.column, wide)
		}
		for _, line := range one.lines(screenSize{columns: 80, rows: 10}, false) {
			if len([]rune(line)) > 80 {
				t.Errorf("longer than the screen: %q", line)
			}
		}
	}
}
