package archive

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/internal/s3test"
	"github.com/farlog/farlog/pkg/retention"
	"github.com/farlog/farlog/pkg/store"
	"github.com/farlog/farlog/pkg/store/storetest"
)

func TestUpload_ArchivesWhatIsSealedOnce(t *testing.T) {
	s := newSite(t)
	all := s.sealed()
	if all < 2 {
		t.Fatalf("%d sealed segments, expected some", all)
	}
	s.must(s.uploader().Once(t.Context()))
	first := s.verify(all)
	if want := 3*all + 2; first.Objects != want || first.Duplicates != 0 || first.Uncommitted != 0 {
		t.Errorf("archive is %+v, expected %d objects", first, want)
	}
	s.must(s.uploader().Once(t.Context()))
	s.fill(60)
	u := s.uploader()
	s.must(u.Once(t.Context()))
	more := s.sealed()
	if r := s.verify(more); more <= all || r.Objects != 3*more+2 || r.Duplicates != 0 {
		t.Errorf("archive is %+v, of %d segments", r, more)
	}
	list, failure := u.Progress()
	if failure != "" || len(list) != 1 || list[0].LagBytes != 0 || list[0].Archived != uint64(more) ||
		list[0].Segments != uint64(more-all) || list[0].Oldest != 0 {
		t.Errorf("progress is %+v, %s", list, failure)
	}
	archived, err := retention.LoadArchived(s.store, stream)
	if err != nil || archived.Segment != uint64(more) || archived.Archive != s.bucket.String() {
		t.Errorf("the store says %+v, %v", archived, err)
	}
}

// claimed makes a prefix of the bucket the archive of the store, without the probe, whose calls are another test's.
func (s *site) claimed(prefix string) {
	s.Helper()
	s.bucket = s.open(s.bucket.Bucket, prefix)
	_, err := NewWriter(s.store, s.bucket, s.keep).putFile(s.Context(), store.IdentityFile, s.keep.After(time.Now()))
	s.must(err)
}

// TestUpload_EachCallFailsInTurn: a call that is lost, or whose answer is, or that the storage refuses for now, is made
// good in the same run; nothing is twice.
func TestUpload_EachCallFailsInTurn(t *testing.T) {
	s := newSite(t)
	s.claimed("whole")
	s.faults.Plan(nil)
	s.must(s.uploader().Once(t.Context()))
	calls, step, tries := s.faults.Calls(), 1, 0
	if testing.Short() {
		step = 19
	}
	all := s.sealed()
	for fault := s3test.LostCall; fault <= s3test.Busy; fault++ {
		for failing := 1 + 3*int(fault)%step; failing <= calls; failing += step {
			tries++
			s.claimed(fmt.Sprintf("fault-%d-call-%d", fault, failing))
			isPut := false
			s.faults.Plan(func(call int, r *http.Request) s3test.Fault {
				if call == failing {
					isPut = r.Method == http.MethodPut
					return fault
				}
				return s3test.None
			})
			err := s.uploader().Once(t.Context())
			if err != nil && (isPut || !isUncertain(err)) {
				t.Fatalf("fault %d of call %d: %v", fault, failing, err)
			}
			s.faults.Plan(nil)
			if err != nil { // the first calls of a run are not tried again
				report, err := Verify(t.Context(), s.bucket, VerifyOptions{})
				if err != nil || !report.OK() {
					t.Fatalf("fault %d of call %d left %+v, %v", fault, failing, report, err)
				}
				s.must(s.uploader().Once(t.Context()))
			}
			if r := s.verify(all); r.Duplicates != 0 || r.Uncommitted != 0 || r.Objects != 3*all+2 {
				t.Fatalf("fault %d of call %d: archive is %+v", fault, failing, r)
			}
		}
	}
	t.Logf("%d faults at %d calls", tries, calls)
}

