package archive

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/farlog/farlog/pkg/internal/port"
	"github.com/farlog/farlog/pkg/internal/s3test"
)

func TestProbe_StorageThatKeepsIsTrusted(t *testing.T) {
	s := newSite(t)
	report, err := s.bucket.Probe(t.Context())
	s.must(err)
	s.must(report.Err())
	for _, one := range report.Findings {
		if one.Attempt != "overwrite" && one.Result != resultRefused && one.Result != resultEnforced {
			t.Errorf("%+v", one)
		}
	}
	if len(report.Findings) != 11 {
		t.Errorf("%d findings: %+v", len(report.Findings), report.Findings)
	}
}

// TestProbe_WhatCannotBeAskedIsNoAnswer: each call of a probe is lost in turn, and none of that makes a storage
// trusted.
func TestProbe_WhatCannotBeAskedIsNoAnswer(t *testing.T) {
	s := newSite(t)
	_, err := s.bucket.Probe(t.Context())
	s.must(err)
	calls := s.faults.Calls()
	step := 1 + calls/40
	if testing.Short() {
		step = 1 + calls/8
	}
	for failing := calls / 2; failing <= calls; failing += step { // those before are of the put, which tries again
		s.faults.Plan(func(call int, _ *http.Request) s3test.Fault {
			if call >= failing {
				return s3test.LostCall
			}
			return s3test.None
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		report, err := s.bucket.Probe(ctx)
		cancel()
		if err == nil {
			t.Errorf("call %d of %d and all behind it are lost, and the probe has an answer: %+v", failing, calls,
				report)
		}
	}
}

// TestProbe_MotoIsRefused: a server that accepts a lock and does not keep it.
func TestProbe_MotoIsRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("a minute of Python; make check runs it")
	}
	program, err := filepath.Abs(filepath.Join("..", "..", "build", "moto", "bin", "moto_server"))
	if err == nil {
		_, err = os.Stat(program)
	}
	if err != nil {
		t.Skipf("%v: scripts/setup.sh moto gets it", err)
	}
	number, err := port.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	address := "127.0.0.1:" + strconv.Itoa(number)
	server := exec.Command(program, "-H", "127.0.0.1", "-p", strconv.Itoa(number))
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Process.Kill(); _ = server.Wait() })
	client := s3test.Client(t, address)
	wait(t, "moto answers", func() bool {
		return client.MakeBucket(t.Context(), "worm", minio.MakeBucketOptions{
			Region: s3test.Region, ObjectLocking: true,
		}) == nil
	})
	b, err := Open(Options{
		Location:    Location{Endpoint: "http://" + address, Region: s3test.Region, Bucket: "worm", Prefix: "p"},
		Credentials: s3test.Credentials(),
	})
	if err != nil {
		t.Fatal(err)
	}
	report, err := b.Probe(t.Context())
	if err == nil {
		err = report.Err()
	}
	if !errors.Is(err, ErrRefused) {
		t.Errorf("moto: %v, %+v, expected that it is refused", err, report)
	}
	t.Log(err)
}

// uploads is what farlog archive run needs.
var uploads = []string{
	"s3:ListBucketVersions", "s3:GetBucketVersioning", "s3:GetBucketObjectLockConfiguration", "s3:GetObject",
	"s3:GetObjectVersion", "s3:PutObject", "s3:PutObjectRetention", "s3:GetObjectRetention",
}

// destroys is what a probe needs beside that.
var destroys = []string{
	"s3:DeleteObject", "s3:DeleteObjectVersion", "s3:BypassGovernanceRetention", "s3:PutBucketVersioning",
}

func (s *site) limited(actions []string) *Bucket {
	s.Helper()
	b, err := Open(Options{
		Location: s.bucket.Location, Credentials: s.server.Limited(s.T, s.bucket.Bucket, actions...),
		CallTimeout: 20 * time.Second,
	})
	s.must(err)
	return b
}

// TestProbe_PolicyIsNoLock: credentials that may not do something at all are refused too, and that proves nothing. With
// each permission withheld in turn, the attempts that need it are named, and no others.
func TestProbe_PolicyIsNoLock(t *testing.T) {
	s := newSite(t)
	all := append(slices.Clone(uploads), destroys...)
	removes := []string{"delete", "delete with bypass", "delete of several"}
	bypasses := []string{
		"shorten retention with bypass", "downgrade to GOVERNANCE with bypass", "delete with bypass",
		"delete of several",
	}
	for without, expected := range map[string][]string{
		"":                             nil,
		"s3:DeleteObjectVersion":       removes,
		"s3:BypassGovernanceRetention": bypasses,
		"s3:PutBucketVersioning":       {"suspend versioning"},
	} {
		b := s.limited(slices.DeleteFunc(slices.Clone(all), func(action string) bool { return action == without }))
		report, err := b.Probe(t.Context())
		s.must(err)
		var open []string
		for _, one := range report.Findings {
			if one.Result == resultNotProved {
				open = append(open, one.Attempt)
			}
		}
		if !slices.Equal(open, expected) || errors.Is(report.Err(), ErrNotProved) != (expected != nil) {
			t.Errorf("without %q: not proved is %q, expected %q: %v", without, open, expected, report.Err())
		}
	}
	noted, err := s.bucket.versions(t.Context(), s.bucket.key(proofFile))
	s.must(err)
	if len(noted) != 1 {
		t.Errorf("%d probes are noted as ones that proved the lock, expected 1", len(noted))
	}
}

