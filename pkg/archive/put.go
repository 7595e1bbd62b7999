package archive

import (
	"context"
	//lint:ignore G501 S3 wants Content-MD5 of what it locks; beside it goes SHA-256
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/farlog/farlog/pkg/retry"
)

const (
	triesMax      = 5 // of one object, when the storage does not answer or says that it cannot
	retryShortest = 200 * time.Millisecond
	retryLongest  = 10 * time.Second
)

// object is what is to be in the bucket.
type object struct {
	key      string
	content  io.ReaderAt
	size     int64
	sha256   [sha256.Size]byte
	metadata map[string]string
	// isDerived: other bytes under the same key are no conflict, another version is put beside them.
	isDerived bool
}

// newObject reads the content once for its hash; also may have it too.
func newObject(key string, content io.ReaderAt, size int64, also io.Writer) (object, error) {
	o := object{key: key, content: content, size: size}
	sum := sha256.New()
	if also == nil {
		also = io.Discard
	}
	n, err := io.Copy(io.MultiWriter(sum, also), io.NewSectionReader(content, 0, size))
	if err == nil && n != size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return o, fmt.Errorf("read %s: %w", key, err)
	}
	o.sha256 = [sha256.Size]byte(sum.Sum(nil))
	return o, nil
}

// put makes an object be in the bucket once, locked, and read back. It looks first for a version that is there: what a
// process that was killed, or a call whose answer was lost, has left is taken when it has the same bytes, and nothing
// is put twice. What may succeed later is tried again, triesMax times. Errors: ErrConflict, ErrNotKept, and those of
// calls.
func (b *Bucket) put(ctx context.Context, o object, until time.Time) (Version, error) {
	delays := retry.New(retryShortest, retryLongest)
	for try := 1; ; try++ {
		v, err := b.putOnce(ctx, o, until)
		isAgain := isUncertain(err) || errors.Is(err, errExists)
		if err == nil || !isAgain || try == triesMax || ctx.Err() != nil {
			return v, err
		}
		if err := delays.Wait(ctx); err != nil {
			return v, err
		}
	}
}

func (b *Bucket) putOnce(ctx context.Context, o object, until time.Time) (Version, error) {
	there, err := b.versions(ctx, o.key)
	if err != nil {
		return Version{}, err
	}
	for _, v := range there {
		if v.IsMarker || v.Size != o.size {
			continue
		}
		v, err = b.confirm(ctx, o, v.ID, until)
		if err == nil || !errors.Is(err, ErrConflict) {
			return v, err
		}
	}
	isAny := false
	for _, v := range there {
		isAny = isAny || !v.IsMarker
	}
	if isAny && !o.isDerived {
		return Version{}, fmt.Errorf("%w: object %s has %d version(s), none with SHA-256 %x and %d bytes; nothing was "+
			"written", ErrConflict, o.key, len(there), o.sha256, o.size)
	}
	var id string
	if o.size > b.part {
		id, err = b.sendParts(ctx, o, until)
	} else {
		id, err = b.send(ctx, o, until, isAny)
	}
	if err != nil {
		return Version{}, err
	}
	if id == "" || id == "null" {
		return Version{}, fmt.Errorf("%w: bucket %s gave object %s no version", ErrNoVersioning, b.Bucket, o.key)
	}
	return b.confirm(ctx, o, id, until)
}

// options are what every object is put with. isOther: another version is there.
func (o object) options(until time.Time, isOther bool) minio.PutObjectOptions {
	options := minio.PutObjectOptions{
		ContentType: "application/octet-stream", Mode: minio.Compliance, RetainUntilDate: until.UTC(),
		UserMetadata: map[string]string{},
	}
	for name, value := range o.metadata {
		options.UserMetadata[name] = value
	}
	if !isOther {
		options.SetMatchETagExcept("*")
	}
	return options
}

// send puts an object in one call. Three hashes guard the way: MD5, the checksum, and the payload hash of the
// signature, since not every storage checks each of them.
func (b *Bucket) send(ctx context.Context, o object, until time.Time, isOther bool) (string, error) {
	return b.sendWith(ctx, o, o.options(until, isOther))
}

func (b *Bucket) sendWith(ctx context.Context, o object, options minio.PutObjectOptions) (string, error) {
	//lint:ignore G401 Content-MD5
	sum := md5.New()
	if _, err := io.Copy(sum, io.NewSectionReader(o.content, 0, o.size)); err != nil {
		return "", fmt.Errorf("read %s: %w", o.key, err)
	}
	options.UserMetadata["x-amz-checksum-sha256"] = base64.StdEncoding.EncodeToString(o.sha256[:])
	info, err := call(ctx, b, "put "+b.Bucket+"/"+o.key, func(ctx context.Context) (minio.UploadInfo, error) {
		return b.core.PutObject(ctx, b.Bucket, o.key, io.NewSectionReader(o.content, 0, o.size), o.size,
			base64.StdEncoding.EncodeToString(sum.Sum(nil)), hex.EncodeToString(o.sha256[:]), options)
	})
	return info.VersionID, err
}

// confirm reads a version back: size, retention, metadata, and every byte. A retention that is too short, as one that
// was set by an attempt before, is extended. Errors: ErrConflict (it has other bytes), ErrNotKept.
func (b *Bucket) confirm(ctx context.Context, o object, id string, until time.Time) (Version, error) {
	v, err := b.head(ctx, o.key, id)
	if err == nil && (v.Mode != string(minio.Compliance) || v.RetainUntil.Before(until)) {
		if v.Mode == "" || v.Mode == string(minio.Compliance) || v.Mode == string(minio.Governance) {
			err = b.retain(ctx, o.key, id, string(minio.Compliance), maxTime(until, v.RetainUntil), false)
		}
		if err == nil {
			v, err = b.head(ctx, o.key, id)
		}
	}
	if err != nil {
		return v, err
	}
	switch {
	case v.ID != id:
		return v, fmt.Errorf("%w: object %s: asked for version %q, got %q", ErrNotKept, o.key, id, v.ID)
	case v.Size != o.size:
		return v, fmt.Errorf("%w: object %s version %s has %d bytes, expected %d", ErrNotKept, o.key, id, v.Size,
			o.size)
	case v.Mode != string(minio.Compliance) || v.RetainUntil.Before(until):
		return v, fmt.Errorf("%w: object %s version %s is locked with %q until %s, expected COMPLIANCE until %s",
			ErrNotKept, o.key, id, v.Mode, v.RetainUntil.UTC().Format(time.RFC3339), until.Format(time.RFC3339))
	}
	digest, err := b.hash(ctx, v)
	if err != nil {
		return v, err
	}
	if digest != o.sha256 {
		return v, fmt.Errorf("%w: object %s version %s has SHA-256 %x, expected %x", ErrConflict, o.key, id, digest,
			o.sha256)
	}
	for name, want := range o.metadata {
		if v.Metadata[name] != want {
			return v, fmt.Errorf("%w: object %s version %s has %s %q, expected %q", ErrConflict, o.key, id, name,
				v.Metadata[name], want)
		}
	}
	return v, nil
}

func maxTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
