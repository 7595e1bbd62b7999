package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/access"
	"github.com/farlog/farlog/pkg/control/pattern"
	"github.com/farlog/farlog/pkg/control/reconcile"
)

const (
	backupPage = 1000

	// restoreLeap is how far epochs, generations and stream ids go on above those of a backup: more than can have been given since.
	restoreLeap = 1 << 16
)

// restoreOrder is that in which keys are written. Nothing is done for a stream before it is there itself, and then all else must be.
var restoreOrder = []string{
	keyStreamID, keyTargetSpecs, keyDrainSpecs, keyTenants, keyEpochs, keyGrants, keyAdmissions, keyRings, keyAssignments,
	keyTargetRings, keyTargets, keyDrainStreams, keyDrains, keyDeletions, keyRoutes, keyPast, keyStreams,
}

// Backup implements farlog.v1.ControlService. Who is alive and who leads is not kept: that is found out again.
func (s *Server) Backup(_ *api.BackupRequest, stream grpc.ServerStreamingServer[api.BackupEntry]) error {
	ctx := stream.Context()
	if err := needsAllStreams(ctx); err != nil {
		return err
	}
	from, end, revision := keyRoot, clientv3.GetPrefixRangeEnd(keyRoot), int64(0)
	for isPast := false; ; {
		options := []clientv3.OpOption{clientv3.WithRange(end), clientv3.WithLimit(backupPage), clientv3.WithRev(revision)}
		page, err := s.config.Client.Get(ctx, from, options...)
		if err != nil {
			return fmt.Errorf("read etcd: %w", err)
		}
		if revision == 0 {
			revision = page.Header.Revision
		}
		for _, kv := range page.Kvs {
			if !isKept(string(kv.Key)) {
				continue
			}
			value, err := asJSON(string(kv.Key), kv.Value)
			if err != nil { // what an agent reported, and reports again
				s.config.Logger.Error("leave unreadable state out of the backup", "error", err)
				continue
			}
			if err := stream.Send(&api.BackupEntry{Key: strings.TrimPrefix(string(kv.Key), keyRoot), Value: value, Revision: revision}); err != nil {
				return err
			}
		}
		if !page.More && !isPast {
			isPast, from, end = true, keyPast, clientv3.GetPrefixRangeEnd(keyPast)
			continue
		}
		if !page.More {
			s.config.Logger.Info("backed up", "revision", revision, "by", callerOf(ctx).ID)
			return nil
		}
		from = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
	}
}

func isKept(key string) bool { return rankOf(key) >= 0 }

// rankOf is the place of a key in restoreOrder; -1: it is not one of those.
func rankOf(key string) int {
	return slices.IndexFunc(restoreOrder, func(prefix string) bool {
		return key == prefix || strings.HasSuffix(prefix, "/") && strings.HasPrefix(key, prefix) && len(key) > len(prefix)
	})
}

func needsAllStreams(ctx context.Context) error {
	caller := callerOf(ctx)
	if !slices.Contains(caller.Streams(access.RoleAdmin), pattern.All) {
		return status.Errorf(codes.PermissionDenied, "%s has not the role admin on all streams", caller.ID)
	}
	return nil
}

// Restore implements farlog.v1.ControlService. Everything is read and checked before anything is written.
func (s *Server) Restore(stream grpc.ClientStreamingServer[api.BackupEntry, api.RestoreResponse]) error {
	ctx := stream.Context()
	if err := needsAllStreams(ctx); err != nil {
		return err
	}
	var entries []*api.BackupEntry
	for {
		entry, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		key := entry.Key
		if entry, err = restored(entry); err != nil {
			return withProblems(codes.InvalidArgument, err.Error(), []*api.Problem{{Field: "key", Value: fmt.Sprintf("%.80q", key), Rule: err.Error()}})
		}
		entries = append(entries, entry)
	}
	count := len(entries) // as the backup says it
	entries = withEpochs(entries)
	slices.SortStableFunc(entries, func(a, b *api.BackupEntry) int { return rankOf(a.Key) - rankOf(b.Key) })
	if err := s.writeRestored(ctx, entries); err != nil {
		return err
	}
	s.config.Logger.Info("restored", "entries", len(entries), "by", callerOf(ctx).ID)
	return stream.SendAndClose(&api.RestoreResponse{Entries: uint64(count)})
}

// replaced are the control plane's own streams that a backup takes the place of: with its ring, which the targets have. They must have no ring here yet, for there may be records in
// that, and be in the backup, whose ids are given to others otherwise.
func (v *view) replaced(entries []*api.BackupEntry) (names []string, err error) {
	for _, name := range slices.Sorted(maps.Keys(v.streams)) {
		if !pattern.IsSystem(name) {
			return nil, hasStreams()
		}
		rings, _ := reconcile.RingSpecs(v.rings, v.streams[name])
		if slices.ContainsFunc(rings, func(ring *api.RingSpec) bool { return len(ring.GetRingUuid()) > 0 }) || v.epochs[name] != 0 {
			return nil, unmet(reasonNotEmpty, "name", quoted(name), "expected a control plane to which no target has come").
				errorf("this control plane's own stream %q has a ring already: restore into a new one before targets come to it", name)
		}
		if !slices.ContainsFunc(entries, func(entry *api.BackupEntry) bool { return entry.Key == keyStreams+name }) {
			return nil, unmet(reasonNotInBackup, "name", quoted(name), "expected a backup with that stream, or a control plane without it").
				errorf("this control plane's own stream %q is not in the backup: restore into a new one with --audit-stream off", name)
		}
		names = append(names, name)
	}
	return names, nil
}

