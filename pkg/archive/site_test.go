package archive

import (
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/internal/s3test"
	"github.com/farlog/farlog/pkg/store"
	"github.com/farlog/farlog/pkg/store/storetest"
)

const stream = "desk7/orders"

// site is a store with one stream of several sealed segments, and a bucket on a real server.
type site struct {
	*testing.T
	server *s3test.Server
	faults *s3test.Faults
	dir    string
	ring   *storetest.Ring
	store  *store.Store
	bucket *Bucket
	keep   Period
	keys   string // the directory of signing keys
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{T: t, server: s3test.Start(t), dir: filepath.Join(t.TempDir(), "store")}
	s.keys = filepath.Join(t.TempDir(), "keys")
	s.ring = storetest.NewRing(stream, 1)
	s.keep, _ = ParsePeriod("1h")
	s.fill(100)
	s.bucket = s.open(s.server.Bucket(t, true), "first")
	return s
}

// fill puts so many more records of the ring into the store.
func (s *site) fill(count int) {
	s.Helper()
	var err error
	s.store, err = store.Open(s.dir, store.Options{
		Create: true, SegmentBytes: store.SegmentBytesMin, IsSynchronous: true, KeyDir: s.keys,
	})
	s.must(err)
	before := len(s.ring.Records)
	if before == 1 {
		before = 0 // the first epoch's record
	}
	s.ring.Append(count, 600)
	app, err := s.store.OpenStream(s.ring.Source)
	s.must(err)
	for _, rec := range s.ring.Records[before:] {
		_, _, err := app.Append(rec.Raw)
		s.must(err)
	}
	s.must(app.Close())
}

// open connects to a prefix of a bucket; the calls go through the site's faults.
func (s *site) open(bucket, prefix string) *Bucket {
	s.Helper()
	s.faults = &s3test.Faults{Next: http.DefaultTransport}
	b, err := Open(Options{
		Location:    Location{Endpoint: s.server.Endpoint, Region: s3test.Region, Bucket: bucket, Prefix: prefix},
		Credentials: s3test.Credentials(), Transport: s.faults, CallTimeout: 20 * time.Second,
	})
	s.must(err)
	return b
}

func (s *site) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *site) uploader() *Uploader {
	return NewUploader(Config{Store: s.store, Bucket: s.bucket, Keep: s.keep, PollInterval: 10 * time.Millisecond})
}

// sealed counts the sealed segments of the store.
func (s *site) sealed() int {
	s.Helper()
	sealed, err := s.store.Sealed(stream)
	s.must(err)
	return len(sealed.Segments)
}

// verify expects an archive with so many segments, and nothing else.
func (s *site) verify(segments int) Report {
	s.Helper()
	report, err := Verify(s.Context(), s.bucket, VerifyOptions{Keep: &s.keep})
	s.must(err)
	if !report.OK() || report.Segments != segments || len(report.Store.Streams) != 1 {
		s.Fatalf("archive is %+v, expected %d segments and no failure", report, segments)
	}
	return report
}
