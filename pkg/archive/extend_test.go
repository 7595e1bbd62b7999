package archive

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/internal/s3test"
	"github.com/farlog/farlog/pkg/store"
)

// file is where the server has the newest version of an object.
func (s *site) file(name string) string {
	return filepath.Join(s.server.Dir, s.bucket.Bucket, s.bucket.key(name))
}

// flip changes a byte in the middle of an object.
func (s *site) flip(name string) {
	s.Helper()
	raw, err := os.ReadFile(s.file(name))
	s.must(err)
	raw[len(raw)/2] ^= 1
	s.must(os.WriteFile(s.file(name), raw, 0o640))
}

// orderLocks gives the earliest end of a lock of the journal, and the end of that of the identity.
func (s *site) orderLocks() (orders, identity time.Time) {
	s.Helper()
	view, err := NewView(s.Context(), s.bucket)
	s.must(err)
	for name := range view.lists {
		v, err := s.bucket.head(s.Context(), s.bucket.key(name), view.oldest(name).ID)
		s.must(err)
		if isJournal(name) && (orders.IsZero() || v.RetainUntil.Before(orders)) {
			orders = v.RetainUntil
		}
		if name == store.IdentityFile {
			identity = v.RetainUntil
		}
	}
	return orders, identity
}

// TestExtend_GoesOnBehindWhatIsBad: a manifest that cannot be read counts as one with records of any time, and a
// segment that is gone holds up none behind it; both are reported each time.
func TestExtend_GoesOnBehindWhatIsBad(t *testing.T) {
	s := newSite(t)
	s.fill(60)
	s.must(s.uploader().Once(t.Context()))
	all := s.sealed()
	if all < 4 {
		t.Fatalf("%d segments, expected at least 4", all)
	}
	s.flip(store.ManifestFile(stream, 1))
	s.order(Entry{Pattern: "desk7/*", IsHold: true, From: "2099-01-01T00:00:00Z"})
	done, err := Extend(t.Context(), s.bucket)
	if !errors.Is(err, store.ErrCorrupt) || done.Ordered != 1 || done.Extended != 1 {
		t.Errorf("extended %+v, %v, expected the lock of the segment whose manifest cannot be read", done, err)
	}
	s.must(os.Rename(s.file(store.SegmentFile(stream, 2)), filepath.Join(t.TempDir(), "away")))
	s.order(Entry{Pattern: stream, Retain: "7y"})
	for _, extended := range []int{all, 0} {
		done, err = Extend(t.Context(), s.bucket)
		if !errors.Is(err, store.ErrCorrupt) || !errors.Is(err, ErrNotFound) ||
			!strings.Contains(err.Error(), store.SegmentFile(stream, 2)) {
			t.Errorf("error %v, expected both to be named", err)
		}
		if done.Segments != all || done.Ordered != all || done.Extended != extended {
			t.Errorf("extended %+v of %d segments, expected %d", done, all, extended)
		}
	}
	segments, shared := s.locks()
	for number, until := range segments {
		if until.Before(time.Now().AddDate(7, 0, -1)) || shared.Before(until) {
			t.Errorf("segment %d is locked until %s, and what it is read by until %s", number, until, shared)
		}
	}
}

// TestExtend_EndsWhenNothingAnswers: three calls in a row, not one for each segment.
func TestExtend_EndsWhenNothingAnswers(t *testing.T) {
	s := newSite(t)
	s.must(s.uploader().Once(t.Context()))
	s.order(Entry{Pattern: stream, Retain: "7y"})
	lost := 0
	s.faults.Plan(func(_ int, r *http.Request) s3test.Fault {
		if r.Method == http.MethodPut {
			lost++
			return s3test.LostCall
		}
		return s3test.None
	})
	_, err := Extend(t.Context(), s.bucket)
	if !errors.Is(err, ErrEndpoint) || lost != silentMax {
		t.Errorf("%d calls were lost, expected %d: %v", lost, silentMax, err)
	}
	s.faults.Plan(nil)
	_, err = Extend(t.Context(), s.bucket)
	s.must(err)
	s.verify(s.sealed())
}