func hasStreams() error {
	return unmet(reasonNotEmpty, "entry", "", "expected a control plane without streams").errorf("this control plane has streams: restore into one with a new --data-dir, or an etcd without /farlog/v1/")
}

// writeRestored writes batch by batch, each only while there is no stream but those that are replaced. One that fails on the way leaves keys that do nothing without streams; the
// same again writes them again.
func (s *Server) writeRestored(ctx context.Context, entries []*api.BackupEntry) error {
	now, err := s.fresh()
	if err != nil {
		return err
	}
	own, err := now.replaced(entries)
	if err != nil {
		return err
	}
	revision := int64(0)
	for i, batch := range slices.Collect(slices.Chunk(entries, applyBatch)) {
		guards, writes := restoreGuards(batch), []clientv3.Op{}
		for _, entry := range batch {
			writes = append(writes, clientv3.OpPut(entry.Key, entry.Value))
		}
		for _, name := range own {
			if i == 0 { // what comes behind has been changed by this
				guards = append(guards, unchangedSince(now, keyRings+name), unchangedSince(now, keyEpochs+name), unchangedSince(now, keyStreams+name))
			}
		}
		put, err := s.config.Client.Txn(ctx).If(guards...).Then(writes...).Commit()
		if err != nil {
			return fmt.Errorf("write what was backed up: %w", err)
		}
		if !put.Succeeded {
			return hasStreams()
		}
		revision = put.Header.Revision
	}
	return s.mirror.waitRevision(ctx, revision)
}

// restoreGuards are the conditions of a batch: none of its streams is there, or none at all, but the control plane's own.
func restoreGuards(batch []*api.BackupEntry) (guards []clientv3.Cmp) {
	isOfStreams := false
	for _, entry := range batch {
		name, isStream := strings.CutPrefix(entry.Key, keyStreams)
		isOfStreams = isOfStreams || isStream
		if isStream && !pattern.IsSystem(name) {
			guards = append(guards, clientv3.Compare(clientv3.CreateRevision(entry.Key), "=", 0))
		}
	}
	if !isOfStreams {
		own := keyStreams + pattern.SystemPrefix
		guards = append(guards,
			clientv3.Compare(clientv3.CreateRevision(keyStreams), "=", 0).WithRange(own),
			clientv3.Compare(clientv3.CreateRevision(clientv3.GetPrefixRangeEnd(own)), "=", 0).WithRange(clientv3.GetPrefixRangeEnd(keyStreams)))
	}
	return guards
}

// restored is an entry as it is written: checked, and with its numbers leapt over what may have been given since.
func restored(entry *api.BackupEntry) (*api.BackupEntry, error) {
	key, value := keyRoot+entry.Key, entry.Value
	if strings.HasPrefix(entry.Key, "/") {
		key = entry.Key
	}
	if !isKept(key) {
		return nil, fmt.Errorf("key %q: expected one of a backup", entry.Key)
	}
	prefix, name := cutKey(key)
	var err error
	if strings.HasPrefix(key, keyPast) {
		prefix, name = keyPast, strings.TrimPrefix(key, keyPast)
	}
	switch prefix {
	case keyPast:
		err = decode(key, []byte(value), new(api.PastEpochs))
	case "", keyEpochs:
		value, err = leapt(key, value)
	case keyAssignments:
		value, err = rewritten(key, value, new(api.Assignment), func(given *api.Assignment) { given.Generation += restoreLeap })
	case keyAdmissions:
		value, err = rewritten(key, value, new(api.Admission), func(admission *api.Admission) {
			for _, grant := range admission.Grants {
				if isDrain(grant) {
					grant.Generation += restoreLeap
				}
			}
		})
	default:
		err = newView().put(key, []byte(value))
	}
	if err == nil && prefix != "" && name == "" {
		err = fmt.Errorf("key %q has no name", entry.Key)
	}
	return &api.BackupEntry{Key: key, Value: value}, err
}

func leapt(key, value string) (string, error) {
	number, err := strconv.ParseUint(value, 10, 32)
	if err != nil || number+restoreLeap > 1<<32-1 {
		return "", fmt.Errorf("key %q: value %q: expected a number below %d", key, value, uint64(1<<32-1-restoreLeap))
	}
	return strconv.FormatUint(number+restoreLeap, 10), nil
}

func rewritten[M proto.Message](key, value string, message M, change func(M)) (string, error) {
	if err := decode(key, []byte(value), message); err != nil {
		return "", err
	}
	change(message)
	return encode(message)
}
