package archive

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/farlog/farlog/pkg/control/pattern"
	"github.com/farlog/farlog/pkg/store"
)

const (
	// journalPrefix is below that of the archive: what was ordered of its locks, an object an order.
	journalPrefix  = "journal/"
	journalFormat  = "farlog-archive-journal"
	journalVersion = 1
	entryBytesMax  = 64 << 10

	// A hold keeps locks so far ahead: they are extended to holdAhead when less than holdRenew is left.
	holdAhead = 30 * 24 * time.Hour
	holdRenew = 15 * 24 * time.Hour
)

// Entry is one order in the journal of an archive: one of Retain, Hold and Release.
type Entry struct {
	Format         string `json:"format"`
	Version        int    `json:"version"`
	StoreUUID      string `json:"store_uuid"`
	Number         uint64 `json:"number"`          // from 1
	PreviousSHA256 string `json:"previous_sha256"` // of the entry before; "" for the first
	At             string `json:"at"`
	Who            string `json:"who"`
	Why            string `json:"why"`

	Pattern string `json:"pattern,omitempty"` // streams that Retain or Hold is of
	Retain  string `json:"retain,omitempty"`  // how long, from when a segment was put
	IsHold  bool   `json:"hold,omitempty"`    // until it is released
	From    string `json:"from,omitempty"`    // of a hold: records of this time and later; "" = from the begin on
	To      string `json:"to,omitempty"`      // of a hold: records before this time; "" = to the end
	Release uint64 `json:"release,omitempty"` // the hold that ends
}

// Journal is all that was ordered of an archive's locks, and what holds of it.
type Journal struct {
	Entries   []Entry
	last      string // SHA-256 of the last entry
	storeUUID string
}

// isJournal reports whether a name in an archive is of its journal.
func isJournal(name string) bool { return strings.HasPrefix(name, journalPrefix) }

func journalName(number uint64) string { return fmt.Sprintf("%s%010d.json", journalPrefix, number) }

// ReadJournal reads all entries: the oldest version of each counts. Errors: ErrNotAnArchive (an entry is missing, or is
// none), those of calls.
func (b *Bucket) ReadJournal(ctx context.Context) (Journal, error) {
	var j Journal
	id, err := b.identity(ctx)
	if err != nil {
		return j, err
	}
	j.storeUUID = id.StoreUUID
	list, err := b.listJournal(ctx)
	if err != nil {
		return j, err
	}
	for i, v := range list {
		number := uint64(i) + 1
		if v.Key != b.key(journalName(number)) {
			return j, fmt.Errorf("%w: journal of %s: found %s, expected %s", ErrNotAnArchive, b.Location, v.Key,
				b.key(journalName(number)))
		}
		raw, err := b.read(ctx, v, entryBytesMax)
		if err != nil {
			return j, err
		}
		if err := j.add(raw); err != nil {
			return j, fmt.Errorf("%w: journal of %s: %s: %w", ErrNotAnArchive, b.Location, v.Key, err)
		}
	}
	return j, nil
}

// listJournal gives the version of each entry that counts.
func (b *Bucket) listJournal(ctx context.Context) (list []Version, err error) {
	err = b.list(ctx, b.key(journalPrefix), func(v Version) error {
		if !v.IsMarker && (len(list) == 0 || list[len(list)-1].Key != v.Key) {
			list = append(list, v)
		}
		return nil
	})
	return list, err
}

// add takes the next entry.
func (j *Journal) add(raw []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	var e Entry
	if err := decoder.Decode(&e); err != nil {
		return err
	}
	switch {
	case e.Format != journalFormat || e.Version != journalVersion:
		return fmt.Errorf("format %q version %d, expected %q version %d", e.Format, e.Version, journalFormat,
			journalVersion)
	case e.StoreUUID != j.storeUUID:
		return fmt.Errorf("of store %s, expected %s", e.StoreUUID, j.storeUUID)
	case e.Number != uint64(len(j.Entries))+1 || e.PreviousSHA256 != j.last:
		return fmt.Errorf("entry %d behind one with SHA-256 %q, expected %d behind %q", e.Number, e.PreviousSHA256,
			len(j.Entries)+1, j.last)
	}
	if err := j.check(e); err != nil {
		return err
	}
	digest := sha256.Sum256(raw)
	j.Entries, j.last = append(j.Entries, e), hex.EncodeToString(digest[:])
	return nil
}

// check reports what is wrong with an order. Errors: ErrInvalid.
func (j Journal) check(e Entry) error {
	kinds := 0
	for _, isKind := range []bool{e.Retain != "", e.IsHold, e.Release != 0} {
		if isKind {
			kinds++
		}
	}
	from, to, err := e.bounds()
	switch {
	case kinds != 1:
		return fmt.Errorf("%w: order of %d kinds, expected retention, a hold, or the end of one", ErrInvalid, kinds)
	case e.Who == "" || e.Why == "":
		return fmt.Errorf("%w: by %q because of %q: expected who and why", ErrInvalid, e.Who, e.Why)
	case err != nil:
		return err
	case e.Release != 0:
		return j.checkRelease(e)
	case pattern.Check(e.Pattern) != nil:
		return fmt.Errorf("%w: %w", ErrInvalid, pattern.Check(e.Pattern))
	case !e.IsHold && (e.From != "" || e.To != ""):
		return fmt.Errorf("%w: retention from %q to %q: times are of a hold", ErrInvalid, e.From, e.To)
	case !from.IsZero() && !to.IsZero() && !from.Before(to):
		return fmt.Errorf("%w: hold from %s to %s: expected the first to be earlier", ErrInvalid, e.From, e.To)
	}
	if e.IsHold {
		return nil
	}
	_, err = ParsePeriod(e.Retain)
	return err
}

