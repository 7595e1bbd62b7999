package archive

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/farlog/farlog/pkg/internal/s3test"
)

func TestClaim_BadInputIsNamed(t *testing.T) {
	s := newSite(t)
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	defaults := s.server.Bucket(t, true)
	mode, days, unit := minio.Compliance, uint(1), minio.Days
	s.must(s.server.Client.SetBucketObjectLockConfig(t.Context(), defaults, &mode, &days, &unit))
	for what, one := range map[string]struct {
		change   func(o *Options)
		keep     string
		expected error
	}{
		"nobody at the endpoint": {func(o *Options) { o.Endpoint = closed.URL }, "1h", ErrEndpoint},
		"no S3 at the endpoint":  {func(o *Options) { o.Endpoint = other.URL }, "1h", ErrNoBucket},
		"wrong secret": {func(o *Options) {
			o.Credentials = credentials.NewStaticV4(s3test.AccessKey, "wrong", "")
		}, "1h", ErrCredentials},
		"wrong access key": {func(o *Options) {
			o.Credentials = credentials.NewStaticV4("wrong", s3test.SecretKey, "")
		}, "1h", ErrCredentials},
		"wrong region":       {func(o *Options) { o.Region = "eu-other-1" }, "1h", ErrRegion},
		"no such bucket":     {func(o *Options) { o.Bucket = "none" }, "1h", ErrNoBucket},
		"no object lock":     {func(o *Options) { o.Bucket = s.server.Bucket(t, false) }, "1h", ErrNoVersioning},
		"default is shorter": {func(o *Options) { o.Bucket = defaults }, "2d", ErrDefaultRetention},
	} {
		options := Options{
			Location:    s.bucket.Location,
			Credentials: s3test.Credentials(),
			CallTimeout: 20 * time.Second,
		}
		one.change(&options)
		b, err := Open(options)
		s.must(err)
		keep, err := ParsePeriod(one.keep)
		s.must(err)
		err = NewWriter(s.store, b, keep).Claim(t.Context())
		if !errors.Is(err, one.expected) {
			t.Errorf("%s: error %v, expected %v", what, err, one.expected)
		}
		if err != nil && strings.Contains(err.Error(), s3test.SecretKey) {
			t.Errorf("%s: %v says the secret", what, err)
		}
	}
}

func TestClaim_VersionsWithoutLockAreNamed(t *testing.T) {
	s := newSite(t)
	bucket := s.server.Bucket(t, false)
	s.must(s.server.Client.EnableVersioning(t.Context(), bucket))
	s.bucket = s.open(bucket, "first")
	if err := s.uploader().Once(t.Context()); !errors.Is(err, ErrNoLock) {
		t.Errorf("error %v, expected that there is no lock", err)
	}
}

func TestClaim_PrefixOfAnotherStore(t *testing.T) {
	s := newSite(t)
	s.must(s.uploader().Once(t.Context()))
	second := *s
	second.dir = filepath.Join(t.TempDir(), "store")
	second.fill(0)
	if err := second.uploader().Once(t.Context()); !errors.Is(err, ErrOtherStore) ||
		!strings.Contains(err.Error(), s.store.UUID().String()) {
		t.Errorf("error %v, expected that it is of store %s", err, s.store.UUID())
	}
	if _, err := Status(t.Context(), second.store, s.bucket); !errors.Is(err, ErrOtherStore) {
		t.Errorf("status: error %v", err)
	}
	s.bucket = s.open(s.bucket.Bucket, "second")
	s.put("other", "something")
	if err := s.uploader().Once(t.Context()); !errors.Is(err, ErrNotAnArchive) {
		t.Errorf("error %v, expected that something else is there", err)
	}
	if _, err := Verify(t.Context(), s.open(s.bucket.Bucket, "third"), VerifyOptions{}); !errors.Is(err,
		ErrNotAnArchive) {
		t.Errorf("verify of nothing: error %v", err)
	}
}

// TestClaim_ClocksThatDifferAreNamed: the storage says that it is another time.
func TestClaim_ClocksThatDifferAreNamed(t *testing.T) {
	s := newSite(t)
	for _, off := range []time.Duration{-10 * time.Minute, 10 * time.Minute} {
		b, err := Open(Options{
			Location: s.bucket.Location, Credentials: s3test.Credentials(), Transport: otherTime{off},
		})
		s.must(err)
		if err := NewWriter(s.store, b, s.keep).Claim(t.Context()); !errors.Is(err, ErrClock) ||
			!strings.Contains(err.Error(), "mend the clock") {
			t.Errorf("%s off: error %v", off, err)
		}
	}
}

