package archive

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
)

// attack is one way to destroy a locked object.
type attack struct {
	name string
	// do attacks a version. The same call on the control must succeed.
	do func(ctx context.Context, key, id string) error
	// control is the lock of an object that do may destroy: what differs from the canary is the lock alone.
	control lock
	// isDone reports whether do had its effect on the control; nil: its answer is all there is to see.
	isDone func(v Version, err error) bool
}

// lock of an object; the zero value is none.
type lock struct {
	mode  minio.RetentionMode
	until time.Time
}

func (c *canary) attacks() []attack {
	compliance, governance := minio.Compliance, minio.Governance
	sooner, later := c.until.Add(-probeLock/2), c.until.Add(probeLock)
	free, bypassed := lock{}, lock{governance, c.until}
	return []attack{
		c.retain("shorten retention", lock{compliance, sooner}, false, free),
		c.retain("shorten retention with bypass", lock{compliance, sooner}, true, bypassed),
		c.retain("downgrade to GOVERNANCE", lock{governance, c.until}, false, free),
		c.retain("downgrade to GOVERNANCE with bypass", lock{governance, c.until}, true, lock{governance, later}),
		{name: "suspend versioning", do: c.suspend},
		{name: "overwrite", do: c.overwrite},
		{"delete", c.remove(false), free, isGone},
		{"delete with bypass", c.remove(true), bypassed, isGone},
		{"delete of several", c.removeSeveral, bypassed, isGone},
	}
}

func isGone(_ Version, err error) bool { return errors.Is(err, ErrNotFound) }

func (c *canary) retain(name string, to lock, isBypass bool, control lock) attack {
	do := func(ctx context.Context, key, id string) error {
		return c.bucket.retain(ctx, key, id, string(to.mode), to.until, isBypass)
	}
	return attack{name, do, control, func(v Version, err error) bool {
		return err == nil && v.Mode == string(to.mode) && v.RetainUntil.Equal(to.until)
	}}
}

func (c *canary) remove(isBypass bool) func(ctx context.Context, key, id string) error {
	return func(ctx context.Context, key, id string) error {
		b, options := c.bucket, minio.RemoveObjectOptions{VersionID: id, GovernanceBypass: isBypass}
		_, err := call(ctx, b, "delete version of "+key, func(ctx context.Context) (bool, error) {
			return true, b.core.RemoveObject(ctx, b.Bucket, key, options)
		})
		return err
	}
}

// removeSeveral deletes with the call that deletes up to a thousand, whose answer is a list.
func (c *canary) removeSeveral(ctx context.Context, key, id string) error {
	b := c.bucket
	_, err := call(ctx, b, "delete several of "+b.Bucket, func(ctx context.Context) (bool, error) {
		objects := make(chan minio.ObjectInfo, 1)
		objects <- minio.ObjectInfo{Key: key, VersionID: id}
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

// suspend tries to stop the bucket from keeping versions, and undoes it where that succeeds. There is one bucket only,
// so the control enables what is enabled: that takes the same permission.
func (c *canary) suspend(ctx context.Context, key, _ string) error {
	b := c.bucket
	enable := func(ctx context.Context) error {
		_, err := call(ctx, b, "enable versioning of "+b.Bucket, func(ctx context.Context) (bool, error) {
			return true, b.core.EnableVersioning(ctx, b.Bucket)
		})
		return err
	}
	if key != c.object.key {
		return enable(ctx)
	}
	_, err := call(ctx, b, "suspend versioning of "+b.Bucket, func(ctx context.Context) (bool, error) {
		return true, b.core.SuspendVersioning(ctx, b.Bucket)
	})
	if err != nil && !isUncertain(err) && ctx.Err() == nil {
		return err
	}
	suspendErr := err // it may have been carried out
	if err := enable(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf(
			"%w: versioning of bucket %s is or may be suspended and cannot be enabled: %w",
			ErrUnavailable,
			b.Bucket,
			err,
		)
	}
	return suspendErr
}

// overwrite puts other bytes under the same key, without a condition: a version beside the locked one, at most.
func (c *canary) overwrite(ctx context.Context, key, _ string) error {
	o, err := newObject(key, strings.NewReader("overwritten"), int64(len("overwritten")), nil)
	if err == nil {
		_, err = c.bucket.send(ctx, o, c.until, true)
	}
	return err
}

// try carries out an attack. It succeeded when the canary is not as it was, whatever the storage has answered; where
// the storage accepts what would weaken the lock, the attack has succeeded too. A refusal counts when the control was
// destroyed by the same call.
func (c *canary) try(ctx context.Context, a attack) error {
	control, err := c.tryControl(ctx, a)
	if err != nil {
		return err
	}
	attackErr := a.do(ctx, c.object.key, c.id)
	if isUncertain(attackErr) || ctx.Err() != nil {
		return fmt.Errorf("probe: %s: %w", a.name, errors.Join(attackErr, ctx.Err()))
	}
	finding := Finding{Attempt: a.name, Result: resultRefused}
	if attackErr != nil {
		finding.Detail = attackErr.Error()
	}
	damage := c.damage(ctx)
	if damage != nil && !errors.Is(damage, ErrNotKept) && !errors.Is(damage, ErrNotFound) {
		return fmt.Errorf("probe: look after %s: %w", a.name, damage)
	}
	if !time.Now().Before(c.until.Add(-probeLock / 2)) {
		return fmt.Errorf("probe: %s: %w: it took until %s, the object is locked until %s: nothing is known",
			a.name, ErrTimeout, time.Now().UTC().Format(time.RFC3339), c.until.Format(time.RFC3339))
	}
	switch {
	case damage != nil:
		finding.Result, finding.Detail = resultSucceeded, damage.Error()
	case attackErr == nil && a.name != "overwrite" && a.name != "delete of several":
		finding.Result, finding.Detail = resultSucceeded, "the storage accepts it"
	case control != nil:
		finding.Result = resultNotProved
		finding.Detail = "these credentials cannot do it where no lock forbids it: " + control.Error()
	}
	c.report.Findings = append(c.report.Findings, finding)
	if finding.Result == resultSucceeded {
		return c.plant(ctx) // the next attack gets one that is whole
	}
	return nil
}

// tryControl does to an object that may be destroyed what the attack does to the canary. failure says why that has not
// succeeded; then a refusal of the attack says nothing of the lock. What does not answer is the error.
func (c *canary) tryControl(ctx context.Context, a attack) (failure, err error) {
	b := c.bucket
	o, err := b.newCanary()
	if err != nil {
		return nil, err
	}
	options := o.options(a.control.until, false)
	options.Mode, options.RetainUntilDate = a.control.mode, a.control.until
	id, failure := b.sendWith(ctx, o, options)
	if failure == nil {
		failure = a.do(ctx, o.key, id)
	}
	if failure == nil && a.isDone != nil {
		if v, headErr := b.head(ctx, o.key, id); !a.isDone(v, headErr) {
			failure = errors.Join(fmt.Errorf("%w: the storage accepts it and does not do it", ErrNotKept), headErr)
		}
	}
	if isUncertain(failure) || ctx.Err() != nil {
		return nil, fmt.Errorf("probe: control of %s: %w", a.name, errors.Join(failure, ctx.Err()))
	}
	return failure, nil
}