func (j Journal) checkRelease(e Entry) error {
	for _, hold := range j.Holds() {
		if hold.Number == e.Release && e.Pattern == "" && e.From == "" && e.To == "" {
			return nil
		}
	}
	return fmt.Errorf("%w: hold %d: there is none, or it has ended: farlog archive hold list names them", ErrInvalid,
		e.Release)
}

// checkLonger refuses a period that is shorter than that of the same pattern. It is for new orders alone: whether a
// year is longer than 365 days depends on the day.
func (j Journal) checkLonger(e Entry, now time.Time) error {
	if e.Retain == "" {
		return nil
	}
	period, err := ParsePeriod(e.Retain)
	if err != nil {
		return err
	}
	for _, before := range j.Entries {
		was, _ := ParsePeriod(before.Retain)
		if before.Retain != "" && before.Pattern == e.Pattern && period.After(now).Before(was.After(now)) {
			return fmt.Errorf("%w: retention of %s for %s: it is %s since %s, and can be extended only", ErrInvalid,
				e.Pattern, e.Retain, before.Retain, before.At)
		}
	}
	return nil
}

// bounds of a hold; zero = none.
func (e Entry) bounds() (from, to time.Time, err error) {
	for _, one := range []struct {
		text string
		at   *time.Time
	}{{e.From, &from}, {e.To, &to}} {
		if one.text == "" {
			continue
		}
		if *one.at, err = time.Parse(time.RFC3339Nano, one.text); err != nil {
			return from, to, fmt.Errorf("%w: time %q: expected one such as 2026-11-20T14:30:00Z", ErrInvalid, one.text)
		}
	}
	return from, to, nil
}

// Holds are those that were not released.
func (j Journal) Holds() (list []Entry) {
	released := map[uint64]bool{}
	for _, e := range j.Entries {
		released[e.Release] = true
	}
	for _, e := range j.Entries {
		if e.IsHold && !released[e.Number] {
			list = append(list, e)
		}
	}
	return list
}

// Order adds an order to the journal, locked and read back. Who adds one at the same time gets ErrConflict, one of the
// two. Errors: ErrInvalid, ErrConflict, those of ReadJournal and put.
func (b *Bucket) Order(ctx context.Context, e Entry) (Entry, error) {
	j, err := b.ReadJournal(ctx)
	if err != nil {
		return e, err
	}
	now := time.Now().UTC()
	e.Format, e.Version, e.StoreUUID = journalFormat, journalVersion, j.storeUUID
	e.Number, e.PreviousSHA256, e.At = uint64(len(j.Entries))+1, j.last, now.Format(time.RFC3339Nano)
	if err := errors.Join(j.check(e), j.checkLonger(e, now)); err != nil {
		return e, err
	}
	raw, err := json.Marshal(e)
	if err != nil {
		return e, err
	}
	o, err := newObject(b.key(journalName(e.Number)), bytes.NewReader(raw), int64(len(raw)), nil)
	if err != nil {
		return e, err
	}
	v, err := b.put(ctx, o, now.Add(holdAhead).Truncate(time.Second)) // Extend locks it as long as the segments
	if err != nil {
		return e, err
	}
	there, err := b.versions(ctx, o.key)
	if err == nil && (len(there) == 0 || there[0].ID != v.ID) {
		err = fmt.Errorf("%w: entry %s of the journal was written by two at the same time: look at what is ordered, "+
			"and order again", ErrConflict, strconv.FormatUint(e.Number, 10))
	}
	return e, err
}

// covered is what an order has to know of a segment.
type covered struct {
	stream      string
	putAt       time.Time
	first, last time.Time // of its records
}

func coveredBy(m store.Manifest, putAt time.Time) covered {
	return covered{
		m.Stream, putAt, time.Unix(0, int64(m.MinTimestampNS)), time.Unix(0, int64(m.MaxTimestampNS)),
	}
}

// isHeld reports whether a hold keeps a segment.
func (e Entry) isHeld(s covered) bool {
	from, to, err := e.bounds()
	return err == nil && pattern.Covers([]string{e.Pattern}, s.stream) && (from.IsZero() || !s.last.Before(from)) &&
		(to.IsZero() || s.first.Before(to))
}

// required is until when a segment has to be locked at least, and to when its lock is extended if it is not. Zero: no
// order is of it. margin is how much of a hold's time has to be left.
func (j Journal) required(s covered, now time.Time, margin time.Duration) (least, extended time.Time) {
	for _, e := range j.Entries {
		if e.Retain == "" || !pattern.Covers([]string{e.Pattern}, s.stream) {
			continue
		}
		period, _ := ParsePeriod(e.Retain) // it was checked
		least = maxTime(least, period.After(s.putAt))
	}
	extended = least
	for _, hold := range j.Holds() {
		if hold.isHeld(s) {
			least = maxTime(least, now.Add(margin))
			extended = maxTime(extended, now.Add(holdAhead).Truncate(time.Second))
		}
	}
	return least, extended
}