// TestProbe_AcceptedAndNotDoneProvesNothing: a storage that says yes to deletes of several, and does nothing.
func TestProbe_AcceptedAndNotDoneProvesNothing(t *testing.T) {
	s := newSite(t)
	b, err := Open(Options{
		Location: s.bucket.Location, Credentials: s3test.Credentials(), Transport: ignoresDeletes{},
	})
	s.must(err)
	report, err := b.Probe(t.Context())
	s.must(err)
	if err := report.Err(); !errors.Is(err, ErrNotProved) || !strings.Contains(err.Error(), ": delete of several: ") {
		t.Errorf("error %v, expected that delete of several is not proved", err)
	}
}

type ignoresDeletes struct{}

func (ignoresDeletes) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method != http.MethodPost || !request.URL.Query().Has("delete") {
		return http.DefaultTransport.RoundTrip(request)
	}
	return &http.Response{
		StatusCode: http.StatusOK, Status: "200 OK", Header: http.Header{}, Request: request,
		Body: io.NopCloser(strings.NewReader("<DeleteResult></DeleteResult>")), ProtoMajor: 1, ProtoMinor: 1,
	}, nil
}

// TestClaim_WhoMayNotDeleteNeedsTheNoteOfAProbe: the credentials of a run that may put, and nothing else.
func TestClaim_WhoMayNotDeleteNeedsTheNoteOfAProbe(t *testing.T) {
	s := newSite(t)
	root := s.bucket
	s.bucket = s.limited(uploads)
	expect := func(what string, expected error) {
		t.Helper()
		if err := s.uploader().Once(t.Context()); !errors.Is(err, expected) {
			t.Errorf("%s: error %v, expected %v", what, err, expected)
		}
	}
	expect("no note", ErrNotProved)
	note := func(change func(p *proof)) {
		t.Helper()
		p := proof{
			proofFormat, proofVersion, time.Now().UTC().Format(time.RFC3339), root.Endpoint, root.Bucket,
			ProbeReport{Archive: root.String(), Findings: []Finding{{Attempt: "delete", Result: resultRefused}}},
		}
		change(&p)
		raw, err := json.Marshal(p)
		s.must(err)
		s.put(proofFile, string(raw))
	}
	note(func(p *proof) { p.Archive += "/other" })
	expect("note of another prefix", ErrNotProved)
	note(func(p *proof) { p.Findings = nil })
	expect("note of nothing", ErrNotProved)
	note(func(p *proof) { p.Findings[0].Result = resultSucceeded })
	expect("note of a refused storage", ErrRefused)
	note(func(p *proof) { p.Endpoint += "0" })
	expect("note of another storage", ErrNotProved)
	note(func(p *proof) { p.ProvedAt = time.Now().Add(-proofAge - time.Hour).UTC().Format(time.RFC3339) })
	expect("copy of an old note", ErrNotProved)
	note(func(p *proof) { p.ProvedAt = "" })
	expect("note of no time", ErrNotProved)
	note(func(p *proof) { p.Version++ })
	expect("note of another version", ErrNotProved)
	s.put(proofFile, "{")
	expect("half a note", ErrNotProved)
	report, err := root.Probe(t.Context())
	s.must(err)
	s.must(report.Err())
	expect("note", nil)
	s.verify(s.sealed())
}

// TestClaim_TheOwnProbeComesFirst: a note that another probe proved the lock is no answer to one that destroyed a
// locked object, and the newest note of the two counts for those who can only believe one.
func TestClaim_TheOwnProbeComesFirst(t *testing.T) {
	s := newSite(t)
	good := s.bucket
	probe := func(b *Bucket, expected error) {
		t.Helper()
		report, err := b.Probe(t.Context())
		s.must(err)
		if err := report.Err(); !errors.Is(err, expected) {
			t.Fatalf("probe: %v, expected %v", err, expected)
		}
	}
	probe(good, nil)
	bad, err := Open(Options{
		Location: s.bucket.Location, Credentials: s3test.Credentials(), Transport: acceptsVersioning{},
	})
	s.must(err)
	s.bucket = bad
	if err := s.uploader().Once(t.Context()); !errors.Is(err, ErrRefused) {
		t.Errorf("with the note of a good probe: error %v, expected that it is refused", err)
	}
	s.bucket = s.limited(uploads)
	if err := s.uploader().Once(t.Context()); !errors.Is(err, ErrRefused) {
		t.Errorf("after a bad probe: error %v, expected that it is refused", err)
	}
	probe(good, nil)
	s.must(s.uploader().Once(t.Context()))
}

// acceptsVersioning is a storage that says yes to whatever is asked of the versioning of a bucket.
type acceptsVersioning struct{}

