package retention_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/merge"
	"github.com/farlog/farlog/pkg/retention"
	"github.com/farlog/farlog/pkg/store"
	"github.com/farlog/farlog/pkg/store/storetest"
)

const stream = "desk7/orders"

// began is the time of the first record of a storetest.Ring, and of the sealing of all segments.
var began = time.Unix(1763700000, 0)

// site is a store with one stream of several sealed segments, which nobody writes.
type site struct {
	t     *testing.T
	dir   string
	ring  *storetest.Ring
	store *store.Store
	now   time.Time
	clock *retention.Clock // as a drain's that was started at the time of the first record
	// sealedAt is the clock of the host that seals segments.
	sealedAt time.Time
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, dir: filepath.Join(t.TempDir(), "store"), ring: storetest.NewRing(stream, 1), now: began}
	s.sealedAt = began
	s.clock = &retention.Clock{
		Now: func() time.Time { return s.now }, Elapsed: func() time.Duration { return s.now.Sub(began) },
	}
	s.clock.Begin(began)
	s.store = s.fill(s.dir, 150)
	return s
}

// fill puts so many records of the ring into a store.
func (s *site) fill(dir string, count int) *store.Store {
	s.t.Helper()
	opened, err := store.Open(dir, store.Options{
		Create: true, SegmentBytes: store.SegmentBytesMin, IsSynchronous: true,
		Now: func() time.Time { return s.sealedAt },
	})
	s.must(err)
	s.ring.Append(max(0, count-len(s.ring.Records)), 600)
	app, err := opened.OpenStream(s.ring.Source)
	s.must(err)
	for _, rec := range s.ring.Records[:count] {
		_, _, err := app.Append(rec.Raw)
		s.must(err)
	}
	s.must(app.Close())
	return opened
}

func (s *site) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) set(rules ...retention.Rule) {
	s.t.Helper()
	s.must(retention.Change(s.dir, func(p *retention.Policy) error {
		p.Rules = rules
		return nil
	}))
}

func (s *site) enforcer() *retention.Enforcer {
	return &retention.Enforcer{Store: s.store, Clock: s.clock}
}

// enforce gives what was removed of the stream, and what keeps the rest.
func (s *site) enforce() retention.Result {
	s.t.Helper()
	results, err := s.enforcer().Enforce()
	s.must(err)
	if len(results) != 1 {
		s.t.Fatalf("%d streams match, expected 1", len(results))
	}
	return results[0]
}

func (s *site) sealed() int {
	s.t.Helper()
	h, err := s.store.History(stream)
	s.must(err)
	return len(h.Sizes)
}

func old(readers ...string) retention.Rule {
	return retention.Rule{Pattern: "desk7/**", MaxAge: "1h", WithoutArchive: true, Readers: readers, SetBy: "tester"}
}

func TestEnforce_Age(t *testing.T) {
	s := newSite(t)
	all := s.sealed()
	s.set(old())
	s.now = began.Add(59 * time.Minute)
	if r := s.enforce(); r.Segments != 0 || r.Blocked != "" {
		t.Fatalf("removed before the time: %+v", r)
	}
	s.now = began.Add(2 * time.Hour)
	if r := s.enforce(); r.Segments != all || r.Before != uint64(all)+1 {
		t.Fatalf("removed %+v, expected %d segments", r, all)
	}
	base, err := s.store.Base(stream)
	s.must(err)
	if base == nil || !strings.Contains(base.Policy, "desk7/**") || !strings.Contains(base.Policy, "without-archive") ||
		base.ArchivedAt != "" {
		t.Errorf("base is %+v", base)
	}
	if r := s.enforce(); r.Segments != 0 {
		t.Errorf("removed again: %+v", r)
	}
}

// TestEnforce_AClockThatIsBehindMakesNothingOld: neither the writer's nor that of the host that seals.
func TestEnforce_AClockThatIsBehindMakesNothingOld(t *testing.T) {
	for what, sealedAt := range map[string]time.Time{
		"writer": began.Add(3 * time.Hour), "sealing": began.Add(-3 * time.Hour),
	} {
		s := newSite(t)
		s.sealedAt = sealedAt
		s.dir = filepath.Join(t.TempDir(), "store")
		s.store = s.fill(s.dir, 150)
		s.set(old())
		later := began
		if sealedAt.After(began) {
			later = sealedAt
		}
		s.now = later.Add(59 * time.Minute)
		if r := s.enforce(); r.Segments != 0 {
			t.Errorf("%s: removed before the time: %+v", what, r)
		}
		s.now = later.Add(61 * time.Minute)
		if r := s.enforce(); r.Segments == 0 {
			t.Errorf("%s: kept behind the time: %+v", what, r)
		}
	}
}

