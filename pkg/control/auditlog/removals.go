package auditlog

import (
	"context"
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/access"
)

// RecordRemoval records that segments of a stream were removed from its store. The event's id is that of the base
// manifest: recorded twice, it is shown once. isRecorded is false while too many events wait: counts are of all
// removals, so that a later one says what this one has.
func (r *Recorder) RecordRemoval(ctx context.Context, caller access.Caller, stream string, base *api.StoreBase) (
	isRecorded bool, err error,
) {
	if !r.isOn {
		return true, nil
	}
	if r.isFull(ctx, PendingMax) {
		return false, nil
	}
	event := r.NewEvent(ctx, caller, "RemoveSegments", nil)
	event.ID = fmt.Sprintf("%019d-%x", base.GetRemoveTime().AsTime().UnixNano(), base.Sha256)
	event.Time, event.Stream = base.GetRemoveTime().AsTime(), stream
	raw, err := protojson.Marshal(base)
	if err != nil {
		return false, err
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
			"removed since it began, the last by %q, %s", base.StoreUuid, base.Segment, stream, base.RemovedSegments,
			base.RemovedRecords, base.Policy, where),
	}
	return true, r.Put(ctx, event)
}
