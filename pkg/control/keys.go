package control

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// Layout of etcd. Wanted and seen are apart; what lives under a lease disappears with its agent. Values are protobuf
// messages as JSON, so that etcdctl shows them, except the two counters, which are decimal numbers.
//
//	spec/streams/<name>                Stream
//	spec/targets/<host>                TargetSpec
//	spec/drains/<host>                 DrainSpec
//	spec/tenants/<name>                TenantSpec
//	spec/routes/<name>                 Route
//	spec/rings/<name>                  RingSpec
//	spec/assignments/<name>            Assignment
//	spec/admissions/<name>             Admission: who is let into the ring from other hosts; holds secrets
//	spec/deletions/<name>              Deletion: how far the end of a stream has come; stays when it is gone
//	spec/epochs/<name>                 last epoch granted
//	spec/stream_id                     last stream id given
//	state/grants/<name>                Grant, the last one
//	state/targets/<id>                 TargetState, as last reported
//	state/drains/<id>                  DrainState, as last reported
//	state/hosts/<name>                 HostState, as last measured, but for small differences
//	state/live/targets/<id>            Agent, under the agent's lease
//	state/live/drains/<id>             Agent, under the agent's lease
//	leader/…                           election of the instance that reconciles
const (
	keyRoot        = "/farlog/v1/"
	keyStreams     = keyRoot + "spec/streams/"
	keyTargetSpecs = keyRoot + "spec/targets/"
	keyDrainSpecs  = keyRoot + "spec/drains/"
	keyTenants     = keyRoot + "spec/tenants/"
	keyRoutes      = keyRoot + "spec/routes/"
	keyRings       = keyRoot + "spec/rings/"
	keyAssignments = keyRoot + "spec/assignments/"
	keyAdmissions  = keyRoot + "spec/admissions/"
	keyDeletions   = keyRoot + "spec/deletions/"
	keyEpochs      = keyRoot + "spec/epochs/"
	keyStreamID    = keyRoot + "spec/stream_id"
	keyGrants      = keyRoot + "state/grants/"
	keyTargets     = keyRoot + "state/targets/"
	keyDrains      = keyRoot + "state/drains/"
	keyHosts       = keyRoot + "state/hosts/"
	keyLiveTargets = keyRoot + "state/live/targets/"
	keyLiveDrains  = keyRoot + "state/live/drains/"
	keyLeader      = keyRoot + "leader"
)

func encode(message proto.Message) (string, error) {
	raw, err := protojson.Marshal(message)
	return string(raw), err
}

// decode is lenient about unknown fields: a newer control instance may have written the value.
func decode(key string, value []byte, message proto.Message) error {
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(value, message); err != nil {
		return fmt.Errorf("decode etcd key %q: %w", key, err)
	}
	return nil
}

// cutKey splits a key into the prefix it lies under and the name that follows.
func cutKey(key string) (prefix, name string) {
	for prefix := range kinds {
		if name, ok := strings.CutPrefix(key, prefix); ok {
			return prefix, name
		}
	}
	return "", ""
}
