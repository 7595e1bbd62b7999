package archive

import (
	"context"
	"crypto/sha256"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// Sizes and times of calls.
const (
	CallTimeoutDefault = time.Minute
	partBytesDefault   = 32 << 20 // what is above is sent in parts of this size
	readBytes          = 8 << 20  // that one call reads at most
	clockSkewMax       = 5 * time.Minute
)

// Options of a connection to an archive.
type Options struct {
	Location
	Credentials *credentials.Credentials // nil = Credentials()
	Transport   http.RoundTripper        // nil = one of its own; tests fail calls by it
	CallTimeout time.Duration            // of one call; 0 = CallTimeoutDefault

	partBytes int64 // 0 = partBytesDefault
}

// Bucket is the archive's only way to the storage. Each call has a deadline and is made once: who makes it says what a
// lost answer means. Any goroutine.
type Bucket struct {
	Location
	core      *minio.Core
	transport http.RoundTripper
	timeout   time.Duration
	part      int64
}

// Version is one version of an object.
type Version struct {
	Key, ID      string
	Size         int64
	ModifiedAt   time.Time
	IsMarker     bool // a delete marker
	Mode         string
	RetainUntil  time.Time
	Metadata     map[string]string // names in lower case
	sha256Base64 string            // as the storage has it; "" = it does not say
}

// Open prepares a connection; the first call makes it. Errors: ErrInvalid, ErrCredentials.
func Open(options Options) (*Bucket, error) {
	endpoint, err := url.Parse(options.Endpoint)
	if err != nil || endpoint.Host == "" {
		return nil, fmt.Errorf("%w: endpoint %q: expected https://HOST", ErrInvalid, withoutUser(options.Endpoint))
	}
	if options.Credentials == nil {
		if options.Credentials, err = Credentials(); err != nil {
			return nil, err
		}
	}
	if options.Transport == nil {
		if options.Transport, err = minio.DefaultTransport(endpoint.Scheme == "https"); err != nil {
			return nil, fmt.Errorf("%w: endpoint %q: %w", ErrInvalid, withoutUser(options.Endpoint), err)
		}
	}
	core, err := minio.NewCore(endpoint.Host, &minio.Options{
		Creds: options.Credentials, Secure: endpoint.Scheme == "https", Transport: options.Transport,
		Region: options.Region, BucketLookup: minio.BucketLookupPath, MaxRetries: 1, TrailingHeaders: true,
	})
	if err != nil {
		return nil, fmt.Errorf("%w: endpoint %q: %w", ErrInvalid, withoutUser(options.Endpoint), err)
	}
	b := &Bucket{
		Location: options.Location, core: core, transport: options.Transport, timeout: options.CallTimeout,
		part: options.partBytes,
	}
	if b.timeout <= 0 {
		b.timeout = CallTimeoutDefault
	}
	if b.part <= 0 {
		b.part = partBytesDefault
	}
	return b, nil
}

// call does one call, with a deadline, and names what went wrong.
func call[T any](ctx context.Context, b *Bucket, what string, do func(ctx context.Context) (T, error)) (T, error) {
	inTime, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	result, err := do(inTime)
	if err != nil && ctx.Err() == nil && inTime.Err() != nil {
		err = context.DeadlineExceeded
	}
	return result, explain(fmt.Sprintf("%s at %s", what, withoutUser(b.Endpoint)), err)
}

// list gives all versions and delete markers of keys that begin so, in the order of keys, the oldest first of each.
func (b *Bucket) list(ctx context.Context, prefix string, visit func(Version) error) error {
	for after, isEnd := "", false; !isEnd; {
		page, err := call(ctx, b, "list "+b.Bucket+"/"+prefix, func(ctx context.Context) ([]Version, error) {
			return b.listPage(ctx, prefix, after)
		})
		if err != nil {
			return err
		}
		isEnd = len(page) < pageVersions
		for len(page) > 0 {
			after = page[0].Key
			end := slices.IndexFunc(page, func(v Version) bool { return v.Key != after })
			if end < 0 {
				end = len(page)
			}
			slices.Reverse(page[:end]) // S3 lists the newest version of a key first
			for _, version := range page[:end] {
				if err := visit(version); err != nil {
					return err
				}
			}
			page = page[end:]
		}
	}
	return nil
}

// pageVersions is how many versions are listed under one deadline, and all of the last key.
const pageVersions = 5000

func (b *Bucket) listPage(ctx context.Context, prefix, after string) (page []Version, err error) {
	options := minio.ListObjectsOptions{Prefix: prefix, Recursive: true, WithVersions: true, StartAfter: after}
	for info := range b.core.ListObjectsIter(ctx, b.Bucket, options) {
		if info.Err != nil {
			return nil, info.Err
		}
		if len(page) >= pageVersions && page[len(page)-1].Key != info.Key {
			return page, nil
		}
		page = append(page, Version{
			Key: info.Key, ID: info.VersionID, Size: info.Size, ModifiedAt: info.LastModified,
			IsMarker: info.IsDeleteMarker,
		})
	}
	return page, ctx.Err()
}

// versions gives the versions of one key, the oldest first.
func (b *Bucket) versions(ctx context.Context, key string) (list []Version, err error) {
	err = b.list(ctx, key, func(v Version) error {
		if v.Key == key {
			list = append(list, v)
		}
		return nil
	})
	return list, err
}

// head asks for size, retention and metadata of a version.
func (b *Bucket) head(ctx context.Context, key, id string) (Version, error) {
	return call(ctx, b, "read retention of "+b.Bucket+"/"+key, func(ctx context.Context) (Version, error) {
		info, err := b.core.StatObject(ctx, b.Bucket, key, minio.StatObjectOptions{VersionID: id, Checksum: true})
		if err != nil {
			return Version{}, err
		}
		if err := checkClock(info.Headers.Get("Date"), time.Now()); err != nil {
			return Version{}, err
		}
		v := Version{
			Key: key, ID: info.VersionID, Size: info.Size, ModifiedAt: info.LastModified, IsMarker: info.IsDeleteMarker,
			Mode: info.Metadata.Get("X-Amz-Object-Lock-Mode"), Metadata: map[string]string{},
			sha256Base64: info.ChecksumSHA256,
		}
		for name, value := range info.UserMetadata {
			v.Metadata[strings.ToLower(name)] = value
		}
		until := info.Metadata.Get("X-Amz-Object-Lock-Retain-Until-Date")
		if until == "" { // versitygw does not say it of versions that are not the latest
			v.Mode, v.RetainUntil, err = b.retention(ctx, key, id)
			return v, err
		}
		v.RetainUntil, err = time.Parse(time.RFC3339, until)
		return v, err
	})
}

// checkClock compares the clocks of the storage and of this host: by the one a lock ends, by the other its end is set.
func checkClock(date string, now time.Time) error {
	there, err := http.ParseTime(date)
	if err != nil {
		return fmt.Errorf("%w: the storage says %q, expected the time", ErrClock, date)
	}
	if skew := now.Sub(there); skew.Abs() > clockSkewMax {
		return fmt.Errorf("%w: it is %s here and %s there, expected less than %s between them: mend the clock that is "+
			"wrong", ErrClock, now.UTC().Format(time.RFC3339), there.UTC().Format(time.RFC3339), clockSkewMax)
	}
	return nil
}

// retention asks for that of a version by the call that is for it; "" = it has none. The client's own function refuses
// answers whose root is not as that of AWS.
func (b *Bucket) retention(ctx context.Context, key, id string) (mode string, until time.Time, err error) {
	signed, err := b.core.Presign(ctx, http.MethodGet, b.Bucket, key, b.timeout+time.Minute,
		url.Values{"retention": {""}, "versionId": {id}})
	if err != nil {
		return "", until, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, signed.String(), nil)
	if err != nil {
		return "", until, err
	}
	response, err := b.transport.RoundTrip(request)
	if err != nil {
		return "", until, withoutURL(err)
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(response.Body, 1<<16))
	if err != nil {
		return "", until, err
	}
	if response.StatusCode != http.StatusOK {
		failure := minio.ErrorResponse{StatusCode: response.StatusCode, Message: response.Status}
		_ = xml.Unmarshal(raw, &failure) // the status says enough
		if failure.Code == "NoSuchObjectLockConfiguration" {
			return "", until, nil
		}
		return "", until, failure
	}
	var answer struct {
		Mode            string
		RetainUntilDate time.Time
	}
	if err := xml.Unmarshal(raw, &answer); err != nil {
		return "", until, fmt.Errorf("%w: retention of %s: %w", ErrUnavailable, key, err)
	}
	return answer.Mode, answer.RetainUntilDate, nil
}

// withoutURL leaves out what was asked for: a signature is in it.
func withoutURL(err error) error {
	var asked *url.Error
	if errors.As(err, &asked) {
		return asked.Err
	}
	return err
}

// readAt reads a part of a version in one call; all of it, or an error.
func (b *Bucket) readAt(ctx context.Context, key, id string, raw []byte, off int64) error {
	if len(raw) == 0 {
		return nil
	}
	_, err := call(ctx, b, "read "+b.Bucket+"/"+key, func(ctx context.Context) (bool, error) {
		options := minio.GetObjectOptions{VersionID: id}
		if err := options.SetRange(off, off+int64(len(raw))-1); err != nil {
			return false, err
		}
		body, _, _, err := b.core.GetObject(ctx, b.Bucket, key, options)
		if err != nil {
			return false, err
		}
		defer body.Close()
		_, err = io.ReadFull(body, raw)
		return true, err
	})
	return err
}

// hash reads all of a version.
func (b *Bucket) hash(ctx context.Context, v Version) (digest [sha256.Size]byte, err error) {
	sum, buf := sha256.New(), make([]byte, min(v.Size, readBytes))
	for off := int64(0); off < v.Size; off += int64(len(buf)) {
		buf = buf[:min(int64(len(buf)), v.Size-off)]
		if err := b.readAt(ctx, v.Key, v.ID, buf, off); err != nil {
			return digest, err
		}
		_, _ = sum.Write(buf)
	}
	return [sha256.Size]byte(sum.Sum(nil)), nil
}

// read gives a small object.
func (b *Bucket) read(ctx context.Context, v Version, limit int64) ([]byte, error) {
	if v.Size > limit {
		return nil, fmt.Errorf("%w: object %s has %d bytes, expected at most %d", ErrNotAnArchive, v.Key, v.Size, limit)
	}
	raw := make([]byte, v.Size)
	return raw, b.readAt(ctx, v.Key, v.ID, raw, 0)
}

// retain sets the retention of a version; the storage refuses to shorten one.
func (b *Bucket) retain(ctx context.Context, key, id, mode string, until time.Time, isBypass bool) error {
	lock := minio.RetentionMode(mode)
	_, err := call(ctx, b, "set retention of "+b.Bucket+"/"+key, func(ctx context.Context) (bool, error) {
		return true, b.core.PutObjectRetention(ctx, b.Bucket, key, minio.PutObjectRetentionOptions{
			Mode: &lock, RetainUntilDate: &until, VersionID: id, GovernanceBypass: isBypass,
		})
	})
	return err
}

// Check reports whether the bucket can hold an archive: it is there, keeps versions, and has object lock. Errors:
// ErrEndpoint, ErrTimeout, ErrCredentials, ErrDenied, ErrRegion, ErrNoBucket, ErrNoVersioning, ErrNoLock,
// ErrDefaultRetention, ErrClock.
func (b *Bucket) Check(ctx context.Context, keep Period) error {
	versioning, err := call(ctx, b, "read versioning of bucket "+b.Bucket,
		func(ctx context.Context) (minio.BucketVersioningConfiguration, error) {
			return b.core.GetBucketVersioning(ctx, b.Bucket)
		})
	if err != nil {
		return err
	}
	if !versioning.Enabled() || len(versioning.ExcludedPrefixes) > 0 || versioning.ExcludeFolders {
		return fmt.Errorf("%w: versioning of bucket %s is %q, expected Enabled for all of it: create the bucket with "+
			"object lock", ErrNoVersioning, b.Bucket, versioning.Status)
	}
	rule, err := call(ctx, b, "read object lock of bucket "+b.Bucket, func(ctx context.Context) (lockRule, error) {
		enabled, mode, validity, unit, err := b.core.GetObjectLockConfig(ctx, b.Bucket)
		return lockRule{enabled, mode, validity, unit}, err
	})
	if err == nil && rule.enabled != "Enabled" {
		err = fmt.Errorf("object lock of bucket %s is %q", b.Bucket, rule.enabled)
	}
	if err != nil && !isUncertain(err) && !errors.Is(err, ErrDenied) {
		return fmt.Errorf("%w: %w: expected Enabled: create a bucket with object lock", ErrNoLock, err)
	}
	if err != nil {
		return err
	}
	return rule.check(b.Bucket, keep, time.Now())
}

// lockRule is a bucket's default retention.
type lockRule struct {
	enabled  string
	mode     *minio.RetentionMode
	validity *uint
	unit     *minio.ValidityUnit
}

// check refuses a default that is shorter than what is kept: a client that forgot to ask would leave objects with it.
// None is as good as a longer one: each object is given its own.
func (r lockRule) check(bucket string, keep Period, now time.Time) error {
	if r.mode == nil || r.validity == nil || r.unit == nil {
		return nil
	}
	rule := Period{days: int(*r.validity), text: fmt.Sprintf("%d %s", *r.validity, strings.ToLower(string(*r.unit)))}
	if *r.unit == minio.Years {
		rule.years, rule.days = rule.days, 0
	}
	if rule.After(now).Before(keep.After(now)) {
		return fmt.Errorf(
			"%w: bucket %s locks for %s (%s), objects are to be kept for %s: remove the bucket's default "+
				"or make it at least as long",
			ErrDefaultRetention,
			bucket,
			rule.text,
			*r.mode,
			keep.text,
		)
	}
	return nil
}
