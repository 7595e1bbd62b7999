package fabric

import (
	"fmt"
	"math"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/reconcile"
	"github.com/farlog/farlog/pkg/control/state"
)

// overfullOf tells of rings on a host that have more than its capacity, as when that was lowered; "": they have not.
func overfullOf(v *state.View, target *api.TargetSpec) string {
	if target.CapacityBytes == 0 {
		return ""
	}
	const unlimited = math.MaxUint64
	used := unlimited - reconcile.FreeSpace(v.World(),
		map[string]*api.TargetSpec{target.Host: {CapacityBytes: unlimited}})[target.Host]
	if used <= target.CapacityBytes {
		return ""
	}
	return fmt.Sprintf("its rings have %d bytes, more than its capacity of %d: they stay, and no further one is "+
		"placed there", used, target.CapacityBytes)
}

func hasTargetOn(v *state.View, host string) bool {
	for _, agent := range v.LiveTargets {
		if agent.Host == host {
			return true
		}
	}
	return false
}