// TestExtend_KeepsOrdersOfNoSegment as long as the identity, and ahead of now.
func TestExtend_KeepsOrdersOfNoSegment(t *testing.T) {
	s := newSite(t)
	s.keep, _ = ParsePeriod("90d")
	s.must(s.uploader().Once(t.Context()))
	s.order(Entry{Pattern: "other/**", IsHold: true})
	done, err := Extend(t.Context(), s.bucket)
	s.must(err)
	if orders, identity := s.orderLocks(); done.Ordered != 0 || orders.Before(identity) {
		t.Errorf("%+v: orders are locked until %s, the identity until %s", done, orders, identity)
	}
	s.verify(s.sealed())
	j, err := s.bucket.ReadJournal(t.Context())
	s.must(err)
	later := time.Now().AddDate(0, 0, 85)
	e := &extender{ctx: t.Context(), bucket: s.bucket, journal: j, now: later, done: &Extended{}}
	e.view, err = NewView(t.Context(), s.bucket)
	s.must(err)
	e.extendShared()
	s.must(e.err())
	if orders, _ := s.orderLocks(); orders.Before(later.Add(holdAhead - time.Minute)) {
		t.Errorf("orders are locked until %s when it is %s, expected %s ahead", orders, later, holdAhead)
	}
}

// TestUpload_KeepsOrdersAsLongAsTheSegments: also those that no order is of, before locks are extended.
func TestUpload_KeepsOrdersAsLongAsTheSegments(t *testing.T) {
	s := newSite(t)
	u := s.uploader()
	s.must(u.Once(t.Context()))
	s.order(Entry{Pattern: "other/**", IsHold: true})
	u.writer.now = func() time.Time { return time.Now().Add(40 * 24 * time.Hour) }
	s.fill(60)
	s.must(u.pass(t.Context(), true))
	s.verify(s.sealed())
}

// TestUpload_APutThatTakesTime: an order's period begins when the storage has the manifest.
func TestUpload_APutThatTakesTime(t *testing.T) {
	s := newSite(t)
	s.must(s.uploader().Once(t.Context()))
	s.order(Entry{Pattern: stream, Retain: "6y"})
	_, err := Extend(t.Context(), s.bucket)
	s.must(err)
	s.fill(60)
	u := s.uploader()
	u.extendedAt, u.sharedUntil = time.Now(), time.Now().AddDate(100, 0, 0) // that would mend it
	isSlow := false
	s.faults.Plan(func(_ int, r *http.Request) s3test.Fault {
		if !isSlow && r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, ".seg") {
			isSlow = true
			time.Sleep(2500 * time.Millisecond)
		}
		return s3test.None
	})
	s.must(u.Once(t.Context()))
	if !isSlow {
		t.Fatal("no segment was put")
	}
	s.verify(s.sealed())
}

// TestUpload_AnOrderWhileSegmentsArePut is of them too, however lately locks were extended.
func TestUpload_AnOrderWhileSegmentsArePut(t *testing.T) {
	s := newSite(t)
	s.claimed("orders")
	clerk := *s
	clerk.bucket = s.limited(uploads) // by another connection
	isOrdered := false
	s.faults.Plan(func(_ int, r *http.Request) s3test.Fault {
		if !isOrdered && r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "0000000001.json") {
			isOrdered = true
			clerk.order(Entry{Pattern: stream, IsHold: true})
		}
		return s3test.None
	})
	u := s.uploader()
	u.extendedAt, u.sharedUntil = time.Now(), time.Now().AddDate(100, 0, 0)
	s.must(u.Once(t.Context()))
	segments, _ := s.locks()
	for number, until := range segments {
		if until.Before(time.Now().Add(holdRenew)) {
			t.Errorf("segment %d is locked until %s, and was ordered to be held", number, until)
		}
	}
	if !isOrdered || len(segments) != s.sealed() {
		t.Errorf("%d segments of %d were put, ordered %t", len(segments), s.sealed(), isOrdered)
	}
	s.verify(s.sealed())
}

// TestNewView_AsksAgainAndEndsEarly: one answer that the storage is busy is none of the archive, and a definite one
// ends it.
func TestNewView_AsksAgainAndEndsEarly(t *testing.T) {
	s := newSite(t)
	s.must(s.uploader().Once(t.Context()))
	heads, fault := 0, s3test.Busy
	s.faults.Plan(func(_ int, r *http.Request) s3test.Fault {
		if r.Method == http.MethodHead {
			if heads++; heads == 1 || fault == s3test.LostCall {
				return fault
			}
		}
		return s3test.None
	})
	_, err := NewView(t.Context(), s.bucket)
	s.must(err)
	fault = s3test.LostCall
	if _, err := NewView(t.Context(), s.bucket); !errors.Is(err, ErrEndpoint) {
		t.Errorf("error %v, expected that nothing answers", err)
	}
}
