package etcd

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// Layout of etcd. Wanted and seen are apart; what lives under a lease disappears with its agent. Values are protobuf
// messages as JSON, so that etcdctl shows them, except the two counters, which are decimal numbers, digests, which are
// hexadecimal, and what agents report, which is large and written often: that is protobuf's own bytes (ADR 29), and is
// read as JSON too.
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
//	state/anchors/<name>               StoreAnchor, the newest; in bytes
//	state/slow/<name>#<who>            SlowConsumer, under a lease that nobody renews
//	state/live/targets/<id>            Agent, under the agent's lease
//	state/live/drains/<id>             Agent, under the agent's lease
//	state/seen                         nothing: written where a reader waits for an event
//	leader/…                           election of the instance that reconciles
const (
	KeyRoot         = "/farlog/v1/"
	KeyStreams      = KeyRoot + "spec/streams/"
	KeyTargetSpecs  = KeyRoot + "spec/targets/"
	KeyDrainSpecs   = KeyRoot + "spec/drains/"
	KeyTenants      = KeyRoot + "spec/tenants/"
	KeyRoutes       = KeyRoot + "spec/routes/"
	KeyRings        = KeyRoot + "spec/rings/"
	KeyAssignments  = KeyRoot + "spec/assignments/"
	KeyAdmissions   = KeyRoot + "spec/admissions/"
	KeyDeletions    = KeyRoot + "spec/deletions/"
	KeyEpochs       = KeyRoot + "spec/epochs/"
	KeyStreamID     = KeyRoot + "spec/stream_id"
	KeyGrants       = KeyRoot + "state/grants/"
	KeyTargets      = KeyRoot + "state/targets/"
	KeyDrains       = KeyRoot + "state/drains/"
	KeyTargetRings  = KeyRoot + "state/target_rings/"
	KeyDrainStreams = KeyRoot + "state/drain_streams/"
	KeyHosts        = KeyRoot + "state/hosts/"
	KeySlow         = KeyRoot + "state/slow/"
	KeyAnchors      = KeyRoot + "state/anchors/"
	KeyLiveTargets  = KeyRoot + "state/live/targets/"
	KeyLiveDrains   = KeyRoot + "state/live/drains/"
	KeySeen         = KeyRoot + "state/seen"
	KeyLeader       = KeyRoot + "leader"

	// Beside KeyRoot: nobody has to follow them.
	KeyPastEpochs = "/farlog/past/epochs/" // PastEpochs of a stream, in bytes
	// SHA-256 of the newest base manifest of a stream's store that the audit stream has, in hexadecimal.
	KeyPastBases = "/farlog/past/bases/"
)

// Prefixes are those of the keys that a view shows. None begins another one.
var Prefixes = []string{
	KeyStreams, KeyTargetSpecs, KeyDrainSpecs, KeyTenants, KeyRoutes, KeyRings, KeyAssignments, KeyAdmissions,
	KeyDeletions, KeyEpochs, KeyGrants, KeyTargets, KeyDrains, KeyTargetRings, KeyDrainStreams, KeyHosts, KeySlow,
	KeyLiveTargets, KeyLiveDrains, KeyAnchors,
}

// Encode makes the text of a value.
func Encode(message proto.Message) (string, error) {
	raw, err := protojson.Marshal(message)
	return string(raw), err
}

// Decode is lenient about unknown fields: a newer control instance may have written the value.
func Decode(key string, value []byte, message proto.Message) error {
	if !IsJSON(value) {
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

// EncodeBytes is encode for what is large and written often: a third as long, and made and read in a tenth of the time.
func EncodeBytes(message proto.Message) (string, error) {
	raw, err := proto.Marshal(message)
	return string(raw), err
}

// IsJSON tells the two apart: no message of the protocol begins with a brace, which were a group.
func IsJSON(value []byte) bool { return bytes.HasPrefix(value, []byte("{")) }

// AsJSON is a value as text, whichever of the two it is.
func AsJSON(key string, value []byte) (string, error) {
	var message proto.Message
	switch prefix, _ := CutKey(key); prefix {
	case KeyTargets:
		message = new(api.TargetState)
	case KeyDrains:
		message = new(api.DrainState)
	case KeyTargetRings:
		message = new(api.RingState)
	case KeyDrainStreams:
		message = new(api.DrainProgress)
	case KeyAnchors:
		message = new(api.StoreAnchor)
	case "":
		if strings.HasPrefix(key, KeyPastEpochs) {
			message = new(api.PastEpochs)
		}
	}
	if message == nil || IsJSON(value) {
		return string(value), nil
	}
	if err := Decode(key, value, message); err != nil {
		return "", err
	}
	return Encode(message)
}

// CutKey splits a key into the prefix it lies under and the name that follows.
func CutKey(key string) (prefix, name string) {
	for _, prefix := range Prefixes {
		if name, ok := strings.CutPrefix(key, prefix); ok {
			return prefix, name
		}
	}
	return "", ""
}

// KeyAuditEvents begins the keys of audit events that wait for the audit stream.
const KeyAuditEvents = "/farlog/audit_events/" // beside KeyRoot: nobody has to follow it

// Counter reads a decimal counter (absent = 0) and makes the condition that nobody has changed it since.
func Counter(key string, kvs []*mvccpb.KeyValue) (uint32, clientv3.Cmp, error) {
	if len(kvs) == 0 {
		return 0, clientv3.Compare(clientv3.CreateRevision(key), "=", 0), nil
	}
	value, err := strconv.ParseUint(string(kvs[0].Value), 10, 32)
	if err != nil {
		return 0, clientv3.Cmp{}, fmt.Errorf("etcd key %q holds %q: expected a decimal number", key, kvs[0].Value)
	}
	return uint32(value), clientv3.Compare(clientv3.ModRevision(key), "=", kvs[0].ModRevision), nil
}