// otherTime is a storage whose clock is off.
type otherTime struct{ off time.Duration }

func (o otherTime) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := http.DefaultTransport.RoundTrip(request)
	if err == nil {
		response.Header.Set("Date", time.Now().Add(o.off).UTC().Format(http.TimeFormat))
	}
	return response, err
}

// TestClaim_StorageThatDoesNotKeepIsRefused: what a probe refuses gets nothing of the store.
func TestClaim_StorageThatDoesNotKeepIsRefused(t *testing.T) {
	s := newSite(t)
	b, err := Open(Options{
		Location: s.bucket.Location, Credentials: s3test.Credentials(), Transport: acceptsRetention{},
	})
	s.must(err)
	if err := NewWriter(s.store, b, s.keep).Claim(t.Context()); !errors.Is(err, ErrRefused) {
		t.Errorf("error %v, expected that the storage is refused", err)
	}
	err = s.bucket.list(t.Context(), s.bucket.under(), func(v Version) error {
		if !strings.HasPrefix(v.Key, s.bucket.key(probePrefix)) {
			t.Errorf("%s was put", v.Key)
		}
		return nil
	})
	s.must(err)
}

// acceptsRetention is a storage that says yes to every change of a lock.
type acceptsRetention struct{}

func (acceptsRetention) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method != http.MethodPut || !request.URL.Query().Has("retention") {
		return http.DefaultTransport.RoundTrip(request)
	}
	return &http.Response{
		StatusCode: http.StatusOK, Status: "200 OK", Header: http.Header{}, Request: request, Body: http.NoBody,
		ProtoMajor: 1, ProtoMinor: 1,
	}, nil
}

func TestParseLocation_RefusesWhatIsNone(t *testing.T) {
	for _, one := range [][3]string{
		{"bucket/prefix", "https://host", "r"},
		{"s3://B_/prefix", "https://host", "r"},
		{"s3://bucket/a b", "https://host", "r"},
		{"s3://bucket/a//b", "https://host", "r"},
		{"s3://bucket", "host:9000", "r"},
		{"s3://bucket", "http://10.0.0.1:9000", "r"},
		{"s3://bucket", "http://example.com", "r"},
		{"s3://bucket", "https://user:secret@host", "r"},
		{"s3://bucket", "https://user:sec/secret@host", "r"},
		{"s3://bucket", "https://user:s@secret@host", "r"},
		{"s3://bucket", "user:secret@host", "r"},
		{"s3://bucket", "http://user:secret@example.com", "r"},
		{"s3://key:secret@bucket/p", "https://host", "r"},
		{"s3://key:sec/secret@bucket/p", "https://host", "r"},
		{"s3://bucket/key:secret@bucket/p", "https://host", "r"},
		{"key:secret@bucket/p", "https://host", "r"},
		{"s3://bucket", "https://host", ""},
	} {
		_, err := ParseLocation(one[0], one[1], one[2])
		if !errors.Is(err, ErrInvalid) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v: %v", one, err)
		}
	}
	for _, endpoint := range []string{"user:secret@host", "https://user:sec/secret@", "https://user:secret@ho st"} {
		_, err := Open(Options{Location: Location{Endpoint: endpoint, Bucket: "bucket"}})
		if !errors.Is(err, ErrInvalid) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", endpoint, err)
		}
	}
	l, err := ParseLocation("s3://bucket/a/b/", "http://127.0.0.1:9000", "r")
	if err != nil || l.Prefix != "a/b" || l.String() != "s3://bucket/a/b" || l.key("x") != "a/b/x" {
		t.Errorf("%+v, %v", l, err)
	}
}

func TestPeriod_EndsInWholeSecondsAndNeverEarlier(t *testing.T) {
	begin := time.Date(2024, 2, 29, 12, 0, 0, 1, time.UTC)
	for text, want := range map[string]time.Time{
		"6y":  time.Date(2030, 3, 1, 12, 0, 1, 0, time.UTC),
		"90d": time.Date(2024, 5, 29, 12, 0, 1, 0, time.UTC),
		"36h": time.Date(2024, 3, 2, 0, 0, 1, 0, time.UTC),
	} {
		p, err := ParsePeriod(text)
		if err != nil || !p.After(begin).Equal(want) {
			t.Errorf("%s: %s, %v, expected %s", text, p.After(begin), err, want)
		}
	}
	for _, text := range []string{"", "0d", "0h", "-1y", "y", "6", "6years", "2000y"} {
		if _, err := ParsePeriod(text); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
