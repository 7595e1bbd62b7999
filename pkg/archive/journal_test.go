package archive

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/internal/s3test"
	"github.com/farlog/farlog/pkg/store"
)

// order gives one that must be accepted.
func (s *site) order(e Entry) Entry {
	s.Helper()
	e.Who, e.Why = "J. Doe", "inquiry 2026-17"
	given, err := s.bucket.Order(s.Context(), e)
	s.must(err)
	return given
}

// locks are the ends of the locks of the committed segments, and the earliest one of what they are read by.
func (s *site) locks() (segments map[uint64]time.Time, shared time.Time) {
	s.Helper()
	view, err := NewView(s.Context(), s.bucket)
	s.must(err)
	segments = map[uint64]time.Time{}
	for name := range view.lists {
		_, number, suffix, isOurs := store.FileName(name)
		v, err := s.bucket.head(s.Context(), s.bucket.key(name), view.oldest(name).ID)
		s.must(err)
		switch {
		case isOurs && suffix != ".base":
			if was := segments[number]; was.IsZero() || v.RetainUntil.Before(was) {
				segments[number] = v.RetainUntil
			}
		case shared.IsZero() || v.RetainUntil.Before(shared):
			shared = v.RetainUntil
		}
	}
	return segments, shared
}

// failures are those of the archive.
func (s *site) failures() string {
	s.Helper()
	report, err := Verify(s.Context(), s.bucket, VerifyOptions{})
	s.must(err)
	return strings.Join(report.Failures, "; ")
}

// TestExtend_LocksForAPeriod: what is archived and what comes later, with all that it is read by.
func TestExtend_LocksForAPeriod(t *testing.T) {
	s := newSite(t)
	s.must(s.uploader().Once(t.Context()))
	begin := time.Now()
	s.order(Entry{Pattern: "desk8/**", Retain: "30y"})
	s.order(Entry{Pattern: "desk7/**", Retain: "6y"})
	s.order(Entry{Pattern: stream, Retain: "7y"})
	if text := s.failures(); !strings.Contains(text, "the journal orders until") {
		t.Errorf("verify found %q before the locks were extended", text)
	}
	done, err := Extend(t.Context(), s.bucket)
	s.must(err)
	if all := s.sealed(); done.Segments != all || done.Ordered != all || done.Extended != all {
		t.Errorf("extended %+v of %d segments", done, all)
	}
	s.fill(60)
	u := s.uploader()
	// Not now: segments are locked as ordered when they are put.
	u.extendedAt, u.sharedUntil = time.Now(), time.Now().AddDate(100, 0, 0)
	s.must(u.Once(t.Context()))
	if r := s.verify(s.sealed()); r.Orders != 3 {
		t.Errorf("archive is %+v, expected 3 orders", r)
	}
	segments, shared := s.locks()
	for number, until := range segments {
		// The first ones count from when they were put, which was before; new ones must be locked when they are put.
		if until.Before(begin.AddDate(7, 0, -1)) || until.After(begin.AddDate(7, 0, 1)) || shared.Before(until) {
			t.Errorf("segment %d is locked until %s, and what it is read by until %s", number, until, shared)
		}
	}
	if done, err := Extend(t.Context(), s.bucket); err != nil || done.Extended != 0 {
		t.Errorf("extended %+v again, %v", done, err)
	}
}

// TestExtend_ComesWithTheFirstSegment that an order locks longer than what it is read by.
func TestExtend_ComesWithTheFirstSegment(t *testing.T) {
	s := newSite(t)
	s.must(s.uploader().Once(t.Context()))
	s.order(Entry{Pattern: stream, Retain: "7y"})
	s.fill(60)
	u := s.uploader()
	u.extendedAt = time.Now()
	s.must(u.Once(t.Context()))
	s.verify(s.sealed())
}

