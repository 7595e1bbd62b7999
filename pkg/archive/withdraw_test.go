package archive

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/retention"
	"github.com/farlog/farlog/pkg/store"
)

// said expects what the store says of its archive.
func (s *site) said(segment int) retention.Archived {
	s.Helper()
	a, err := retention.LoadArchived(s.store, stream)
	s.must(err)
	if a.Segment != uint64(segment) {
		s.Fatalf("the store says %+v, expected segment %d", a, segment)
	}
	return a
}

// TestArchived_SaysTheEarliestLock: of the segments that the store has too, and never later than their locks are.
func TestArchived_SaysTheEarliestLock(t *testing.T) {
	s := newSite(t)
	u := s.uploader()
	u.writer.now = func() time.Time { return time.Now().Add(time.Hour) } // locked for two hours
	s.must(u.Once(t.Context()))
	all := s.sealed()
	long := s.said(all).LockedUntil
	s.fill(60)
	s.must(s.uploader().Once(t.Context())) // for one hour
	short := s.said(s.sealed()).LockedUntil
	if short >= long || s.sealed() == all {
		t.Errorf("locked until %s after a segment with a shorter lock, was %s", short, long)
	}
	s.fill(60)
	u = s.uploader()
	u.writer.now = func() time.Time { return time.Now().Add(time.Hour) }
	s.must(u.Once(t.Context()))
	s.must(s.uploader().Once(t.Context())) // asks the archive
	if asked := s.said(s.sealed()).LockedUntil; asked != short {
		t.Errorf("the archive says locked until %s, expected %s", asked, short)
	}
}

// TestArchived_ArchiveThatBeginsLaterIsAGap: the store has segments before the first one of the archive.
func TestArchived_ArchiveThatBeginsLaterIsAGap(t *testing.T) {
	s := newSite(t)
	whole := *s
	whole.dir = filepath.Join(t.TempDir(), "whole")
	s.must(os.CopyFS(whole.dir, os.DirFS(s.dir)))
	whole.fill(0)
	_, err := s.store.RemoveBefore(stream, store.Removal{Before: 2, Policy: "test"})
	s.must(err)
	s.must(s.uploader().Once(t.Context()))
	there := s.said(s.sealed() + 1)
	s.must(there.Save(whole.store))
	if err := whole.uploader().Once(t.Context()); !errors.Is(err, ErrNotAnArchive) ||
		!strings.Contains(err.Error(), "the archive begins with segment 2, the store with 1") {
		t.Errorf("error %v, expected a gap", err)
	}
	whole.said(0)
}

// TestArchived_IsWithdrawn: a definite error of a look at the archive, and not one that may pass.
func TestArchived_IsWithdrawn(t *testing.T) {
	s := newSite(t)
	s.must(s.uploader().Once(t.Context()))
	all := s.sealed()
	s.bucket.timeout = time.Nanosecond
	if err := s.uploader().Once(t.Context()); !isUncertain(err) {
		t.Errorf("error %v, expected no answer", err)
	}
	s.said(all)
	whole := s.bucket
	s.bucket = s.open("none", "first")
	if err := s.uploader().Once(t.Context()); !errors.Is(err, ErrNoBucket) {
		t.Errorf("error %v, expected no bucket", err)
	}
	s.said(0)
	s.bucket = s.open(whole.Bucket, "first")
	s.must(s.uploader().Once(t.Context()))
	s.said(all)
	s.put(store.ManifestFile(stream, uint64(all)+2), "{}")
	if err := s.uploader().Once(t.Context()); !errors.Is(err, ErrNotAnArchive) {
		t.Errorf("error %v, expected a segment that is missing", err)
	}
	s.said(0)
}

// TestArchived_IsLookedAtAgain: by an uploader that has nothing new to put.
func TestArchived_IsLookedAtAgain(t *testing.T) {
	s := newSite(t)
	u := s.uploader()
	now := time.Now()
	u.writer.now = func() time.Time { return now }
	s.must(u.Once(t.Context()))
	all := s.sealed()
	expect := func(later time.Duration) {
		t.Helper()
		s.must(u.pass(t.Context(), true))
		if at := s.said(all).ConfirmedAt; at != now.Add(-later).UTC().Format(time.RFC3339) {
			t.Errorf("confirmed at %s, it is %s", at, now)
		}
	}
	expect(0)
	now = now.Add(lookInterval - time.Second)
	expect(lookInterval - time.Second)
	now = now.Add(time.Second)
	expect(0)
	s.put(store.ManifestFile(stream, uint64(all)+2), "{}")
	expect(0)
	now = now.Add(lookInterval)
	if err := u.pass(t.Context(), true); !errors.Is(err, ErrNotAnArchive) {
		t.Errorf("error %v, expected a segment that is missing", err)
	}
	s.said(0)
}
