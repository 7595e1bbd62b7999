package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/store"
	"github.com/farlog/farlog/pkg/store/storetest"
)

// Records have times from 1970 to 2262: a time before or behind them is none of another record.
func TestReplay_TimesBeforeAndBehindAllRecords(t *testing.T) {
	dir, _ := storeOrders(t, 30)
	if _, talk, code := runFarlog(t, "merge", dir, "--final"); code != exitOK {
		t.Fatal(talk)
	}
	for _, c := range []struct {
		arguments []string
		want      int
	}{
		{[]string{"--from", "1650-01-01T00:00:00Z"}, 30},
		{[]string{"--from", "0001-01-01T00:00:00Z"}, 30},
		{[]string{"--from", "1960-01-01T00:00:00Z", "--to", "2600-01-01T00:00:00Z"}, 30},
		{[]string{"--to", "9999-12-31T23:59:59Z"}, 30},
		{[]string{"--to", "1650-01-01T00:00:00Z"}, 0},
		{[]string{"--to", "0001-01-01T00:00:00Z"}, 0},
		{[]string{"--from", "2300-01-01T00:00:00Z"}, 0},
		{[]string{"--from", "9999-12-31T23:59:59Z"}, 0},
	} {
		for _, which := range [][]string{{"--stream", "desk7/orders"}, {"--merged"}} {
			arguments := append(append([]string{"replay", dir, "--speed", "max"}, which...), c.arguments...)
			text, talk, code := runFarlog(t, arguments...)
			if got := strings.Count(text, "\n"); code != exitOK || got != c.want {
				t.Errorf("%v: exit code %d, %d records, expected %d: %s", arguments, code, got, c.want, talk)
			}
		}
	}
}

// A clock that went ahead and back hides no record of the time asked for: here the first segment has the records of
// 14:00, and all behind it are of 11:00.
func TestReplay_ClockThatWentBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	opened, err := store.Open(dir, store.Options{Create: true, SegmentBytes: 16 << 10})
	if err != nil {
		t.Fatal(err)
	}
	ring := storetest.NewRing("desk7/orders", 1)
	for _, span := range []struct{ hour, count int }{{10, 40}, {14, 40}, {11, 400}} {
		ring.SetClock(time.Date(2026, 11, 20, span.hour, 0, 0, 0, time.UTC))
		for range span.count {
			ring.AppendPayload(fmt.Appendf(nil, "of %d", span.hour))
		}
	}
	appender, err := opened.OpenStream(ring.Source)
	if err != nil {
		t.Fatal(err)
	}
	appendAll(t, appender, ring.Records)
	if err := appender.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ from, to, want string }{
		{"13", "23", strings.Repeat("of 14\n", 40)},
		{"11", "13", strings.Repeat("of 11\n", 400)},
		{"11", "23", strings.Repeat("of 14\n", 40) + strings.Repeat("of 11\n", 400)},
		{"09", "11", strings.Repeat("of 10\n", 40)},
	} {
		text, talk, code := runFarlog(t, "replay", dir, "--stream", "desk7/orders", "--speed", "max", "--from",
			"2026-11-20T"+c.from+":00:00Z", "--to", "2026-11-20T"+c.to+":00:00Z")
		if code != exitOK || text != c.want {
			t.Errorf("from %s to %s: exit code %d, %d records, expected %d: %s", c.from, c.to, code,
				strings.Count(text, "\n"), strings.Count(c.want, "\n"), talk)
		}
	}
}
