package retention_test

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/retention"
	"github.com/farlog/farlog/pkg/store"
)

// archived says in the store that its stream is archived up to a segment.
func (s *site) archived(segment uint64) retention.Archived {
	s.t.Helper()
	_, raw, err := s.store.ReadManifest(stream, segment)
	s.must(err)
	digest := sha256.Sum256(raw)
	a := retention.Archived{
		Stream: stream, Segment: segment, ManifestSHA256: hex.EncodeToString(digest[:]), Archive: "s3://worm/desk7",
		ConfirmedAt: at(s.now.Add(-time.Hour)), LockedUntil: at(s.now.Add(time.Hour)),
	}
	s.must(a.Save(s.store))
	return a
}

func at(when time.Time) string { return when.UTC().Format(time.RFC3339) }

// TestEnforce_KeepsWhatNobodyLookedAt: in an archive, of late; and what is not locked any more.
func TestEnforce_KeepsWhatNobodyLookedAt(t *testing.T) {
	s := newSite(t)
	s.now = began.Add(48 * time.Hour)
	rule := old()
	rule.WithoutArchive = false
	s.set(rule)
	good := s.archived(2)
	for _, one := range []struct{ confirmed, locked, field, value string }{
		{at(s.now.Add(-24*time.Hour - time.Second)), good.LockedUntil, "confirmed_at", at(s.now.Add(-86401e9))},
		{at(s.now.Add(time.Second)), good.LockedUntil, "confirmed_at", at(s.now.Add(time.Second))},
		{"", good.LockedUntil, "confirmed_at", `""`},
		{good.ConfirmedAt, at(s.now), "locked_until", at(s.now)},
		{good.ConfirmedAt, "", "locked_until", `""`},
	} {
		a := good
		a.ConfirmedAt, a.LockedUntil = one.confirmed, one.locked
		s.must(a.Save(s.store))
		r := s.enforce()
		for _, expected := range []string{store.ArchivedFile(stream), one.field, one.value, "expected a time"} {
			if r.Segments != 0 || !strings.Contains(r.Blocked, expected) {
				t.Errorf("%+v: %+v, expected %q", one, r, expected)
			}
		}
	}
	good.ConfirmedAt = at(s.now.Add(-24 * time.Hour))
	s.must(good.Save(s.store))
	if r := s.enforce(); r.Segments != 2 {
		t.Errorf("looked at 24 hours ago, and locked: %+v", r)
	}
}

func TestEnforce_RemovesOnlyWhatIsArchived(t *testing.T) {
	s := newSite(t)
	s.now = began.Add(2 * time.Hour)
	rule := old()
	rule.WithoutArchive = false
	s.set(rule, old()) // what any of them keeps is kept
	if r := s.enforce(); r.Segments != 0 || !strings.Contains(r.Blocked, "no segment of the stream is") {
		t.Fatalf("nothing is archived: %+v", r)
	}
	a := s.archived(2)
	a.ManifestSHA256 = strings.Repeat("0", 64)
	s.must(a.Save(s.store))
	if r := s.enforce(); r.Segments != 0 ||
		!strings.Contains(r.Blocked, "has a manifest of segment 2 with SHA-256 000") {
		t.Errorf("the archive has another segment: %+v", r)
	}
	name := filepath.Join(s.dir, store.ArchivedFile(stream))
	for _, text := range []string{
		"", "{", `{"format":"farlog-archived","version":2}`,
		`{"format":"farlog-archived","version":1,"store_uuid":"00000000-0000-0000-0000-000000000000","stream":"` +
			stream + `","segment":9,"archive":"s3://worm"}`,
	} {
		s.must(os.WriteFile(name, []byte(text), 0o600))
		if r := s.enforce(); r.Segments != 0 || r.Blocked == "" {
			t.Errorf("%q: %+v", text, r)
		}
	}
	s.archived(2)
	if r := s.enforce(); r.Segments != 2 || !strings.Contains(r.Blocked, "s3://worm/desk7 has the segments up to 2") {
		t.Errorf("two segments are archived: %+v", r)
	}
	base, err := s.store.Base(stream)
	s.must(err)
	if base == nil || base.Segment != 3 || base.ArchivedAt != "s3://worm/desk7" {
		t.Errorf("base is %+v", base)
	}
	if r := s.enforce(); r.Segments != 0 || !strings.Contains(r.Blocked, "segment 3 is not archived") {
		t.Errorf("what is archived is removed: %+v", r)
	}
	s.set(old())
	if r := s.enforce(); r.Segments == 0 || r.Archive != "" {
		t.Errorf("without an archive: %+v", r)
	}
}
