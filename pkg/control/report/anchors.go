package report

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/state"
)

// Anchors come with the reports of drains, and reach etcd as seldom as figures do. What is in etcd is compared with
// them before it is replaced: an anchor that does not continue it is refused, and the stream is in error meanwhile.
// Anchors of deleted streams stay: the store still has to hold the records.

// Anchors keeps the anchors of stores.
type Anchors struct {
	client *clientv3.Client
	mirror *state.Mirror
	every  time.Duration

	mutex   sync.Mutex
	streams map[string]*anchored
}

// anchored is what one stream's drain has reported to this instance.
type anchored struct {
	newest    *api.StoreAnchor
	written   time.Time
	isRefused bool // the last anchor was
}

// AnchorNews is for the audit stream: an anchor that is in etcd with another segment than before, or was refused.
type AnchorNews struct {
	Stream  string
	Anchor  *api.StoreAnchor
	Refused string
}

// NewAnchors makes a keeper of anchors; every is how old those in etcd may become.
func NewAnchors(client *clientv3.Client, mirror *state.Mirror, isSole bool) *Anchors {
	every := figuresKept
	if isSole {
		every = figuresKeptSole
	}
	return &Anchors{client: client, mirror: mirror, every: every, streams: map[string]*anchored{}}
}

// Keep takes the anchors out of the report of a drain, for the streams that it is assigned. A stream whose anchor is
// refused gets the reason as its error. Those that are due are written; the others wait for their turn.
func (a *Anchors) Keep(ctx context.Context, report *api.DrainState) ([]AnchorNews, error) {
	now, _ := a.mirror.Load()
	var news []AnchorNews
	var due []dueAnchor
	for _, progress := range report.Progress {
		anchor, assignment := progress.Anchor, now.Assignments[progress.Stream]
		progress.Anchor = nil // it is not kept twice
		if anchor == nil || assignment.GetDrain() != report.GetAgent().GetId() {
			continue
		}
		one := dueAnchor{progress.Stream, anchor, assignment}
		refused, isNew, isDue := a.take(one, now.Anchors[progress.Stream])
		if refused != "" {
			progress.LastError = cmp.Or(progress.LastError, refused)
		}
		if isNew {
			news = append(news, AnchorNews{progress.Stream, anchor, refused})
		}
		if isDue {
			due = append(due, one)
		}
	}
	for batch := range slices.Chunk(due, etcd.BatchMax) {
		written, err := a.write(ctx, batch)
		news = append(news, written...)
		if err != nil {
			return news, err
		}
	}
	return news, nil
}

// dueAnchor is an anchor on its way to etcd.
type dueAnchor struct {
	stream     string
	anchor     *api.StoreAnchor
	assignment *api.Assignment
}

// take compares an anchor with the newest one here and with the one in etcd, as the mirror shows it. isNew: it is
// refused, and the one before was not.
func (a *Anchors) take(due dueAnchor, shown *api.StoreAnchor) (refused string, isNew, isDue bool) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	one := a.streams[due.stream]
	if one == nil {
		one = &anchored{}
		a.streams[due.stream] = one
	}
	refused = cmp.Or(refuseAnchor(one.newest, due.anchor, due.assignment),
		refuseAnchor(shown, due.anchor, due.assignment))
	isNew = refused != "" && !one.isRefused
	if one.isRefused = refused != ""; one.isRefused {
		return refused, isNew, false
	}
	one.newest = due.anchor
	return "", false, time.Since(one.written) >= a.every && !isSameAnchor(shown, due.anchor)
}

// isSameAnchor leaves out when they were made.
func isSameAnchor(a, b *api.StoreAnchor) bool {
	return a.GetSegment() == b.GetSegment() && a.GetOffset() == b.GetOffset() &&
		bytes.Equal(a.GetSha256(), b.GetSha256()) && a.GetSealedSegment() == b.GetSealedSegment()
}

