package service

import (
	"maps"
	"slices"

	"github.com/farlog/farlog/pkg/control/pattern"
	"github.com/farlog/farlog/pkg/control/state"
)

// hostsNamed lists the hosts that a name or pattern means, in order.
func hostsNamed(hosts state.AgentsByHost, named string) ([]string, error) {
	if named == "" {
		named = pattern.All
	}
	if err := checkPattern("host", named, "expected a host or a pattern such as storage*"); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Sorted(maps.Keys(hosts)),
		func(host string) bool { return !pattern.Covers([]string{named}, host) }), nil
}