func (acceptsVersioning) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method != http.MethodPut || !request.URL.Query().Has("versioning") {
		return http.DefaultTransport.RoundTrip(request)
	}
	return &http.Response{
		StatusCode: http.StatusOK, Status: "200 OK", Header: http.Header{}, Request: request, Body: http.NoBody,
		ProtoMajor: 1, ProtoMinor: 1,
	}, nil
}

// TestRun_WaitsForTheNoteOfAProbe: it probes once, since what a probe leaves stays, and then asks for the note alone.
func TestRun_WaitsForTheNoteOfAProbe(t *testing.T) {
	s := newSite(t)
	root := s.bucket
	faults := &s3test.Faults{Next: http.DefaultTransport}
	b, err := Open(Options{
		Location: root.Location, Credentials: s.server.Limited(t, root.Bucket, uploads...), Transport: faults,
	})
	s.must(err)
	s.bucket = b
	var asked atomic.Int64
	faults.Plan(func(_ int, r *http.Request) s3test.Fault {
		if strings.HasSuffix(r.URL.Query().Get("prefix"), proofFile) {
			asked.Add(1)
		}
		return s3test.None
	})
	count := func() (versions int) {
		s.must(root.list(t.Context(), root.key(probePrefix), func(Version) error { versions++; return nil }))
		return versions
	}
	u := s.uploader()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- u.Run(ctx) }()
	wait(t, "the note is asked for", func() bool { return asked.Load() > 0 })
	left := count()
	wait(t, "the note is asked for again", func() bool { return asked.Load() > 2 })
	if again := count(); left == 0 || again != left {
		t.Errorf("a probe left %d versions, and %d after another look", left, again)
	}
	if _, failure := u.Progress(); !strings.Contains(failure, "farlog archive probe") {
		t.Errorf("failure is %q, expected what to do", failure)
	}
	report, err := root.Probe(t.Context())
	s.must(err)
	s.must(report.Err())
	wait(t, "all is archived", func() bool {
		list, _ := u.Progress()
		return len(list) == 1 && list[0].Archived == uint64(s.sealed())
	})
	cancel()
	s.must(<-ended)
}

// TestProbe_NothingIsKnownOnceTheLockHasEnded: an attack that took longer is no proof against the storage.
func TestProbe_NothingIsKnownOnceTheLockHasEnded(t *testing.T) {
	s := newSite(t)
	c := &canary{bucket: s.bucket, report: &ProbeReport{}}
	s.must(c.plant(t.Context()))
	slow := attack{name: "slow", do: func(context.Context, string, string) error {
		c.until = time.Now()
		return nil
	}}
	if err := c.try(t.Context(), slow); !errors.Is(err, ErrTimeout) || len(c.report.Findings) != 0 {
		t.Errorf("error %v, %+v, expected that nothing is known", err, c.report.Findings)
	}
}

// TestProbe_EnablesVersioningAgain when it was interrupted behind the suspension.
func TestProbe_EnablesVersioningAgain(t *testing.T) {
	s := newSite(t)
	ctx, cancel := context.WithCancel(t.Context())
	enabled := 0
	s.faults.Plan(func(_ int, r *http.Request) s3test.Fault {
		if r.Method == http.MethodPut && r.URL.Query().Has("versioning") {
			if ctx.Err() != nil {
				enabled++
			}
			cancel()
		}
		return s3test.None
	})
	c := &canary{bucket: s.bucket}
	_ = c.suspend(ctx, "", "") // the canary has no key
	if enabled != 1 {
		t.Errorf("versioning was enabled %d times after the interruption, expected once", enabled)
	}
}

// TestClaim_OldNotesProveNothing: of a day and more ago, and of a time that is to come.
func TestClaim_OldNotesProveNothing(t *testing.T) {
	s := newSite(t)
	report, err := s.bucket.Probe(t.Context())
	s.must(err)
	s.must(report.Err())
	for off, expected := range map[time.Duration]error{
		-proofAge - time.Minute: ErrNotProved, 0: nil, 2 * clockSkewMax: ErrNotProved,
	} {
		b, err := Open(Options{
			Location: s.bucket.Location, Credentials: s3test.Credentials(), Transport: otherAge{off},
		})
		s.must(err)
		if err := b.wasProved(t.Context()); !errors.Is(err, expected) {
			t.Errorf("%s off: error %v, expected %v", off, err, expected)
		}
	}
}

// otherAge is a storage that lists versions as put at another time.
type otherAge struct{ off time.Duration }

func (o otherAge) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := http.DefaultTransport.RoundTrip(request)
	if err != nil || !request.URL.Query().Has("versions") {
		return response, err
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	at := "<LastModified>" + time.Now().Add(o.off).UTC().Format("2006-01-02T15:04:05.000Z") + "</LastModified>"
	raw = regexp.MustCompile("<LastModified>[^<]*</LastModified>").ReplaceAll(raw, []byte(at))
	response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(raw)), int64(len(raw))
	response.Header.Del("Content-Length")
	return response, nil
}
