package target

import (
	"fmt"
	"time"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// A ring that cannot be made now is tried again after a pause that doubles from the first to the last of these.
const (
	unmadePauseFirst = time.Second
	unmadePauseMax   = time.Minute
)

// unmade is a ring that could not be made.
type unmade struct {
	at     site
	err    error // of the last attempt; nil: the goroutine has made it, and no look has seen it yet
	pause  time.Duration
	next   time.Time // not tried again before
	isBusy bool      // a goroutine tries it
}

// provide makes a ring: at once when that was not tried yet, and after a failure by a goroutine of its own. A disk that
// is full or does not answer may take its time each time, and neither fences nor looks at other rings wait for it.
func (t *Target) provide(at site, spec *api.RingSpec) (site, error) {
	name := spec.Stream.Spec.Name
	t.mutex.Lock()
	failed := t.unmade[name]
	if failed == nil {
		t.mutex.Unlock()
		at, err := t.form(at, spec)
		return t.recordAttempt(spec, at, err)
	}
	defer t.mutex.Unlock()
	if failed.err != nil && !failed.isBusy && !t.now().Before(failed.next) {
		failed.isBusy = true
		t.makers.Go(func() {
			formed, err := t.form(at, spec)
			_, _ = t.recordAttempt(spec, formed, err) // it is kept and logged
			t.requestReport()
		})
	}
	return failed.at, failed.err
}

// recordAttempt keeps how an attempt ended, and logs what was not said before.
func (t *Target) recordAttempt(spec *api.RingSpec, at site, err error) (site, error) {
	name := spec.Stream.Spec.Name
	t.mutex.Lock()
	defer t.mutex.Unlock()
	before := t.unmade[name]
	if err == nil {
		if before != nil {
			*before = unmade{at: at}
		}
		t.config.Logger.Info("created ring", "stream", name, "path", at.name(), "size_bytes",
			spec.Stream.Spec.RingSizeBytes)
		return at, nil
	}
	now := &unmade{at: at, err: fmt.Errorf("create ring %q: %w", at.name(), err), pause: unmadePauseFirst}
	if before != nil {
		now.pause = min(2*before.pause, unmadePauseMax)
	}
	now.next = t.now().Add(now.pause)
	if before == nil || before.err.Error() != now.err.Error() {
		t.config.Logger.Warn("cannot create a ring, retrying", "stream", name, "size_bytes",
			spec.Stream.Spec.RingSizeBytes, "after", now.pause, "error", oneLine(now.err))
	}
	t.unmade[name] = now
	return at, now.err
}

// isMaking reports whether a ring is being made at this moment. Its end, if that is wanted meanwhile, begins when it is
// there or is not.
func (t *Target) isMaking(spec *api.RingSpec) bool {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	one := t.unmade[spec.Stream.Spec.Name]
	return one != nil && one.isBusy
}

// isUnmade reports whether the last attempt to make a ring has failed.
func (t *Target) isUnmade(spec *api.RingSpec) bool {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	one := t.unmade[spec.Stream.Spec.Name]
	return one != nil && one.err != nil
}

// forgetUnmade lets go of what was made, and of what is not to be made any more: when that is wanted again, it is tried
// at once.
func (t *Target) forgetUnmade(wanted []*api.RingSpec) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if len(t.unmade) == 0 {
		return
	}
	isWanted := map[string]bool{}
	for _, spec := range wanted {
		isWanted[spec.Stream.Spec.Name] = spec.Deletion == api.DeletionStage_DELETION_STAGE_UNSPECIFIED
	}
	for name, one := range t.unmade {
		if !one.isBusy && (one.err == nil || !isWanted[name]) {
			delete(t.unmade, name)
		}
	}
}