// TestEnforce_AClockThatJumpsAheadMakesNothingOld: not while a drain runs, and not when it starts again before a new
// record has come. By size segments go whatever the clock says.
func TestEnforce_AClockThatJumpsAheadMakesNothingOld(t *testing.T) {
	s := newSite(t)
	all := s.sealed()
	s.set(old())
	elapsed := time.Minute
	s.clock.Elapsed = func() time.Duration { return elapsed }
	s.clock.Begin(began)
	s.now = began.AddDate(10, 0, 0)
	if r := s.enforce(); r.Segments != 0 || !strings.Contains(r.Blocked, "the clock is 87648 hours ahead") ||
		!strings.Contains(r.Blocked, "--clock-checked") {
		t.Fatalf("the clock jumped by ten years: %+v", r)
	}
	s.clock = &retention.Clock{Now: s.clock.Now, Elapsed: s.clock.Elapsed}
	if r := s.enforce(); r.Segments != 0 || r.Blocked == "" {
		t.Fatalf("and the drain was started again: %+v", r)
	}
	s.now = began.Add(-time.Hour)
	if r := s.enforce(); r.Segments != 0 || r.Blocked != "" {
		t.Fatalf("the clock jumped back: %+v", r)
	}
	s.now = began.AddDate(10, 0, 0)
	h, err := s.store.History(stream)
	s.must(err)
	s.set(retention.Rule{Pattern: stream, MaxBytes: uint64(h.Behind + h.Sizes[all-1]), WithoutArchive: true})
	if r := s.enforce(); r.Segments != all-1 || r.Blocked != "" {
		t.Fatalf("by size: %+v, expected all but one of %d", r, all)
	}
	s.set(old())
	elapsed += 2 * time.Hour
	if r := s.enforce(); r.Segments != 1 || r.Blocked != "" {
		t.Fatalf("two hours have passed: %+v", r)
	}
}

// TestEnforce_ARecordFromAheadProvesNoClock: one stream with a record of far ahead makes nothing of the others old.
func TestEnforce_ARecordFromAheadProvesNoClock(t *testing.T) {
	s := newSite(t)
	s.set(old())
	ahead := storetest.NewRing("desk8/ahead", 2)
	ahead.SetClock(began.AddDate(70, 0, 0))
	ahead.Append(150, 600)
	app, err := s.store.OpenStream(ahead.Source)
	s.must(err)
	for _, rec := range ahead.Records {
		_, _, err := app.Append(rec.Raw)
		s.must(err)
	}
	s.must(app.Close())
	s.now = began.AddDate(10, 0, 0)
	s.clock = &retention.Clock{Now: s.clock.Now, Elapsed: func() time.Duration { return 0 }}
	results, err := s.enforcer().Enforce()
	s.must(err)
	for _, r := range results {
		if r.Segments != 0 || r.Stream == stream && r.Blocked == "" {
			t.Errorf("%+v", r)
		}
	}
}

// TestEnforce_AStoreThatNobodyWritesIsOldByACheckedClock: nothing newer proves the time.
func TestEnforce_AStoreThatNobodyWritesIsOldByACheckedClock(t *testing.T) {
	s := newSite(t)
	all := s.sealed()
	s.set(old())
	s.now = began.AddDate(0, 1, 0)
	s.clock = &retention.Clock{Now: s.clock.Now, Elapsed: func() time.Duration { return 0 }}
	if r := s.enforce(); r.Segments != 0 || r.Blocked == "" {
		t.Fatalf("%+v", r)
	}
	s.clock.IsChecked = true
	if r := s.enforce(); r.Segments != all || r.Blocked != "" {
		t.Fatalf("%+v, expected %d segments", r, all)
	}
}

func TestEnforce_Size(t *testing.T) {
	s := newSite(t)
	h, err := s.store.History(stream)
	s.must(err)
	limit := h.Behind + h.Sizes[len(h.Sizes)-1]
	s.set(retention.Rule{Pattern: stream, MaxBytes: uint64(limit), WithoutArchive: true})
	if r := s.enforce(); r.Segments != len(h.Sizes)-1 {
		t.Fatalf("removed %+v, expected all but one of %d", r, len(h.Sizes))
	}
}

// TestEnforce_WhatAnyRuleKeepsStays also covers holds.
func TestEnforce_WhatAnyRuleOrAHoldKeepsStays(t *testing.T) {
	s := newSite(t)
	s.now = began.Add(2 * time.Hour)
	for what, rule := range map[string]retention.Rule{
		"never":  {Pattern: stream, IsKept: true},
		"longer": {Pattern: "*", MaxAge: "3h", WithoutArchive: true},
	} {
		s.set(old(), rule)
		if r := s.enforce(); r.Segments != 0 {
			t.Errorf("%s: removed %+v", what, r)
		}
	}
	s.set(old())
	s.must(retention.Change(s.dir, func(p *retention.Policy) error {
		p.Holds = append(p.Holds, retention.Hold{Pattern: "desk7/*", Who: "J. Doe", Why: "inquiry 17"})
		return nil
	}))
	if r := s.enforce(); r.Segments != 0 || !strings.Contains(r.Blocked, "J. Doe") ||
		!strings.Contains(r.Blocked, "inquiry 17") {
		t.Errorf("a hold does not keep: %+v", r)
	}
}

