package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/minio/minio-go/v7"
)

// What a caller can act on; use errors.Is. The text names the object or the bucket, and what was expected.
var (
	// ErrEndpoint: nothing that speaks S3 answers at the endpoint.
	ErrEndpoint = errors.New("storage does not answer")
	// ErrTimeout: a call did not end by its deadline. It may have been carried out.
	ErrTimeout = errors.New("storage did not answer in time")
	// ErrUnavailable: the storage answered that it cannot, for now.
	ErrUnavailable = errors.New("storage is not available")
	// ErrCredentials: the storage does not accept the credentials, or there are none.
	ErrCredentials = errors.New("credentials are not accepted")
	// ErrDenied: the storage knows the credentials, and denies this call to them, or to everybody.
	ErrDenied = errors.New("access denied")
	// ErrRegion: the bucket is in another region, or requests have to be signed for another one.
	ErrRegion = errors.New("wrong region")
	// ErrNoBucket: there is no such bucket.
	ErrNoBucket = errors.New("no such bucket")
	// ErrNoLock: the bucket has no object lock.
	ErrNoLock = errors.New("bucket without object lock")
	// ErrNoVersioning: the bucket keeps no versions.
	ErrNoVersioning = errors.New("bucket without versioning")
	// ErrDefaultRetention: the bucket's default retention contradicts the one that is asked for.
	ErrDefaultRetention = errors.New("default retention of the bucket is in the way")
	// ErrOtherStore: what is under the prefix is of another store.
	ErrOtherStore = errors.New("archive of another store")
	// ErrNotAnArchive: under the prefix is something else, or nothing.
	ErrNotAnArchive = errors.New("not an archive")
	// ErrClock: the clock of this host and that of the storage differ.
	ErrClock = errors.New("clocks differ")
	// ErrConflict: an object has other bytes than the store. Nothing was overwritten.
	ErrConflict = errors.New("archive has other bytes than the store")
	// ErrGap: segments left the store before they were archived.
	ErrGap = errors.New("segments were removed before they were archived")
	// ErrNotKept: the storage did not keep what it confirmed: retention, size or bytes.
	ErrNotKept = errors.New("storage did not keep what it confirmed")
	// ErrRefused: the storage lets locked objects be destroyed.
	ErrRefused = errors.New("storage is refused")
	// ErrNotProved: no attack of a probe succeeded, but these credentials cannot do some of them without a lock either.
	ErrNotProved = errors.New("lock is not proved")
	// ErrNotFound: there is no such object or version.
	ErrNotFound = errors.New("no such object")
	// ErrInvalid: an argument is out of range.
	ErrInvalid = errors.New("invalid argument")

	errExists = errors.New("object exists")
)

// byCode says what the codes of S3 mean.
var byCode = map[string]error{
	minio.NoSuchBucket:                     ErrNoBucket,
	minio.NoSuchKey:                        ErrNotFound,
	"NoSuchVersion":                        ErrNotFound,
	"NotFound":                             ErrNotFound,
	"NoSuchUpload":                         ErrNotFound,
	minio.MethodNotAllowed:                 ErrNotFound, // of a delete marker
	"InvalidAccessKeyId":                   ErrCredentials,
	"SignatureDoesNotMatch":                ErrCredentials,
	"InvalidToken":                         ErrCredentials,
	"ExpiredToken":                         ErrCredentials,
	"InvalidSecurity":                      ErrCredentials,
	"XAdminUserNotFound":                   ErrCredentials,
	minio.AccessDenied:                     ErrDenied,
	"AuthorizationHeaderMalformed":         ErrRegion,
	"InvalidRegion":                        ErrRegion,
	"PermanentRedirect":                    ErrRegion,
	"IllegalLocationConstraintException":   ErrRegion,
	"RequestTimeTooSkewed":                 ErrClock,
	minio.PreconditionFailed:               errExists,
	"ConditionalRequestConflict":           errExists,
	"ObjectLockConfigurationNotFoundError": ErrNoLock,
}

// explain names what went wrong with a call.
func explain(what string, err error) error {
	if err == nil {
		return nil
	}
	var response minio.ErrorResponse
	var netErr net.Error
	switch {
	case errors.As(err, &response):
		named, isKnown := byCode[response.Code]
		switch {
		case isKnown:
		case response.StatusCode >= http.StatusInternalServerError ||
			response.StatusCode == http.StatusTooManyRequests || response.StatusCode == http.StatusRequestTimeout:
			named = ErrUnavailable
		case response.StatusCode == http.StatusMovedPermanently:
			named = ErrRegion
		case response.StatusCode == http.StatusPreconditionFailed:
			named = errExists
		default:
			return fmt.Errorf("%s: %s (%s, HTTP %d)", what, response.Message, response.Code, response.StatusCode)
		}
		return fmt.Errorf("%s: %w: %s (%s, HTTP %d)", what, named, response.Error(), response.Code,
			response.StatusCode)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s: %w", what, ErrTimeout)
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("%s: %w", what, err)
	case errors.As(err, &netErr), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		strings.Contains(err.Error(), "HTTP response to HTTPS client"):
		return fmt.Errorf("%s: %w: %w", what, ErrEndpoint, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// isUncertain reports whether a call may have been carried out although it failed, and may succeed when it is tried
// again.
func isUncertain(err error) bool {
	return errors.Is(err, ErrEndpoint) || errors.Is(err, ErrTimeout) || errors.Is(err, ErrUnavailable)
}
