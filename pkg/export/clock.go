package export

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/farlog/farlog/pkg/query"
	"github.com/farlog/farlog/pkg/record"
)

const timeForm = "2006-01-02T15:04:05.000000000Z"

func timeText(at time.Time) string { return at.UTC().Format(timeForm) }

// clockBounds are the upper ends of the classes of clock_err_ns, in nanoseconds; one class is above them.
var clockBounds = []uint32{1_000, 10_000, 100_000, 1_000_000, 10_000_000}

// clockColumns are those of clock.csv, and what a profile may name behind "clock.".
var clockColumns = []string{
	"stream", "generation", "epoch", "day", "records", "first", "last", "unknown", "min_ns", "max_ns", "to_1us",
	"to_10us", "to_100us", "to_1ms", "to_10ms", "above_10ms",
}

// clockKey is what the clock evidence has a line of. An epoch is one turn of one writer, on one host, which records do
// not name.
type clockKey struct {
	stream     string
	generation uint64
	epoch      uint32
	day        string
}

type clockDay struct {
	records, unknown uint64
	first, last      uint64
	low, high        uint32
	classes          [6]uint64
}

// clockEvidence says how wrong the times of records may be, and where clocks changed.
type clockEvidence struct {
	days   map[clockKey]*clockDay
	rows   *table // clock.csv
	events *table // clock-events.csv
	last   *query.Row
}

func (d *derivation) openClock(to outputs) (c *clockEvidence, err error) {
	c = &clockEvidence{days: map[clockKey]*clockDay{}}
	if c.rows, err = d.table(to, clockFile, clockColumns...); err != nil {
		return nil, err
	}
	c.events, err = d.table(to, clockEventsFile, "stream", "generation", "epoch", "lsn", "time", "event", "detail")
	return c, err
}

func (c *clockEvidence) observe(row *query.Row) error {
	key := clockKey{row.Stream, row.Generation, row.Epoch, row.Time().Format(time.DateOnly)}
	day := c.days[key]
	if day == nil {
		day = &clockDay{first: row.TimestampNS, low: record.ClockErrUnknown}
		c.days[key] = day
	}
	day.add(row)
	if err := c.compare(row); err != nil {
		return err
	}
	if c.last == nil {
		c.last = &query.Row{}
	}
	c.last.Stream, c.last.Generation, c.last.Header = row.Stream, row.Generation, row.Header
	return nil
}

func (d *clockDay) add(row *query.Row) {
	d.records++
	d.first, d.last = min(d.first, row.TimestampNS), max(d.last, row.TimestampNS)
	if row.ClockErrNS == record.ClockErrUnknown {
		d.unknown++
		return
	}
	d.low, d.high = min(d.low, row.ClockErrNS), max(d.high, row.ClockErrNS)
	class, _ := slices.BinarySearch(clockBounds, row.ClockErrNS)
	d.classes[class]++
}

// compare writes what changed since the record before.
func (c *clockEvidence) compare(row *query.Row) error {
	event := func(name string, detail any) error {
		return c.events.write(row.Stream, row.Generation, row.Epoch, row.LSN, timeText(row.Time()), name, detail)
	}
	before := c.last
	if before == nil || before.Stream != row.Stream || before.Generation != row.Generation ||
		before.Epoch != row.Epoch {
		return event("writer", "clock_err_ns="+clockErrText(row.ClockErrNS))
	}
	wasUnknown, isUnknown := before.ClockErrNS == record.ClockErrUnknown, row.ClockErrNS == record.ClockErrUnknown
	if row.TimestampNS < before.TimestampNS {
		if err := event("back", fmt.Sprintf("ns=%d", before.TimestampNS-row.TimestampNS)); err != nil {
			return err
		}
	}
	switch {
	case isUnknown && !wasUnknown:
		return event("lost", "clock_err_ns was "+clockErrText(before.ClockErrNS))
	case wasUnknown && !isUnknown:
		return event("found", "clock_err_ns="+clockErrText(row.ClockErrNS))
	}
	return nil
}

func clockErrText(ns uint32) string {
	if ns == record.ClockErrUnknown {
		return "unknown"
	}
	return fmt.Sprint(ns)
}

// end writes the lines, and those of a report that has them as rows.
func (c *clockEvidence) end(r *report) error {
	keys := make([]clockKey, 0, len(c.days))
	for key := range c.days {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b clockKey) int {
		return cmp.Or(cmp.Compare(a.stream, b.stream), cmp.Compare(a.generation, b.generation),
			cmp.Compare(a.epoch, b.epoch), cmp.Compare(a.day, b.day))
	})
	for _, key := range keys {
		values := c.days[key].values(key)
		if err := c.rows.write(values...); err != nil {
			return err
		}
		if r == nil || r.mapping.Rows != rowsClock {
			continue
		}
		if err := r.clock(values); err != nil {
			return err
		}
	}
	return nil
}

// values are those of clockColumns.
func (d *clockDay) values(key clockKey) []any {
	low, high := any(""), any("") // no bound is known
	if d.unknown < d.records {
		low, high = d.low, d.high
	}
	at := func(ns uint64) string { return timeText(time.Unix(0, int64(ns))) }
	values := []any{
		key.stream, key.generation, key.epoch, key.day, d.records, at(d.first), at(d.last), d.unknown, low, high,
	}
	for _, count := range d.classes {
		values = append(values, count)
	}
	return values
}
