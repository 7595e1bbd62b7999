package state

import (
	clientv3 "go.etcd.io/etcd/client/v3"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// What the tests need that see a mirror together with packages that are built on it.

// PublishFirst makes a view the present one, as after everything was read.
func PublishFirst(m *Mirror, v *View) { m.publish(v, nil) }

// ApplyEvents is what a mirror does with a message of its watch.
func ApplyEvents(m *Mirror, response *clientv3.WatchResponse) { m.applyEvents(response) }

// TargetHead is a report without its parts.
func TargetHead(report *api.TargetState) *api.TargetState { return TargetKind.with(report, nil) }

// RingKey is the key of one part of a target's report.
func RingKey(target, name string) string { return TargetKind.partKey(target, name) }

// RingKeys are the keys of the parts that a view has of a target's report.
func RingKeys(v *View, target string) (keys []string) {
	for _, one := range v.targetRings.by[target] {
		keys = append(keys, RingKey(target, one.name))
	}
	return keys
}