// write puts anchors in the place of those that they continue. One that somebody else has replaced meanwhile stays, and
// so does one that is not continued: the next report is compared with it.
func (a *Anchors) write(ctx context.Context, batch []dueAnchor) (news []AnchorNews, err error) {
	reads := make([]clientv3.Op, len(batch))
	for i, due := range batch {
		reads[i] = clientv3.OpGet(etcd.KeyAnchors + due.stream)
	}
	got, err := a.client.Txn(ctx).Then(reads...).Commit()
	if err != nil {
		return nil, fmt.Errorf("read anchors: %w", err)
	}
	var guards []clientv3.Cmp
	var puts []clientv3.Op
	for i, due := range batch {
		key, revision, before := etcd.KeyAnchors+due.stream, int64(0), (*api.StoreAnchor)(nil)
		for _, kv := range got.Responses[i].GetResponseRange().Kvs {
			before, revision = new(api.StoreAnchor), kv.ModRevision
			if err := etcd.Decode(key, kv.Value, before); err != nil {
				return nil, err
			}
		}
		if refuseAnchor(before, due.anchor, due.assignment) != "" {
			continue // the mirror is about to show it
		}
		value, err := etcd.EncodeBytes(due.anchor)
		if err != nil {
			return nil, fmt.Errorf("encode anchor: %w", err)
		}
		guards = append(guards, clientv3.Compare(clientv3.ModRevision(key), "=", revision))
		puts = append(puts, clientv3.OpPut(key, value))
		if before.GetSealedSegment() != due.anchor.SealedSegment || before.GetSegment() != due.anchor.Segment {
			news = append(news, AnchorNews{Stream: due.stream, Anchor: due.anchor})
		}
	}
	if len(puts) == 0 {
		return nil, nil
	}
	put, err := a.client.Txn(ctx).If(guards...).Then(puts...).Commit()
	if err != nil {
		return nil, fmt.Errorf("store anchors: %w", err)
	}
	if !put.Succeeded {
		return nil, nil
	}
	a.mutex.Lock()
	defer a.mutex.Unlock()
	for _, due := range batch {
		a.streams[due.stream].written = time.Now()
	}
	return news, nil
}

// refuseAnchor says why an anchor does not continue the one before; "": it does, or the stream is another store's now.
func refuseAnchor(before, after *api.StoreAnchor, assignment *api.Assignment) string {
	if before == nil {
		return ""
	}
	isSameStore := bytes.Equal(before.StoreUuid, after.StoreUuid)
	isSamePoint := before.Segment == after.Segment && before.Offset == after.Offset
	why := ""
	switch {
	case !isSameStore && bytes.Equal(assignment.GetStoreUuid(), after.StoreUuid):
		return ""
	case !isSameStore:
		why = fmt.Sprintf("the drain writes store %x, expected %x", after.StoreUuid, before.StoreUuid)
	case after.Segment < before.Segment || after.Segment == before.Segment && after.Offset < before.Offset:
		why = "it ends before that: its end was lost, or it was replaced by an old copy"
	case after.SealedSegment < before.SealedSegment:
		why = fmt.Sprintf("it has no manifest for segment %d any more", before.SealedSegment)
	case isSamePoint && (!bytes.Equal(before.Sha256, after.Sha256) || before.NextLsn != after.NextLsn ||
		before.Generation != after.Generation || !bytes.Equal(before.RingUuid, after.RingUuid)):
		why = "it holds other records up to there"
	case before.SealedSegment == after.SealedSegment && !bytes.Equal(before.ManifestSha256, after.ManifestSha256):
		why = fmt.Sprintf("it has another manifest for segment %d", before.SealedSegment)
	default:
		return ""
	}
	return fmt.Sprintf("the store's anchor is refused: the store went up to lsn %d (segment %d, offset %d), now it "+
		"says lsn %d (segment %d, offset %d): %s: farlog verify --anchored says more", before.NextLsn, before.Segment,
		before.Offset, after.NextLsn, after.Segment, after.Offset, why)
}
