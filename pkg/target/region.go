package target

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/farlog"
)

// regionInterval is how often it is asked again what the regions give: a file system may have been mounted meanwhile, a
// device have come.
const regionInterval = time.Minute

// probeRegions asks what a ring would get where this target makes rings. A namespace that has told it once is not asked
// again: what it gives does not change while it is there.
func (t *Target) probeRegions() {
	t.mutex.Lock()
	before := t.regions
	t.mutex.Unlock()
	uris := t.config.Regions
	if len(uris) == 0 {
		uris = []string{fileSite(filepath.Join(t.config.Dir, "any"+ringSuffix)).uri}
	}
	regions := make([]*api.Region, len(uris))
	for i, uri := range uris {
		if i < len(before) && before[i].Error == "" && !strings.HasPrefix(uri, "mem:") {
			regions[i] = before[i]
			continue
		}
		regions[i] = &api.Region{Uri: uri}
		if contract, err := farlog.Probe(uri); err != nil {
			regions[i].Error = oneLine(err)
		} else {
			regions[i].Level = api.Level(contract.Level)
		}
	}
	if len(t.config.Regions) == 0 {
		regions[0].Uri = "mem:" + t.config.Dir // a file a ring
	}
	t.mutex.Lock()
	t.regions = regions
	t.mutex.Unlock()
}

// agent is who this target is, with what it can give now.
func (t *Target) agent() *api.Agent {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	agent := proto.Clone(t.config.Agent).(*api.Agent)
	agent.Regions, agent.Listeners = t.regions, t.remote.uris
	if t.config.ClockJump != nil {
		agent.ClockJump = t.config.ClockJump()
	}
	return agent
}

// watchRegions asks now and then, beside the looks at the rings: a device may take its time.
func (t *Target) watchRegions(ctx context.Context) {
	tick := time.NewTicker(regionInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			t.probeRegions()
			t.probeNamespaces()
		case <-t.probe:
			t.probeNamespaces()
		case <-ctx.Done():
			return
		}
	}
}

// regionsFor are the regions that give a level, and those of which nobody knows: to make the ring there tells it. A
// target that listens makes none in a namespace, which it cannot serve to other hosts.
func (t *Target) regionsFor(level api.Level) []string {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return slices.DeleteFunc(slices.Clone(t.config.Regions), func(uri string) bool {
		if len(t.remote.listeners) > 0 && strings.HasPrefix(uri, "nvme:") {
			return true
		}
		return slices.ContainsFunc(t.regions, func(region *api.Region) bool {
			return region.Uri == uri && region.Error == "" && region.Level < level
		})
	})
}
