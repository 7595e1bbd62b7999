package control

import (
	"bytes"
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// Layout of etcd. Wanted and seen are apart; what lives under a lease disappears with its agent. Values are protobuf
// messages as JSON, so that etcdctl shows them, except the two counters, which are decimal numbers, and what agents
// report, which is large and written often: that is protobuf's own bytes (ADR 29), and is read as JSON too.
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
//	state/targets/<id>                 TargetState, as last reported, without its rings; in bytes
//	state/target_rings/<id>/<name>     RingState, as last reported; in bytes
//	state/drains/<id>                  DrainState, as last reported, without its streams; in bytes
//	state/drain_streams/<id>/<name>    DrainProgress, as last reported; in bytes
//	state/hosts/<name>                 HostState, as last measured, but for small differences
//	state/slow/<name>#<who>            SlowConsumer, under a lease that nobody renews
//	state/live/targets/<id>            Agent, under the agent's lease
//	state/live/drains/<id>             Agent, under the agent's lease
//	state/seen                         nothing: written where a reader waits for an event
//	leader/…                           election of the instance that reconciles
const (
	keyRoot         = "/farlog/v1/"
	keyStreams      = keyRoot + "spec/streams/"
	keyTargetSpecs  = keyRoot + "spec/targets/"
	keyDrainSpecs   = keyRoot + "spec/drains/"
	keyTenants      = keyRoot + "spec/tenants/"
	keyRoutes       = keyRoot + "spec/routes/"
	keyRings        = keyRoot + "spec/rings/"
	keyAssignments  = keyRoot + "spec/assignments/"
	keyAdmissions   = keyRoot + "spec/admissions/"
	keyDeletions    = keyRoot + "spec/deletions/"
	keyEpochs       = keyRoot + "spec/epochs/"
	keyStreamID     = keyRoot + "spec/stream_id"
	keyGrants       = keyRoot + "state/grants/"
	keyTargets      = keyRoot + "state/targets/"
	keyDrains       = keyRoot + "state/drains/"
	keyTargetRings  = keyRoot + "state/target_rings/"
	keyDrainStreams = keyRoot + "state/drain_streams/"
	keyHosts        = keyRoot + "state/hosts/"
	keySlow         = keyRoot + "state/slow/"
	keyLiveTargets  = keyRoot + "state/live/targets/"
	keyLiveDrains   = keyRoot + "state/live/drains/"
	keySeen         = keyRoot + "state/seen"
	keyLeader       = keyRoot + "leader"

	keyPast = "/farlog/past/epochs/" // beside keyRoot: nobody has to follow it. PastEpochs of a stream, in bytes
)

// prefixes are those of the keys that a view shows. None begins another one.
var prefixes = []string{
	keyStreams, keyTargetSpecs, keyDrainSpecs, keyTenants, keyRoutes, keyRings, keyAssignments, keyAdmissions, keyDeletions,
	keyEpochs, keyGrants, keyTargets, keyDrains, keyTargetRings, keyDrainStreams, keyHosts, keyLiveTargets, keyLiveDrains,
}

func encode(message proto.Message) (string, error) {
	raw, err := protojson.Marshal(message)
	return string(raw), err
}

// decode is lenient about unknown fields: a newer control instance may have written the value.
func decode(key string, value []byte, message proto.Message) error {
	if !isJSON(value) {
		if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(value, message); err != nil {
			return fmt.Errorf("decode etcd key %q: %w", key, err)
		}
		return nil
	}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(value, message); err != nil {
		return fmt.Errorf("decode etcd key %q: %w", key, err)
	}
	return nil
}

// encodeBytes is encode for what is large and written often: a third as long, and made and read in a tenth of the time.
func encodeBytes(message proto.Message) (string, error) {
	raw, err := proto.Marshal(message)
	return string(raw), err
}

// isJSON tells the two apart: no message of the protocol begins with a brace, which were a group.
func isJSON(value []byte) bool { return bytes.HasPrefix(value, []byte("{")) }

// asJSON is a value as text, whichever of the two it is.
func asJSON(key string, value []byte) (string, error) {
	var message proto.Message
	switch prefix, _ := cutKey(key); prefix {
	case keyTargets:
		message = new(api.TargetState)
	case keyDrains:
		message = new(api.DrainState)
	case keyTargetRings:
		message = new(api.RingState)
	case keyDrainStreams:
		message = new(api.DrainProgress)
	case "":
		if strings.HasPrefix(key, keyPast) {
			message = new(api.PastEpochs)
		}
	}
	if message == nil || isJSON(value) {
		return string(value), nil
	}
	if err := decode(key, value, message); err != nil {
		return "", err
	}
	return encode(message)
}

// cutKey splits a key into the prefix it lies under and the name that follows.
func cutKey(key string) (prefix, name string) {
	for _, prefix := range prefixes {
		if name, ok := strings.CutPrefix(key, prefix); ok {
			return prefix, name
		}
	}
	return "", ""
}