// TestUpload_ACallThatHangsEnds: the deadline of the call ends it, and it is made again.
func TestUpload_ACallThatHangsEnds(t *testing.T) {
	s := newSite(t)
	s.must(s.uploader().Once(t.Context()))
	s.bucket = s.open(s.bucket.Bucket, "second")
	s.bucket.timeout = time.Second
	isFirst := true
	s.faults.Plan(func(_ int, r *http.Request) s3test.Fault {
		if isFirst && r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "0000000001.seg") {
			isFirst = false
			return s3test.Silence
		}
		return s3test.None
	})
	s.must(s.uploader().Once(t.Context()))
	if isFirst {
		t.Fatal("no call hung")
	}
	if r := s.verify(s.sealed()); r.Duplicates != 0 {
		t.Errorf("archive is %+v", r)
	}
}

// TestUpload_StorageAwayIsWaitedFor: Run goes on when the storage comes back, and says meanwhile how far behind it is.
func TestUpload_StorageAwayIsWaitedFor(t *testing.T) {
	s := newSite(t)
	s.must(s.uploader().Once(t.Context()))
	s.fill(60)
	u := s.uploader()
	s.faults.Plan(func(_ int, r *http.Request) s3test.Fault {
		if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/streams/") { // the archive is claimed
			return s3test.Busy
		}
		return s3test.None
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- u.Run(ctx) }()
	wait(t, "the stream fails", func() bool {
		list, _ := u.Progress()
		return len(list) == 1 && list[0].Error != ""
	})
	list, _ := u.Progress()
	if p := list[0]; !p.IsKnown || p.LagBytes == 0 || p.Oldest == 0 || p.Lag(time.Now()) == 0 {
		t.Errorf("progress is %+v, expected a lag", p)
	}
	s.faults.Plan(nil)
	wait(t, "all is archived", func() bool {
		list, _ := u.Progress()
		return list[0].Error == "" && list[0].LagBytes == 0 && list[0].Archived == uint64(s.sealed())
	})
	cancel()
	s.must(<-ended)
	s.verify(s.sealed())
}

func wait(t *testing.T, what string, isSo func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !isSo(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited until %s", what)
		}
	}
}

// TestUpload_InParts: a segment above the part size goes in parts, and an upload that was interrupted is resumed.
func TestUpload_InParts(t *testing.T) {
	s := newSite(t)
	s.dir, s.ring = filepath.Join(t.TempDir(), "store"), storetest.NewRing(stream, 2)
	var err error
	s.store, err = store.Open(s.dir, store.Options{Create: true, SegmentBytes: 12 << 20, IsSynchronous: true})
	s.must(err)
	app, err := s.store.OpenStream(s.ring.Source)
	s.must(err)
	s.ring.Append(7000, 4000)
	for _, rec := range s.ring.Records {
		_, _, err := app.Append(rec.Raw)
		s.must(err)
	}
	s.must(app.Close())
	s.bucket.part = 5 << 20 // the least that S3 takes
	parts := 0
	s.faults.Plan(func(_ int, r *http.Request) s3test.Fault {
		if r.URL.Query().Has("partNumber") {
			if parts++; parts == 2 {
				return s3test.LostAnswer
			}
			if parts == 3 {
				return s3test.Busy
			}
		}
		return s3test.None
	})
	s.must(s.uploader().Once(t.Context()))
	sealed := s.sealed()
	if sealed == 0 || parts != 3*sealed+1 { // the second is there when it is resumed
		t.Errorf("%d parts were put of %d segments, expected three each and one again", parts, sealed)
	}
	if r := s.verify(sealed); r.Duplicates != 0 || r.Uncommitted != 0 {
		t.Errorf("archive is %+v", r)
	}
	for one := range s.server.Client.ListIncompleteUploads(t.Context(), s.bucket.Bucket, "", true) {
		t.Errorf("an upload was left: %+v", one)
	}
}

