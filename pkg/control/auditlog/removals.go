package auditlog

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/encoding/protojson"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/access"
)

// IsOn reports whether there is an audit stream.
func (r *Recorder) IsOn() bool { return r.isOn }

// HasRoomForAgents reports whether events of what agents report may be recorded: half of PendingMax is kept for the
// calls of administrators, which are refused when no event can be recorded.
func (r *Recorder) HasRoomForAgents(ctx context.Context) bool { return !r.isFull(ctx, PendingMax/2) }

// RemovalWrites are the writes that record that segments of a stream were removed from its store. The event's time is
// now, for the time of the removal is what the drain says: it is in the text and in the request. The event's id is that
// of the base manifest and its stream: recorded twice, it is shown once. Counts are of all removals since the stream
// began, so that a later event says what one that was left out would have.
func (r *Recorder) RemovalWrites(ctx context.Context, caller access.Caller, stream string, base *api.StoreBase) (
	[]clientv3.Op, error,
) {
	event := r.NewEvent(ctx, caller, "RemoveSegments", nil)
	event.ID, event.Stream = fmt.Sprintf("%x-%s", base.Sha256, stream), stream
	raw, err := protojson.Marshal(base)
	if err != nil {
		return nil, err
	}
	if len(raw) <= textMax {
		event.Request = json.RawMessage(raw)
	}
	where := "archived at " + base.ArchivedAt
	if base.ArchivedAt == "" {
		where = "without an archive"
	}
	event.setOutcome(nil, nil)
	event.Changes = []string{
		fmt.Sprintf("store %x begins at segment %d of stream %s: %d segments with %d records were "+
			"removed since it began, the last at %s by %q, %s", base.StoreUuid, base.Segment, stream,
			base.RemovedSegments, base.RemovedRecords, base.GetRemoveTime().AsTime().Format(time.RFC3339Nano),
			base.Policy, where),
	}
	return event.writes()
}
