package archive

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
)

// probePrefix is below that of the archive. What lies there means nothing.
const probePrefix = "probe/"

// probeLock is how long a canary is locked. What it is for is done in a few calls, each of which ends by its deadline.
const probeLock = 10 * time.Minute

// Finding is what one attempt of a probe came to.
type Finding struct {
	Attempt string `json:"attempt"`
	// Result is "refused" or "enforced", as it must be, "ignored" of what an archive can do without, "succeeded" of
	// what destroys, or "not proved" when the same call failed where no lock forbids it, too.
	Result string `json:"result"`
	Detail string `json:"detail,omitempty"`
}

// ProbeReport is what a probe found.
type ProbeReport struct {
	Archive  string    `json:"archive"`
	Findings []Finding `json:"findings"`
}

// Results of an attempt.
const (
	resultRefused   = "refused"
	resultEnforced  = "enforced"
	resultIgnored   = "ignored"
	resultSucceeded = "succeeded"
	resultNotProved = "not proved"
)

// Err says which attempts to destroy a locked object succeeded, or prove nothing. Errors: ErrRefused, ErrNotProved.
func (r ProbeReport) Err() error {
	named := map[string][]string{}
	for _, one := range r.Findings {
		named[one.Result] = append(named[one.Result], one.Attempt)
	}
	if bad := named[resultSucceeded]; bad != nil {
		return fmt.Errorf("%w: %s: these succeeded on a locked object: %s: do not trust it with an archive", ErrRefused,
			r.Archive, strings.Join(bad, ", "))
	}
	if open := named[resultNotProved]; open != nil {
		return fmt.Errorf("%w: %s: these fail without a lock too: %s: run farlog archive probe with credentials that "+
			"may delete versions, bypass retention, set it, and enable versioning; the bucket must have no default "+
			"retention meanwhile", ErrNotProved, r.Archive, strings.Join(open, ", "))
	}
	return nil
}

// canary is a locked object that a probe attacks.
type canary struct {
	bucket *Bucket
	object object
	id     string
	until  time.Time
	report *ProbeReport
}

// Probe puts a locked object and tries to destroy it in each way that S3 has, and looks after each whether it is as it
// was. A refusal proves the lock only when the same credentials may do the same where no lock forbids it; so each
// attack is first carried out on an object of its own, the control. What cannot be asked, since the storage does not
// answer, is an error: then nothing is known. What is proved, or refuted, is noted under the prefix (wasProved). The
// objects stay until their locks end; the next probe removes them.
func (b *Bucket) Probe(ctx context.Context) (ProbeReport, error) {
	report := ProbeReport{Archive: b.Location.String()}
	b.removeCanaries(ctx)
	c := &canary{bucket: b, report: &report}
	if err := c.plant(ctx); err != nil {
		return report, err
	}
	for i := range c.attacks() {
		if time.Until(c.until) < probeLock*3/4 { // the storage is slow
			if err := c.plant(ctx); err != nil {
				return report, err
			}
		}
		if err := c.try(ctx, c.attacks()[i]); err != nil {
			return report, err
		}
	}
	if err := c.tryConditions(ctx); err != nil {
		return report, err
	}
	found := report.Err()
	if errors.Is(found, ErrNotProved) {
		return report, nil // no note of a probe with other credentials is better or worse for it
	}
	if err := b.noteProof(ctx, report); err != nil {
		return report, errors.Join(found, err)
	}
	return report, nil
}

// newCanary is an object of random bytes under a name that no other has.
func (b *Bucket) newCanary() (object, error) {
	raw := make([]byte, 64)
	_, _ = rand.Read(raw) // never fails
	return newObject(b.key(probePrefix+hex.EncodeToString(raw[:8])), bytes.NewReader(raw), int64(len(raw)), nil)
}

// plant puts a locked object.
func (c *canary) plant(ctx context.Context) (err error) {
	if c.object, err = c.bucket.newCanary(); err != nil {
		return err
	}
	c.until = time.Now().UTC().Add(probeLock).Truncate(time.Second)
	v, err := c.bucket.put(ctx, c.object, c.until)
	if err != nil {
		return fmt.Errorf("put a locked object: %w", err)
	}
	c.id = v.ID
	return nil
}

// damage says how the canary differs from what it was.
func (c *canary) damage(ctx context.Context) error {
	v, err := c.bucket.head(ctx, c.object.key, c.id)
	if err != nil {
		return err
	}
	if v.Mode != string(minio.Compliance) || v.RetainUntil.Before(c.until) {
		return fmt.Errorf("%w: locked with %q until %s, it was COMPLIANCE until %s", ErrNotKept, v.Mode,
			v.RetainUntil.Format(time.RFC3339), c.until.Format(time.RFC3339))
	}
	digest, err := c.bucket.hash(ctx, v)
	if err == nil && digest != c.object.sha256 {
		err = fmt.Errorf("%w: it has other bytes", ErrNotKept)
	}
	return err
}

// tryConditions finds out which conditions the storage enforces. An archive can do without them: it looks before it
// puts, and reads back.
func (c *canary) tryConditions(ctx context.Context) error {
	b := c.bucket
	twice := c.object
	_, err := b.send(ctx, twice, c.until, false)
	if err := c.note("put only if absent (If-None-Match)", err, errors.Is(err, errExists)); err != nil {
		return err
	}
	wrong, err := newObject(c.object.key+"-wrong", strings.NewReader("right"), int64(len("right")), nil)
	if err != nil {
		return err
	}
	options := wrong.options(c.until, false)
	digest := sha256.Sum256([]byte("wrong"))
	options.UserMetadata["x-amz-checksum-sha256"] = base64.StdEncoding.EncodeToString(digest[:])
	_, err = call(ctx, b, "put with a wrong checksum", func(ctx context.Context) (minio.UploadInfo, error) {
		return b.core.PutObject(ctx, b.Bucket, wrong.key, strings.NewReader("right"), wrong.size, "",
			hex.EncodeToString(wrong.sha256[:]), options)
	})
	return c.note("put with a wrong checksum (SHA-256)", err, err != nil)
}

func (c *canary) note(attempt string, err error, isEnforced bool) error {
	if isUncertain(err) {
		return fmt.Errorf("probe: %s: %w", attempt, err)
	}
	finding := Finding{Attempt: attempt, Result: resultIgnored}
	if isEnforced {
		finding.Result = resultEnforced
	}
	c.report.Findings = append(c.report.Findings, finding)
	return nil
}

// removeCanaries removes what former probes have left and nothing locks any more. It may fail: they mean nothing.
func (b *Bucket) removeCanaries(ctx context.Context) {
	var old []Version
	err := b.list(ctx, b.key(probePrefix), func(v Version) error {
		age := 2 * probeLock
		if v.Key == b.key(proofFile) {
			age = proofAge
		}
		if time.Since(v.ModifiedAt) > age {
			old = append(old, v)
		}
		return nil
	})
	if err != nil {
		return
	}
	for _, v := range slices.Backward(old) {
		_, _ = call(ctx, b, "delete "+v.Key, func(ctx context.Context) (bool, error) {
			return true, b.core.RemoveObject(ctx, b.Bucket, v.Key, minio.RemoveObjectOptions{VersionID: v.ID})
		})
	}
}
