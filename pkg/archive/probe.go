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
	// Result is "refused" or "enforced", as it must be, "ignored" of what an archive can do without, or "succeeded" of
	// what destroys.
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
)

// Err says which attempts to destroy a locked object succeeded. Errors: ErrRefused.
func (r ProbeReport) Err() error {
	var bad []string
	for _, one := range r.Findings {
		if one.Result == resultSucceeded {
			bad = append(bad, one.Attempt)
		}
	}
	if bad == nil {
		return nil
	}
	return fmt.Errorf("%w: %s: these succeeded on a locked object: %s: do not trust it with an archive", ErrRefused,
		r.Archive, strings.Join(bad, ", "))
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
// was. What cannot be asked, since the storage does not answer, is an error: then nothing is known. The canary stays
// until its lock ends; the next probe removes it.
func (b *Bucket) Probe(ctx context.Context) (ProbeReport, error) {
	report := ProbeReport{Archive: b.Location.String()}
	b.removeCanaries(ctx)
	c := &canary{bucket: b, report: &report}
	if err := c.plant(ctx); err != nil {
		return report, err
	}
	for i := range c.attacks() {
		if err := c.try(ctx, c.attacks()[i]); err != nil {
			return report, err
		}
	}
	return report, c.tryConditions(ctx)
}

// plant puts a locked object.
func (c *canary) plant(ctx context.Context) (err error) {
	raw := make([]byte, 64)
	_, _ = rand.Read(raw) // never fails
	key := c.bucket.key(probePrefix + hex.EncodeToString(raw[:8]))
	if c.object, err = newObject(key, bytes.NewReader(raw), int64(len(raw)), nil); err != nil {
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

// attack is one way to destroy a locked object.
type attack struct {
	name string
	do   func(ctx context.Context) error
}

func (c *canary) attacks() []attack {
	b, key := c.bucket, c.object.key
	remove := func(options minio.RemoveObjectOptions) func(ctx context.Context) error {
		options.VersionID = c.id
		return func(ctx context.Context) error {
			_, err := call(ctx, b, "delete version of "+key, func(ctx context.Context) (bool, error) {
				return true, b.core.RemoveObject(ctx, b.Bucket, key, options)
			})
			return err
		}
	}
	retain := func(mode string, until time.Time, isBypass bool) func(ctx context.Context) error {
		return func(ctx context.Context) error { return b.retain(ctx, key, c.id, mode, until, isBypass) }
	}
	compliance, governance := string(minio.Compliance), string(minio.Governance)
	sooner := c.until.Add(-probeLock / 2)
	return []attack{
		{"shorten retention", retain(compliance, sooner, false)},
		{"shorten retention with bypass", retain(compliance, sooner, true)},
		{"downgrade to GOVERNANCE", retain(governance, c.until, false)},
		{"downgrade to GOVERNANCE with bypass", retain(governance, c.until, true)},
		{"suspend versioning", c.suspend},
		{"overwrite", c.overwrite},
		{"delete", remove(minio.RemoveObjectOptions{})},
		{"delete with bypass", remove(minio.RemoveObjectOptions{GovernanceBypass: true})},
		{"delete of several", c.removeSeveral},
	}
}

// try carries out an attack. It succeeded when the canary is not as it was, whatever the storage has answered; where
// the storage accepts what would weaken the lock, the attack has succeeded too.
func (c *canary) try(ctx context.Context, a attack) error {
	attackErr := a.do(ctx)
	if isUncertain(attackErr) || ctx.Err() != nil {
		return fmt.Errorf("probe: %s: %w", a.name, errors.Join(attackErr, ctx.Err()))
	}
	finding := Finding{Attempt: a.name, Result: resultRefused}
	if attackErr != nil {
		finding.Detail = attackErr.Error()
	}
	damage := c.damage(ctx)
	if isUncertain(damage) {
		return fmt.Errorf("probe: look after %s: %w", a.name, damage)
	}
	switch {
	case damage != nil:
		finding.Result, finding.Detail = resultSucceeded, damage.Error()
	case attackErr == nil && a.name != "overwrite" && a.name != "delete of several":
		finding.Result, finding.Detail = resultSucceeded, "the storage accepts it"
	}
	c.report.Findings = append(c.report.Findings, finding)
	if finding.Result == resultSucceeded {
		return c.plant(ctx) // the next attack gets one that is whole
	}
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

// suspend tries to stop the bucket from keeping versions, and undoes it where that succeeds.
func (c *canary) suspend(ctx context.Context) error {
	b := c.bucket
	_, err := call(ctx, b, "suspend versioning of "+b.Bucket, func(ctx context.Context) (bool, error) {
		return true, b.core.SuspendVersioning(ctx, b.Bucket)
	})
	if err != nil {
		return err
	}
	_, err = call(ctx, b, "enable versioning of "+b.Bucket, func(ctx context.Context) (bool, error) {
		return true, b.core.EnableVersioning(ctx, b.Bucket)
	})
	if err != nil {
		return fmt.Errorf("%w: versioning of bucket %s was suspended and cannot be enabled again: %w", ErrUnavailable,
			b.Bucket, err)
	}
	return nil
}

// overwrite puts other bytes under the same key, without a condition: a version beside the locked one, at most.
func (c *canary) overwrite(ctx context.Context) error {
	o, err := newObject(c.object.key, strings.NewReader("overwritten"), int64(len("overwritten")), nil)
	if err == nil {
		_, err = c.bucket.send(ctx, o, c.until, true)
	}
	return err
}

// removeSeveral deletes with the call that deletes up to a thousand, whose answer is a list.
func (c *canary) removeSeveral(ctx context.Context) error {
	b := c.bucket
	_, err := call(ctx, b, "delete several of "+b.Bucket, func(ctx context.Context) (bool, error) {
		objects := make(chan minio.ObjectInfo, 1)
		objects <- minio.ObjectInfo{Key: c.object.key, VersionID: c.id}
		close(objects)
		for failure := range b.core.RemoveObjects(ctx, b.Bucket, objects, minio.RemoveObjectsOptions{
			GovernanceBypass: true,
		}) {
			return false, failure.Err
		}
		return true, ctx.Err()
	})
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
		if time.Since(v.ModifiedAt) > 2*probeLock {
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