func TestUpload_DamagedSegmentIsNotArchived(t *testing.T) {
	s := newSite(t)
	name := filepath.Join(s.dir, store.SegmentFile(stream, 1))
	s.must(os.Chmod(name, 0o600))
	file, err := os.OpenFile(name, os.O_RDWR, 0)
	s.must(err)
	_, err = file.WriteAt([]byte{0xFF}, 5000)
	s.must(err)
	s.must(file.Close())
	if err := s.uploader().Once(t.Context()); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("error %v, expected damage", err)
	}
	list, err := s.bucket.versions(t.Context(), s.bucket.key(store.SegmentFile(stream, 1)))
	if err != nil || len(list) != 0 {
		t.Errorf("%d versions of the damaged segment, %v", len(list), err)
	}
}

// TestUpload_OtherBytesAreNotOverwritten: what somebody else has put under a key stops the stream, and nothing is put
// over it.
func TestUpload_OtherBytesAreNotOverwritten(t *testing.T) {
	s := newSite(t)
	s.must(s.uploader().Once(t.Context()))
	next := uint64(s.sealed()) + 1
	s.fill(60)
	m, _, err := s.store.ReadManifest(stream, next)
	s.must(err)
	other := strings.NewReader(strings.Repeat("x", int(m.UsedBytes)))
	o, err := newObject(s.bucket.key(store.SegmentFile(stream, next)), other, m.UsedBytes, nil)
	s.must(err)
	_, err = s.bucket.put(t.Context(), o, s.keep.After(time.Now()))
	s.must(err)
	if err := s.uploader().Once(t.Context()); !errors.Is(err, ErrConflict) {
		t.Errorf("error %v, expected a conflict", err)
	}
	list, err := s.bucket.versions(t.Context(), o.key)
	if err != nil || len(list) != 1 {
		t.Errorf("%d versions, %v, expected the one of somebody else", len(list), err)
	}
}

// TestUpload_OtherIndexIsPutBeside: an index can be made again, and not always with the same bytes; the manifest names
// the one that counts.
func TestUpload_OtherIndexIsPutBeside(t *testing.T) {
	s := newSite(t)
	s.claimed("other-index")
	o, err := newObject(s.bucket.key(store.IndexFile(stream, 1)), strings.NewReader("an older index"), 14, nil)
	s.must(err)
	_, err = s.bucket.put(t.Context(), o, s.keep.After(time.Now()))
	s.must(err)
	s.must(s.uploader().Once(t.Context()))
	if r := s.verify(s.sealed()); r.Duplicates != 1 {
		t.Errorf("archive is %+v, expected one other index", r)
	}
	view, err := NewView(t.Context(), s.bucket)
	s.must(err)
	raw, err := s.bucket.read(t.Context(), view.files[store.IndexFile(stream, 1)], smallMax)
	if want, readErr := os.ReadFile(filepath.Join(s.dir, store.IndexFile(stream, 1))); err != nil || readErr != nil ||
		string(raw) != string(want) {
		t.Errorf("the index that counts is not the store's: %v, %v", err, readErr)
	}
}

// TestUpload_IdentityIsKeptAsLongAsTheSegments: an uploader that works for longer than the identity is locked ahead.
func TestUpload_IdentityIsKeptAsLongAsTheSegments(t *testing.T) {
	s := newSite(t)
	u := s.uploader()
	s.must(u.Once(t.Context()))
	u.writer.now = func() time.Time { return time.Now().Add(10 * 24 * time.Hour) }
	sealed := s.sealed()
	s.fill(60)
	s.must(u.pass(t.Context(), true)) // as Run does, without claiming again
	if more := s.sealed(); more == sealed {
		t.Fatal("nothing more was sealed")
	}
	s.verify(s.sealed())
}

func TestUpload_OneProcessAStore(t *testing.T) {
	s := newSite(t)
	unlock, err := s.uploader().lock()
	s.must(err)
	if err := s.uploader().Once(t.Context()); !errors.Is(err, store.ErrLocked) {
		t.Errorf("error %v, expected that it is locked", err)
	}
	unlock()
	s.must(s.uploader().Once(t.Context()))
}
