package target

import (
	"bytes"
	"errors"
	"fmt"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/farlog"
)

// end does what is wanted of the ring of a stream that is being deleted. While it is drained: no writer below the fence
// comes in again, and the ring says that it is closed when none is in. Then it is removed, by a call that takes its
// locks and looks once more whether there is anything in it: whatever the control plane believes, no record goes that
// is not below the head.
func (t *Target) end(spec *api.RingSpec, at site, before []Ring) Ring {
	name := spec.Stream.Spec.Name
	isRemoving := spec.Deletion == api.DeletionStage_DELETION_STAGE_REMOVING
	if spec.Subsystem != "" && t.regionOfNamespace(spec.Subsystem) == "" {
		return t.describeRing(name, at, errUndeclared(spec.Subsystem), before)
	}
	status, err := farlog.Inspect(at.uri)
	if errors.Is(err, farlog.ErrNotFound) && (isRemoving || !t.wasProvided(spec)) {
		return t.removedRing(spec, at, isRemoving)
	}
	if errors.Is(err, farlog.ErrNotFound) {
		err = missing(at, spec.Stream.Spec)
	}
	if err == nil && len(spec.RingUuid) > 0 && !bytes.Equal(spec.RingUuid, status.RingUUID[:]) {
		err = fmt.Errorf("%s %q holds ring %x, expected ring %x of stream %q, which is to be deleted: nothing is "+
			"removed", at.kind(), at.name(), status.RingUUID, spec.RingUuid, name)
	}
	if err == nil {
		err = checkIdentity(at, status, spec.Stream)
	}
	if err == nil && isRemoving {
		return t.remove(spec, at, before)
	}
	if least := spec.GetAdmission().GetEpochMin(); err == nil && status.EpochMin < least {
		err = farlog.Fence(at.uri, least)
	}
	ring := t.describeRing(name, at, err, before)
	if spec.Subsystem != "" {
		ring = t.admitToNamespace(spec, ring)
		ring.State.Closed = isClosed(spec, ring.State, true)
		return ring
	}
	if len(ring.State.RingUuid) > 0 {
		t.remote.setWanted(spec, ring.State.Uri, ring.State.RingUuid)
	}
	t.remote.describe(ring.State)
	ring.State.Closed = isClosed(spec, ring.State, len(t.remote.listeners) > 0)
	return ring
}

// isClosed reports whether nobody can write who was granted the ring: the fence is up, here and at the listeners, and
// no writer has its lock.
func isClosed(spec *api.RingSpec, state *api.RingState, hasListeners bool) bool {
	least := spec.GetAdmission().GetEpochMin()
	return state.Error == "" && len(state.RingUuid) > 0 && !state.WriterHeld && state.EpochMin >= least &&
		(!hasListeners || state.EpochFenced >= least)
}

// remove takes an empty ring away. Who is still in it keeps it: the next look tries again.
func (t *Target) remove(spec *api.RingSpec, at site, before []Ring) Ring {
	name := spec.Stream.Spec.Name
	if spec.Subsystem != "" {
		ring := t.admitToNamespace(spec, t.describeRing(name, at, nil, before))
		if ring.State.Error != "" || ring.State.WriterHeld {
			return ring // a writer of another host has come meanwhile
		}
	}
	if !t.remote.drop(name) {
		return t.describeRing(name, at, nil, before) // connections are being ended
	}
	if err := farlog.RemoveRing(at.uri, false); err != nil {
		ring := t.describeRing(name, at, nil, before)
		ring.State.Error = oneLine(fmt.Errorf("remove ring of deleted stream %q: %w", name, err))
		return ring
	}
	t.config.Logger.Info("removed ring", "stream", name, "stream_id", spec.Stream.StreamId, "ring_uuid",
		fmt.Sprintf("%x", spec.RingUuid), "path", at.name())
	t.requestProbe()
	return t.removedRing(spec, at, true)
}

// removedRing is a ring that is not there, and need not be.
func (t *Target) removedRing(spec *api.RingSpec, at site, isRemoving bool) Ring {
	name := spec.Stream.Spec.Name
	if isRemoving {
		delete(t.provided, name)
	}
	ring := t.describeRing(name, at, errRemoved, nil)
	ring.State.Error, ring.State.StreamId = "", spec.Stream.StreamId
	ring.State.Closed, ring.State.Removed = true, isRemoving
	return ring
}

// errRemoved keeps a look from looking.
var errRemoved = errors.New("gone")

// drop ends what the listeners do for a ring. It is true when nothing is left of that; else it is under way, or is to
// be asked again.
func (d *remoteServer) drop(stream string) bool {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	one := d.rings[stream]
	if one == nil {
		return true
	}
	if one.isBusy {
		return false
	}
	one.isBusy = true
	d.workers.Go(func() {
		var failed error
		for _, listener := range d.listeners {
			if err := listener.Forget(stream); err != nil && !errors.Is(err, farlog.ErrNotFound) {
				failed = err
			}
		}
		d.mutex.Lock()
		one.isBusy = false
		if failed == nil {
			delete(d.rings, stream)
		}
		d.mutex.Unlock()
		d.moved()
	})
	return false
}
