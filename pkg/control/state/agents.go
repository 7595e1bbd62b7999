package state

import (
	"strings"
	"time"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/reconcile"
)

// LiveAgent is who lives under a key; nil: nobody.
func (v *View) LiveAgent(key string) *api.Agent {
	if id, isTarget := strings.CutPrefix(key, etcd.KeyLiveTargets); isTarget {
		return v.LiveTargets[id]
	}
	return v.LiveDrains[strings.TrimPrefix(key, etcd.KeyLiveDrains)]
}

// DrainAgent is a drain as it lives, or as it was seen last.
func (v *View) DrainAgent(id string) *api.Agent {
	if agent := v.LiveDrains[id]; agent != nil {
		return agent
	}
	return v.Drains[id].GetAgent()
}

// measure says of a stream how far its targets are from its writer's host, and what of that is not as wanted.
func (v *View) measure(world reconcile.World, status *api.StreamStatus, now time.Time) {
	host := status.Stream.GetSpec().GetWriterHost()
	if host == "" {
		return
	}
	for _, ring := range status.RingSpecs {
		if path, _ := reconcile.PathTo(world, host, ring.Target, now); path != nil {
			status.Paths = append(status.Paths, path)
		}
		if text := reconcile.LatencyText(world, status.Stream, ring.Target, now); text != "" && status.Reason == "" {
			status.Reason = text
		}
	}
}
