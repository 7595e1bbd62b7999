package target

import (
	"fmt"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/farlog"
)

// fence orders writers below the wanted epoch to stop, in a ring that nobody reaches from other hosts: where somebody
// does, the listener does it, and in a namespace admitToNamespace does. A writer that lives finds the order at its next
// call.
func (t *Target) fence(spec *api.RingSpec, ring Ring) Ring {
	epoch := spec.GetAdmission().GetEpochMin()
	if spec.Subsystem != "" || len(t.remote.listeners) > 0 || len(ring.State.RingUuid) == 0 ||
		epoch <= ring.State.EpochMin {
		return ring
	}
	if err := farlog.Fence(ring.State.Uri, epoch); err != nil {
		ring.State.Error = oneLine(fmt.Errorf("fence writers below epoch %d: %w", epoch, err))
		return ring
	}
	t.config.Logger.Info("fenced", "stream", spec.Stream.Spec.Name, "epoch", epoch)
	ring.State.EpochMin = epoch
	return ring
}