// TestExtend_HoldsATimeRange: the segments with a record of it, and no others; a release shortens nothing.
func TestExtend_HoldsATimeRange(t *testing.T) {
	s := newSite(t)
	s.must(s.uploader().Once(t.Context()))
	first, _, err := s.store.ReadManifest(stream, 1)
	s.must(err)
	to := time.Unix(0, int64(first.MaxTimestampNS)+1).UTC().Format(time.RFC3339Nano)
	hold := s.order(Entry{Pattern: "desk7/*", IsHold: true, To: to})
	done, err := Extend(t.Context(), s.bucket)
	s.must(err)
	if done.Ordered != 1 || done.Extended != 1 || s.sealed() < 2 {
		t.Errorf("extended %+v of %d segments, expected the first", done, s.sealed())
	}
	s.verify(s.sealed())
	segments, shared := s.locks()
	for number, until := range segments {
		isHeld := until.After(time.Now().Add(holdAhead - time.Hour))
		if isHeld != (number == 1) || shared.Before(until) {
			t.Errorf("segment %d is locked until %s, and what it is read by until %s", number, until, shared)
		}
	}
	s.order(Entry{Release: hold.Number})
	if done, err := Extend(t.Context(), s.bucket); err != nil || done.Ordered != 0 {
		t.Errorf("extended %+v, %v, expected no order of a segment", done, err)
	}
	if after, _ := s.locks(); !after[1].Equal(segments[1]) {
		t.Errorf("segment 1 is locked until %s after the hold, was %s", after[1], segments[1])
	}
}

// TestJournal_RequiresHoldsAheadOfNow: a hold goes on, however long ago it was ordered.
func TestJournal_RequiresHoldsAheadOfNow(t *testing.T) {
	at := func(day int) time.Time { return time.Date(2026, 3, day, 0, 0, 0, 0, time.UTC) }
	segment := covered{stream: stream, putAt: at(1), first: at(10), last: at(12)}
	text := func(day int) string { return at(day).Format(time.RFC3339) }
	now := at(1).AddDate(20, 0, 0)
	for what, one := range map[string]struct {
		entry  Entry
		isHeld bool
	}{
		"all":                 {Entry{Pattern: "desk7/**"}, true},
		"another stream":      {Entry{Pattern: "desk8/**"}, false},
		"begins at its end":   {Entry{Pattern: "*", From: text(12)}, true},
		"begins behind it":    {Entry{Pattern: "*", From: text(13)}, false},
		"ends at its begin":   {Entry{Pattern: "*", To: text(10)}, false},
		"ends behind that":    {Entry{Pattern: "*", To: text(11)}, true},
		"inside":              {Entry{Pattern: "*", From: text(11), To: text(12)}, true},
		"both before":         {Entry{Pattern: "*", From: text(8), To: text(9)}, false},
		"of no records known": {Entry{Pattern: "*", From: text(9), To: text(20)}, true},
	} {
		one.entry.IsHold, one.entry.Number = true, 1
		j := Journal{Entries: []Entry{{Number: 2, Pattern: "*", Retain: "1y"}, one.entry}}
		least, extended := j.required(segment, now, holdRenew)
		if isHeld := least.Equal(now.Add(holdRenew)) && extended.Equal(now.Add(holdAhead)); isHeld != one.isHeld {
			t.Errorf("%s: locked at least until %s, extended to %s", what, least, extended)
		}
		if !one.isHeld && !least.Equal(segment.putAt.AddDate(1, 0, 0)) {
			t.Errorf("%s: locked at least until %s, expected a year", what, least)
		}
	}
}