// position writes the position of a consumer that has read up to the record before a segment, or behind it.
func (s *site) position(of string, place store.Place) string {
	s.t.Helper()
	raw, err := store.Position{Stream: of, Generation: place.Generation, Epoch: place.Epoch, LSN: place.LSN}.Encode()
	s.must(err)
	name := filepath.Join(s.t.TempDir(), "position.json")
	s.must(os.WriteFile(name, raw, 0o600))
	return name
}

func TestEnforce_ReadersKeepWhatTheyHaveNotPassed(t *testing.T) {
	s := newSite(t)
	s.now = began.Add(2 * time.Hour)
	h, err := s.store.History(stream)
	s.must(err)
	second, err := h.Manifest(1)
	s.must(err)
	inThird := second.Last()
	inThird.LSN++
	beforeThird := second.Last()
	beforeThird.LSN--
	damaged := filepath.Join(t.TempDir(), "damaged.json")
	s.must(os.WriteFile(damaged, []byte("{}"), 0o600))
	behind := newSite(t)
	replica := filepath.Join(t.TempDir(), "replica")
	behind.fill(replica, 3)
	for _, c := range []struct {
		what, reader string
		segments     int
	}{
		{"a consumer that has begun", "consumer:" + s.position(stream, store.Place{Generation: 1, Epoch: 1}), 0},
		{"a consumer before the end of a segment", "consumer:" + s.position(stream, beforeThird), 1},
		{"a consumer that is not there", "consumer:" + filepath.Join(t.TempDir(), "none.json"), 0},
		{"a position that cannot be read", "consumer:" + damaged, 0},
		{"a replica that is behind", "store:" + replica, 0},
		{"a replica that is not there", "store:" + filepath.Join(t.TempDir(), "none"), 0},
	} {
		s.set(old(c.reader))
		results, err := s.enforcer().Plan()
		s.must(err)
		if r := results[0]; r.Segments != c.segments || r.Blocked == "" {
			t.Errorf("%s: %+v, expected %d segments and a reason", c.what, r, c.segments)
		}
	}
	s.set(old("consumer:"+s.position(stream, inThird), "consumer:"+s.position("desk7/other", store.Place{})))
	if r := s.enforce(); r.Segments != 2 || !strings.Contains(r.Blocked, "position.json") {
		t.Errorf("a consumer in the third segment: %+v", r)
	}
	whole := filepath.Join(t.TempDir(), "replica")
	s.fill(whole, len(s.ring.Records))
	s.set(old("store:" + whole))
	if r := s.enforce(); r.Segments == 0 || r.Blocked != "" {
		t.Errorf("a replica that has all: %+v", r)
	}
}

func TestEnforce_UnknownReadersAndUnreadablePolicyKeepAll(t *testing.T) {
	s := newSite(t)
	s.now = began.Add(2 * time.Hour)
	s.set(old())
	e := s.enforcer()
	e.Unknown = "who knows"
	if results, err := e.Enforce(); err != nil || results[0].Segments != 0 || results[0].Blocked != "who knows" {
		t.Errorf("%+v, %v", results, err)
	}
	for _, text := range []string{"", "{", `{"format":"farlog-retention","version":2}`, `{"format":"x","version":1}`} {
		s.must(os.WriteFile(filepath.Join(s.dir, "retention.json"), []byte(text), 0o600))
		if results, err := s.enforcer().Enforce(); err == nil || len(results) != 0 {
			t.Errorf("policy %q: %+v", text, results)
		}
	}
	if base, err := s.store.Base(stream); err != nil || base != nil {
		t.Errorf("something was removed: %+v, %v", base, err)
	}
}

func TestEnforce_MergedOrderKeepsWhatItHasNotPassed(t *testing.T) {
	s := newSite(t)
	s.now = began.Add(2 * time.Hour)
	s.set(old())
	merger, err := merge.Open(s.store, merge.Options{Now: func() time.Time { return s.now }})
	s.must(err)
	if r := s.enforce(); r.Segments != 0 || !strings.Contains(r.Blocked, "merged order") {
		t.Errorf("an order that has nothing yet: %+v", r)
	}
	s.must(merger.Finish(t.Context()))
	s.must(merger.Close())
	if r := s.enforce(); r.Segments == 0 {
		t.Errorf("an order that has all: %+v", r)
	}
	r, err := s.store.OpenReader(stream, store.ReaderOptions{})
	s.must(err)
	defer r.Close()
	for err == nil {
		_, err = r.Next()
	}
	if !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}

func TestRule_Check(t *testing.T) {
	for _, rule := range []retention.Rule{
		{Pattern: "", MaxAge: "1h", WithoutArchive: true},
		{Pattern: "a", WithoutArchive: true},
		{Pattern: "a", MaxAge: "-1h", WithoutArchive: true},
		{Pattern: "a", MaxAge: "soon", WithoutArchive: true},
		{Pattern: "a", MaxAge: "1h", IsKept: true, WithoutArchive: true},
		{Pattern: "a", MaxAge: "1h", WithoutArchive: true, Readers: []string{"position.json"}},
	} {
		if err := rule.Check(); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%+v: %v", rule, err)
		}
	}
	if err := (retention.Hold{Pattern: "a", Who: "me"}).Check(); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("a hold without a reason: %v", err)
	}
}
