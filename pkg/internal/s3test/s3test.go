// Package s3test starts a real S3 server with Object Lock for tests: versitygw on a directory, on a port of its own of
// the loopback address. Faults are made in front of it: Faults is an http.RoundTripper, and a proxy to processes.
package s3test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/farlog/farlog/pkg/internal/port"
)

// What the server of a test knows its client by, and where it says that it is.
const (
	AccessKey = "farlog-test"
	SecretKey = "farlog-test-secret"
	Region    = "eu-test-1"

	limitedKey = "farlog-limited" // may do what Limited has allowed
)

// timeout bounds every wait; it is never what a test measures.
const timeout = time.Minute

// Server is one that runs.
type Server struct {
	Endpoint string // http://127.0.0.1:PORT
	Client   *minio.Client
	Dir      string // with a folder for each bucket: the newest version of each object is a file
	buckets  atomic.Int64
}

// Program builds versitygw, in the version of scripts/tools/s3/go.mod, and gives its path. Go's build cache keeps it.
var Program = sync.OnceValues(func() (string, error) {
	_, file, _, _ := runtime.Caller(0)
	root := filepath.Join(filepath.Dir(file), "..", "..", "..")
	build := exec.Command("go", "tool", "-modfile="+filepath.Join(root, "scripts", "tools", "s3", "go.mod"), "-n",
		"versitygw")
	build.Dir, build.Env = root, append(os.Environ(), "GOFLAGS=-buildvcs=false") // one entry of the cache for all
	var talk bytes.Buffer
	build.Stderr = &talk
	path, err := build.Output()
	if err != nil {
		return "", fmt.Errorf("build versitygw: %w: %s", err, talk.String())
	}
	return strings.TrimSpace(string(path)), nil
})

// Start starts a server that ends with the test. Short tests skip what needs one: with an empty cache, building it is
// a tenth of all that they compute.
func Start(tb testing.TB) *Server {
	tb.Helper()
	if testing.Short() {
		tb.Skip("S3: the server's sources are large; make check builds it")
	}
	path, err := Program()
	if err != nil {
		tb.Fatal(err)
	}
	number, err := port.Reserve()
	if err != nil {
		tb.Fatal(err)
	}
	address, dir := fmt.Sprintf("127.0.0.1:%d", number), tb.TempDir()
	for _, name := range []string{"objects", "versions", "iam"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			tb.Fatal(err)
		}
	}
	accounts := fmt.Sprintf(`{"accessAccounts": {%q: {"access": %q, "secret": %q, "role": "user"}}}`, limitedKey,
		limitedKey, SecretKey)
	if err := os.WriteFile(filepath.Join(dir, "iam", "users.json"), []byte(accounts), 0o600); err != nil {
		tb.Fatal(err)
	}
	server := exec.Command(
		path,
		"--port",
		address,
		"--access",
		AccessKey,
		"--secret",
		SecretKey,
		"--region",
		Region,
		"--iam-dir",
		filepath.Join(dir, "iam"),
		"--quiet",
		"posix",
		"--versioning-dir",
		filepath.Join(dir, "versions"),
		filepath.Join(dir, "objects"),
	)
	var talk bytes.Buffer
	server.Stdout, server.Stderr = &talk, &talk
	if err := server.Start(); err != nil {
		tb.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Wait() }()
	tb.Cleanup(func() {
		_ = server.Process.Kill()
		<-ended
	})
	s := &Server{Endpoint: "http://" + address, Client: Client(tb, address), Dir: filepath.Join(dir, "objects")}
	for deadline := time.Now().Add(timeout); ; time.Sleep(10 * time.Millisecond) {
		select {
		case err := <-ended:
			ended <- err
			tb.Fatalf("versitygw ended: %v: %s", err, talk.String())
		default:
		}
		if _, err := s.Client.ListBuckets(tb.Context()); err == nil {
			return s
		} else if time.Now().After(deadline) {
			tb.Fatalf("versitygw does not answer: %v", err)
		}
	}
}

// Client is one of a server's own, without faults.
func Client(tb testing.TB, address string) *minio.Client {
	tb.Helper()
	client, err := minio.New(address, &minio.Options{
		Creds: Credentials(), Region: Region, BucketLookup: minio.BucketLookupPath,
	})
	if err != nil {
		tb.Fatal(err)
	}
	return client
}