func TestOrder_RefusesWhatIsNone(t *testing.T) {
	s := newSite(t)
	if _, err := s.bucket.Order(t.Context(), Entry{Pattern: "*", IsHold: true, Who: "a", Why: "b"}); !errors.Is(err,
		ErrNotFound) {
		t.Errorf("no archive: error %v", err)
	}
	s.must(s.uploader().Once(t.Context()))
	hold := s.order(Entry{Pattern: "desk7/**", IsHold: true})
	s.order(Entry{Pattern: "desk7/**", Retain: "6y"})
	s.order(Entry{Release: hold.Number})
	for what, e := range map[string]Entry{
		"nothing":             {Pattern: "*"},
		"two kinds":           {Pattern: "*", IsHold: true, Retain: "6y"},
		"shorter":             {Pattern: "desk7/**", Retain: "5y"},
		"no period":           {Pattern: "*", Retain: "long"},
		"no pattern":          {Retain: "6y"},
		"bad pattern":         {Pattern: "desk7/[", IsHold: true},
		"bad time":            {Pattern: "*", IsHold: true, From: "yesterday"},
		"nothing between":     {Pattern: "*", IsHold: true, From: "2026-03-02T00:00:00Z", To: "2026-03-01T00:00:00Z"},
		"times of retention":  {Pattern: "*", Retain: "6y", From: "2026-03-02T00:00:00Z"},
		"no such hold":        {Release: 77},
		"no hold":             {Release: 2},
		"hold that has ended": {Release: hold.Number},
		"end with a pattern":  {Release: hold.Number, Pattern: "*"},
	} {
		e.Who, e.Why = "J. Doe", "inquiry"
		if _, err := s.bucket.Order(t.Context(), e); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: error %v", what, err)
		}
	}
	for _, e := range []Entry{{Who: "J. Doe"}, {Why: "inquiry"}} {
		e.Pattern, e.IsHold = "*", true
		if _, err := s.bucket.Order(t.Context(), e); !errors.Is(err, ErrInvalid) {
			t.Errorf("by %q, %q: error %v", e.Who, e.Why, err)
		}
	}
	if j, err := s.bucket.ReadJournal(t.Context()); err != nil || len(j.Entries) != 3 || len(j.Holds()) != 0 {
		t.Errorf("journal is %+v, %v", j, err)
	}
}

// TestOrder_TwoAtOnce: each of those that were accepted is in the journal, and no others.
func TestOrder_TwoAtOnce(t *testing.T) {
	s := newSite(t)
	s.must(s.uploader().Once(t.Context()))
	var running sync.WaitGroup
	errs := make([]error, 6)
	for i := range errs {
		running.Go(func() {
			order := Entry{Pattern: "*", IsHold: true, Who: "a", Why: string(rune('a' + i))}
			_, errs[i] = s.bucket.Order(t.Context(), order)
		})
	}
	running.Wait()
	j, err := s.bucket.ReadJournal(t.Context())
	s.must(err)
	accepted := map[string]bool{}
	for i, err := range errs {
		accepted[string(rune('a'+i))] = err == nil
		if err != nil && !errors.Is(err, ErrConflict) {
			t.Errorf("error %v", err)
		}
	}
	for _, e := range j.Entries {
		if !accepted[e.Why] {
			t.Errorf("%+v was refused and is in the journal", e)
		}
		delete(accepted, e.Why)
	}
	for why, isAccepted := range accepted {
		if isAccepted {
			t.Errorf("%q was accepted and is not in the journal", why)
		}
	}
}

// TestExtend_Interrupted: from a call on nothing reaches the storage, or its answer is lost, as when the
// process is killed. No segment is locked longer than what it is read by, and the next run ends it.
func TestExtend_Interrupted(t *testing.T) {
	s := newSite(t)
	run := func(prefix string) int {
		s.claimed(prefix)
		s.must(s.uploader().Once(t.Context()))
		s.faults.Plan(nil)
		s.order(Entry{Pattern: "desk7/**", Retain: "6y"})
		orders := s.faults.Calls()
		_, err := Extend(t.Context(), s.bucket)
		s.must(err)
		return orders
	}
	orders := run("whole")
	calls, step := s.faults.Calls(), 3
	if testing.Short() {
		step = 1 + calls/6
	}
	for _, fault := range []s3test.Fault{s3test.LostCall, s3test.LostAnswer} {
		for failing := orders + 1 + int(fault)%step; failing <= calls; failing += step {
			s.claimed(s.bucket.Prefix + "x")
			s.must(s.uploader().Once(t.Context()))
			s.faults.Plan(func(call int, _ *http.Request) s3test.Fault {
				if call == failing {
					return fault
				}
				if call > failing {
					return s3test.LostCall
				}
				return s3test.None
			})
			s.order(Entry{Pattern: "desk7/**", Retain: "6y"})
			if _, err := Extend(t.Context(), s.bucket); !isUncertain(err) {
				t.Fatalf("call %d: error %v, expected no answer", failing, err)
			}
			s.faults.Plan(nil)
			segments, shared := s.locks()
			for number, until := range segments {
				if shared.Before(until) {
					t.Errorf("call %d: segment %d is locked until %s, what it is read by until %s", failing, number,
						until, shared)
				}
			}
			_, err := Extend(t.Context(), s.bucket)
			s.must(err)
			s.verify(s.sealed())
		}
	}
	t.Logf("%d calls", calls-orders)
}

