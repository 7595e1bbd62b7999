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
	"net/http"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
)

// partsMax is how many parts S3 takes.
const partsMax = 10_000

// sendParts puts an object in parts, each under a deadline of its own. An upload that an attempt before began is
// resumed: parts with the same bytes stay.
func (b *Bucket) sendParts(ctx context.Context, o object, until time.Time) (string, error) {
	part := b.part
	if o.size > part*partsMax {
		part = (o.size/partsMax/readBytes + 1) * readBytes
	}
	upload, there, err := b.findUpload(ctx, o)
	if err == nil && upload == "" {
		options := o.options(until, true) // the condition is of the call that completes
		options.UserMetadata["x-amz-checksum-algorithm"] = "SHA256"
		upload, err = call(ctx, b, "begin parts of "+b.Bucket+"/"+o.key, func(ctx context.Context) (string, error) {
			return b.core.NewMultipartUpload(ctx, b.Bucket, o.key, options)
		})
	}
	if err != nil {
		return "", err
	}
	var parts []minio.CompletePart
	for off := int64(0); off < o.size; off += part {
		content := io.NewSectionReader(o.content, off, min(part, o.size-off))
		sent, err := b.sendPart(ctx, o, upload, len(parts)+1, content, there)
		if err != nil {
			return "", err
		}
		parts = append(parts, sent)
	}
	options := minio.PutObjectOptions{}
	options.SetMatchETagExcept("*")
	info, err := call(ctx, b, "complete "+b.Bucket+"/"+o.key, func(ctx context.Context) (minio.UploadInfo, error) {
		return b.core.CompleteMultipartUpload(ctx, b.Bucket, o.key, upload, parts, options)
	})
	if errors.Is(err, ErrNotFound) { // completed before, the answer was lost; or aborted: the next attempt sees which
		err = fmt.Errorf("%w: %w", errExists, err)
	}
	return info.VersionID, err
}

// findUpload gives the newest upload of an object that was begun and not completed, and its parts by number.
func (b *Bucket) findUpload(ctx context.Context, o object) (string, map[int]minio.ObjectPart, error) {
	found, err := call(ctx, b, "list begun uploads of "+b.Bucket+"/"+o.key,
		func(ctx context.Context) (minio.ListMultipartUploadsResult, error) {
			return b.core.ListMultipartUploads(ctx, b.Bucket, o.key, "", "", "", partsMax/10)
		})
	if err != nil {
		return "", nil, err
	}
	upload, begun := "", time.Time{}
	for _, one := range found.Uploads {
		if one.Key == o.key && !one.Initiated.Before(begun) {
			upload, begun = one.UploadID, one.Initiated
		}
	}
	if upload == "" {
		return "", nil, nil
	}
	there := map[int]minio.ObjectPart{}
	for marker := 0; ; {
		page, err := call(ctx, b, "list parts of "+b.Bucket+"/"+o.key,
			func(ctx context.Context) (minio.ListObjectPartsResult, error) {
				return b.core.ListObjectParts(ctx, b.Bucket, o.key, upload, marker, partsMax/10)
			})
		if errors.Is(err, ErrNotFound) {
			return "", nil, nil
		}
		if err != nil {
			return "", nil, err
		}
		for _, one := range page.ObjectParts {
			one.ETag = strings.Trim(one.ETag, `"`)
			there[one.PartNumber] = one
		}
		if !page.IsTruncated || page.NextPartNumberMarker <= marker {
			return upload, there, nil
		}
		marker = page.NextPartNumberMarker
	}
}

// sendPart puts one part, unless it is there with the same bytes: its ETag is its MD5, where the storage does not
// encrypt.
func (b *Bucket) sendPart(ctx context.Context, o object, upload string, number int, content *io.SectionReader,
	there map[int]minio.ObjectPart,
) (minio.CompletePart, error) {
	//lint:ignore G401 Content-MD5
	sum, check := md5.New(), sha256.New()
	if _, err := io.Copy(io.MultiWriter(sum, check), content); err != nil {
		return minio.CompletePart{}, fmt.Errorf("read %s: %w", o.key, err)
	}
	checksum := base64.StdEncoding.EncodeToString(check.Sum(nil))
	if one, isThere := there[number]; isThere && one.Size == content.Size() &&
		one.ETag == hex.EncodeToString(sum.Sum(nil)) {
		return minio.CompletePart{PartNumber: number, ETag: one.ETag, ChecksumSHA256: checksum}, nil
	}
	header := http.Header{}
	header.Set("x-amz-checksum-sha256", checksum)
	sent, err := call(ctx, b, fmt.Sprintf("put part %d of %s/%s", number, b.Bucket, o.key),
		func(ctx context.Context) (minio.ObjectPart, error) {
			if _, err := content.Seek(0, io.SeekStart); err != nil {
				return minio.ObjectPart{}, err
			}
			return b.core.PutObjectPart(ctx, b.Bucket, o.key, upload, number, content, content.Size(),
				minio.PutObjectPartOptions{
					Md5Base64: base64.StdEncoding.EncodeToString(sum.Sum(nil)),
					Sha256Hex: hex.EncodeToString(check.Sum(nil)), CustomHeader: header,
				})
		})
	return minio.CompletePart{PartNumber: number, ETag: sent.ETag, ChecksumSHA256: checksum}, err
}
