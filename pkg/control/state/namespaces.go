package state

import (
	"cmp"
	"maps"
	"slices"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// WhyNotExported says why a namespace that is declared of a host is not exported there, as its targets report it; "":
// it is. A host without a living target says it of itself.
func (v *View) WhyNotExported(host string, declared *api.Namespace) (why string) {
	for _, id := range slices.Sorted(maps.Keys(v.LiveTargets)) {
		if v.LiveTargets[id].GetHost() != host {
			continue
		}
		why = cmp.Or(why, "its target has not reported it yet")
		for _, seen := range v.Targets[id].GetNamespaces() {
			if seen.Name != declared.Name || seen.Subsystem != declared.Subsystem || seen.Device != declared.Device {
				continue
			}
			if seen.Exported {
				return ""
			}
			why = seen.Error
		}
	}
	return why
}