// TestOrder_InterruptedAtEachCall: the journal is whole, with the order or without it, and takes the next one.
func TestOrder_InterruptedAtEachCall(t *testing.T) {
	s := newSite(t)
	s.must(s.uploader().Once(t.Context()))
	s.faults.Plan(nil)
	s.order(Entry{Pattern: "desk7/**", Retain: "6y"})
	calls, given := s.faults.Calls(), 1
	for _, fault := range []s3test.Fault{s3test.LostCall, s3test.LostAnswer} {
		for failing := 1; failing <= calls; failing += 1 + calls/8 {
			s.faults.Plan(func(call int, _ *http.Request) s3test.Fault {
				if call == failing {
					return fault
				}
				return s3test.None
			})
			_, err := s.bucket.Order(t.Context(), Entry{Pattern: "*", IsHold: true, Who: "a", Why: "b"})
			s.faults.Plan(nil)
			j, readErr := s.bucket.ReadJournal(t.Context())
			s.must(readErr)
			if n := len(j.Entries); err == nil && n != given+1 || n > given+1 || err != nil && !isUncertain(err) {
				t.Fatalf("call %d: error %v, %d orders, were %d", failing, err, n, given)
			}
			given = len(j.Entries)
		}
	}
	s.order(Entry{Pattern: "desk7/**", Retain: "7y"})
	_, err := Extend(t.Context(), s.bucket)
	s.must(err)
	s.verify(s.sealed())
}

// TestJournal_WhatSomebodyDidIsFound: and nothing is extended, or archived, by a journal that is not whole.
func TestJournal_WhatSomebodyDidIsFound(t *testing.T) {
	s := newSite(t)
	s.must(s.uploader().Once(t.Context()))
	s.order(Entry{Pattern: "desk7/**", Retain: "6y"})
	s.order(Entry{Pattern: "desk7/**", Retain: "7y"})
	_, err := Extend(t.Context(), s.bucket)
	s.must(err)
	s.put(journalName(1), "{}")
	if text := s.failures(); !strings.Contains(text, journalName(1)+": version") ||
		!strings.Contains(text, "somebody overwrote it") {
		t.Errorf("overwritten: found %q", text)
	}
	if j, err := s.bucket.ReadJournal(t.Context()); err != nil || len(j.Entries) != 2 {
		t.Errorf("overwritten: journal is %+v, %v: the oldest version counts", j, err)
	}
	file := filepath.Join(s.server.Dir, s.bucket.Bucket, s.bucket.key(journalName(2)))
	whole, err := os.ReadFile(file)
	s.must(err)
	forged := strings.Replace(string(whole), `"number":2`, `"number":3`, 1) // behind entry 1 by its hash
	s.put(journalName(3), forged)
	for what, do := range map[string]func() error{
		"extend": func() error { _, err := Extend(t.Context(), s.bucket); return err },
		"order": func() error {
			_, err := s.bucket.Order(t.Context(), Entry{Pattern: "*", IsHold: true, Who: "a", Why: "b"})
			return err
		},
		"archive": func() error { s.fill(60); return s.uploader().Once(t.Context()) },
	} {
		if err := do(); !errors.Is(err, ErrNotAnArchive) || !strings.Contains(err.Error(), journalName(3)) {
			t.Errorf("%s: error %v, expected entry 3 to be named", what, err)
		}
	}
	if text := s.failures(); !strings.Contains(text, journalName(3)) {
		t.Errorf("forged: found %q", text)
	}
}