// Credentials are those that the server accepts.
func Credentials() *credentials.Credentials { return credentials.NewStaticV4(AccessKey, SecretKey, "") }

// Limited are credentials that may do in a bucket what a policy of these actions allows, and nothing else.
func (s *Server) Limited(tb testing.TB, bucket string, actions ...string) *credentials.Credentials {
	tb.Helper()
	type statement struct {
		Effect, Principal, Resource string
		Action                      []string
	}
	of := func(resource string, isOfBucket bool) statement {
		one := statement{Effect: "Allow", Principal: limitedKey, Resource: "arn:aws:s3:::" + resource}
		for _, action := range actions {
			if strings.Contains(action, "Bucket") == isOfBucket {
				one.Action = append(one.Action, action)
			}
		}
		return one
	}
	policy, err := json.Marshal(struct {
		Version   string
		Statement []statement
	}{"2012-10-17", []statement{of(bucket, true), of(bucket+"/*", false)}})
	if err == nil {
		err = s.Client.SetBucketPolicy(tb.Context(), bucket, string(policy))
	}
	if err != nil {
		tb.Fatal(err)
	}
	return credentials.NewStaticV4(limitedKey, SecretKey, "")
}

// Environ is what a program needs to find the credentials.
func Environ() []string {
	return []string{"AWS_ACCESS_KEY_ID=" + AccessKey, "AWS_SECRET_ACCESS_KEY=" + SecretKey}
}

// Bucket makes one, with object lock or without it or versions.
func (s *Server) Bucket(tb testing.TB, isLocked bool) string {
	tb.Helper()
	name := fmt.Sprintf("bucket-%d", s.buckets.Add(1))
	err := s.Client.MakeBucket(tb.Context(), name, minio.MakeBucketOptions{Region: Region, ObjectLocking: isLocked})
	if err != nil {
		tb.Fatal(err)
	}
	return name
}

// Fault is what happens to one call.
type Fault int

// Faults of a call.
const (
	None       Fault = iota
	LostCall         // it does not reach the server
	LostAnswer       // the server carries it out, the answer does not come back
	Busy             // 503 instead
	Silence          // it reaches the server, and nothing comes back until the caller gives up
)

// Faults passes calls on, and lets one of them fail. Any goroutine.
type Faults struct {
	Next  http.RoundTripper
	mutex sync.Mutex
	calls int
	plan  func(call int, request *http.Request) Fault
}

// Plan says what happens to each call, counted from 1 again.
func (f *Faults) Plan(plan func(call int, request *http.Request) Fault) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.calls, f.plan = 0, plan
}

// Calls counts those since Plan.
func (f *Faults) Calls() int {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.calls
}

// ErrLost is the fault of a connection.
var ErrLost = errors.New("connection lost by the test")

// RoundTrip is that of http.RoundTripper.
func (f *Faults) RoundTrip(request *http.Request) (*http.Response, error) {
	f.mutex.Lock()
	f.calls++
	fault := None
	if f.plan != nil {
		fault = f.plan(f.calls, request)
	}
	f.mutex.Unlock()
	switch fault {
	case LostCall:
		return nil, &lostError{}
	case Busy:
		return &http.Response{
			StatusCode: http.StatusServiceUnavailable, Header: http.Header{}, Request: request, Body: http.NoBody,
			Status: "503 Service Unavailable", ProtoMajor: 1, ProtoMinor: 1,
		}, nil
	case LostAnswer, Silence:
		response, err := f.Next.RoundTrip(request.WithContext(context.WithoutCancel(request.Context())))
		if err == nil {
			response.Body.Close()
		}
		if fault == Silence {
			<-request.Context().Done()
			return nil, request.Context().Err()
		}
		return nil, &lostError{}
	}
	return f.Next.RoundTrip(request)
}

// lostError is a net.Error, as that of a connection that was reset.
type lostError struct{}

func (*lostError) Error() string   { return ErrLost.Error() }
func (*lostError) Timeout() bool   { return false }
func (*lostError) Temporary() bool { return true }
func (*lostError) Unwrap() error   { return ErrLost }
