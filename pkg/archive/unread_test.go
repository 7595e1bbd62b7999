package archive

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/internal/s3test"
	"github.com/farlog/farlog/pkg/store"
)

// loseHead loses each question for the metadata of one file.
func (s *site) loseHead(name string) {
	s.faults.Plan(func(_ int, r *http.Request) s3test.Fault {
		if r.Method == http.MethodHead && strings.HasSuffix(r.URL.Path, name) {
			return s3test.LostCall
		}
		return s3test.None
	})
}

// putAgain puts another version of a file.
func (s *site) putAgain(name string) {
	s.Helper()
	raw, err := os.ReadFile(s.file(name))
	s.must(err)
	o, err := newObject(s.bucket.key(name), bytes.NewReader(raw), int64(len(raw)), nil)
	s.must(err)
	_, err = s.bucket.send(s.Context(), o, time.Now().Add(time.Hour), true)
	s.must(err)
}

// verified is what store.Verify says of an archive.
func (s *site) verified() (*View, store.Report, error) {
	s.Helper()
	view, err := NewView(s.Context(), s.bucket)
	s.must(err)
	view.ListMissing()
	opened, err := view.Store()
	s.must(err)
	report, err := opened.Verify(s.Context(), store.VerifyOptions{})
	return view, report, err
}

// TestView_OneManifestThatCannotBeAsked holds up nothing: what it commits is read where there is one version of it, and
// where there are two, reading it is a failure that names it.
func TestView_OneManifestThatCannotBeAsked(t *testing.T) {
	s := newSite(t)
	s.must(s.uploader().Once(t.Context()))
	bad, segment := store.ManifestFile(stream, 2), store.SegmentFile(stream, 2)
	s.loseHead(bad)
	view, report, err := s.verified()
	if err != nil || !report.OK() || report.Streams[0].Segments != s.sealed() {
		t.Errorf("one version of each: %+v, %v, expected all %d segments", report, err, s.sealed())
	}
	if err := view.Unread(); !errors.Is(err, ErrEndpoint) || !strings.Contains(err.Error(), bad) {
		t.Errorf("error %v, expected the name of the manifest", err)
	}
	if text := s.failures(); !strings.Contains(text, bad) || strings.Contains(text, ".seg") {
		t.Errorf("verify found %q, expected the manifest and nothing else", text)
	}
	s.putAgain(segment)
	view, report, err = s.verified()
	if err == nil && report.OK() {
		t.Errorf("two versions of the segment: %+v, expected a failure", report)
	}
	if _, err := view.OpenFile(view.Dir()+"/"+segment, os.O_RDONLY, 0); err == nil ||
		!strings.Contains(err.Error(), bad) || !strings.Contains(err.Error(), segment) {
		t.Errorf("two versions of the segment: %v, expected its name and that of the manifest", err)
	}
	if _, err := view.OpenFile(view.Dir()+"/"+store.SegmentFile(stream, 1), os.O_RDONLY, 0); err != nil {
		t.Errorf("another segment: %v", err)
	}
}

// TestExtend_OneManifestThatCannotBeAsked: all locks but its own are extended, and it is named each time.
func TestExtend_OneManifestThatCannotBeAsked(t *testing.T) {
	s := newSite(t)
	s.must(s.uploader().Once(t.Context()))
	s.order(Entry{Pattern: stream, Retain: "7y"})
	bad := store.ManifestFile(stream, 2)
	s.loseHead(bad)
	for _, extended := range []int{s.sealed() - 1, 0} {
		done, err := Extend(t.Context(), s.bucket)
		if err == nil || !strings.Contains(err.Error(), bad) || done.Extended != extended ||
			done.Ordered != s.sealed() {
			t.Errorf("extended %+v, %v; expected %d of %d segments and the name of the manifest", done, err, extended,
				s.sealed())
		}
	}
	s.faults.Plan(nil)
	view, err := NewView(t.Context(), s.bucket)
	s.must(err)
	for name := range view.lists {
		v, err := s.bucket.head(t.Context(), s.bucket.key(name), view.oldest(name).ID)
		s.must(err)
		if isLate := v.RetainUntil.Before(time.Now().AddDate(7, 0, -1)); isLate != (name == bad) {
			t.Errorf("%s is locked until %s", name, v.RetainUntil)
		}
	}
	_, err = Extend(t.Context(), s.bucket)
	s.must(err)
	s.verify(s.sealed())
}

// TestKeepExtended_UntilAllIsAsOrdered: what fails is in the progress, is tried again, and is forgotten when it has
// succeeded; an order that is given meanwhile is carried out without another start.
func TestKeepExtended_UntilAllIsAsOrdered(t *testing.T) {
	s := newSite(t)
	u := s.uploader()
	s.must(u.Once(t.Context()))
	s.order(Entry{Pattern: stream, Retain: "7y"})
	bad := store.ManifestFile(stream, 2)
	s.loseHead(bad)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	u.lockedUntil(time.Now().AddDate(100, 0, 0), 0) // an extension is due
	go func() {
		defer close(ended)
		u.keepExtended(ctx)
	}()
	s.until("the failure is said", func() bool {
		_, failure := u.Progress()
		return strings.Contains(failure, bad)
	})
	s.faults.Plan(nil)
	s.until("it succeeds", func() bool {
		_, failure := u.Progress()
		return failure == ""
	})
	s.verify(s.sealed())
	s.order(Entry{Pattern: stream, Retain: "8y"})
	if _, err := u.followJournal(t.Context(), Journal{}); err != nil { // as a segment that is put does
		t.Fatal(err)
	}
	s.until("the next order is carried out", func() bool {
		segments, _ := s.locks()
		return segments[2].After(time.Now().AddDate(8, 0, -1))
	})
	stop()
	select {
	case <-ended:
	case <-time.After(stepTimeout):
		t.Fatal("it did not end")
	}
}

const stepTimeout = 30 * time.Second

// until waits for a condition.
func (s *site) until(what string, isSo func() bool) {
	s.Helper()
	for deadline := time.Now().Add(stepTimeout); !isSo(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.Fatalf("not within %s: %s", stepTimeout, what)
		}
	}
}

// TestUpload_APutLongerThanReckonedWith: the period that was ordered begins when the manifest is there, so locks are
// extended at once, and not a day later.
func TestUpload_APutLongerThanReckonedWith(t *testing.T) {
	s := newSite(t)
	s.must(s.uploader().Once(t.Context()))
	s.order(Entry{Pattern: stream, Retain: "6y"})
	_, err := Extend(t.Context(), s.bucket)
	s.must(err)
	s.fill(60)
	u := s.uploader()
	u.extendedAt, u.sharedUntil = time.Now(), time.Now().AddDate(100, 0, 0) // no other reason to extend
	var late time.Duration
	u.writer.now = func() time.Time { return time.Now().Add(late) }
	s.faults.Plan(func(_ int, r *http.Request) s3test.Fault {
		if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, ".seg") {
			late = 2 * time.Hour
		}
		return s3test.None
	})
	s.must(u.claim(t.Context()))
	s.must(u.pass(t.Context(), true))
	if late == 0 || !u.isExtendDue {
		t.Errorf("a put took %s: an extension is due: %t", late, u.isExtendDue)
	}
	s.must(u.extend(t.Context()))
	s.verify(s.sealed())
}
