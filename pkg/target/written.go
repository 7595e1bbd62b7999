package target

import (
	"bytes"
	"maps"
	"strings"
)

// Written gives, by region, the bytes of records that were appended to its rings since this process looks at them, of
// whatever kind the region is.
func (t *Target) Written() map[string]uint64 {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return maps.Clone(t.written)
}

// countWritten adds what rings have got between two looks. Under the mutex.
func (t *Target) countWritten(before, after []Ring) {
	if t.written == nil {
		t.written = map[string]uint64{}
	}
	known := make(map[string]Ring, len(before))
	for _, ring := range before {
		known[ring.State.Stream] = ring
	}
	for _, ring := range after {
		now, old := ring.State, known[ring.State.Stream].State
		if len(now.RingUuid) == 0 {
			continue
		}
		region := t.regionOf(now.Uri)
		t.written[region] += 0
		if old != nil && bytes.Equal(old.RingUuid, now.RingUuid) && now.AppendedLsn > old.AppendedLsn {
			t.written[region] += now.AppendedLsn - old.AppendedLsn
		}
	}
}

// regionOf is the region of --region or the namespace that a ring lies in, or the directory of the rings that have
// files of their own. Under the mutex.
func (t *Target) regionOf(uri string) string {
	for _, region := range t.config.Regions {
		if strings.HasPrefix(uri, inRegion(region, "").uri) {
			return region
		}
	}
	for _, one := range t.exported {
		if region := "nvme:" + one.Device; strings.HasPrefix(uri, inRegion(region, "").uri) {
			return region
		}
	}
	return t.config.Dir
}
