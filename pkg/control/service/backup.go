package service

import (
	"cmp"
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
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/grant"
	"github.com/farlog/farlog/pkg/control/pattern"
	"github.com/farlog/farlog/pkg/control/reconcile"
	"github.com/farlog/farlog/pkg/control/refusal"
	"github.com/farlog/farlog/pkg/control/state"
)

const (
	backupPage = 1000

	// restoreLeap is how far epochs, generations and stream ids go on above those of a backup: more than can have been
	// given since.
	restoreLeap = 1 << 16
)

// restoreOrder is that in which keys are written. Nothing is done for a stream before it is there itself, and then all
// else must be.
var restoreOrder = []string{
	etcd.KeyStreamID, etcd.KeyTargetSpecs, etcd.KeyDrainSpecs, etcd.KeyTenants, etcd.KeyEpochs, etcd.KeyGrants,
	etcd.KeyAdmissions, etcd.KeyRings, etcd.KeyAssignments,
	etcd.KeyTargetRings, etcd.KeyTargets, etcd.KeyDrainStreams, etcd.KeyDrains, etcd.KeyDeletions, etcd.KeyRoutes,
	etcd.KeyPastEpochs, etcd.KeyStreams,
}

// Backup implements farlog.v1.ControlService. Who is alive and who leads is not kept: that is found out again.
func (s *Server) Backup(_ *api.BackupRequest, stream grpc.ServerStreamingServer[api.BackupEntry]) error {
	ctx := stream.Context()
	if err := needsAllStreams(ctx); err != nil {
		return err
	}
	from, end, revision := etcd.KeyRoot, clientv3.GetPrefixRangeEnd(etcd.KeyRoot), int64(0)
	for isPast := false; ; {
		options := []clientv3.OpOption{
			clientv3.WithRange(end), clientv3.WithLimit(backupPage),
			clientv3.WithRev(revision),
		}
		page, err := s.config.Client.Get(ctx, from, options...)
		if err != nil {
			return fmt.Errorf("read etcd: %w", err)
		}
		revision = cmp.Or(revision, page.Header.Revision)
		for _, kv := range page.Kvs {
			if !isKept(string(kv.Key)) {
				continue
			}
			value, err := etcd.AsJSON(string(kv.Key), kv.Value)
			if err != nil { // what an agent reported, and reports again
				s.config.Logger.Error("leave unreadable state out of the backup", "error", err)
				continue
			}
			if err := stream.Send(&api.BackupEntry{
				Key: strings.TrimPrefix(string(kv.Key), etcd.KeyRoot), Value: value,
				Revision: revision,
			}); err != nil {
				return err
			}
		}
		if !page.More && !isPast {
			isPast, from, end = true, etcd.KeyPastEpochs, clientv3.GetPrefixRangeEnd(etcd.KeyPastEpochs)
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
		return key == prefix || strings.HasSuffix(prefix, "/") && strings.HasPrefix(key, prefix) &&
			len(key) > len(prefix)
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
			return refusal.WithProblems(codes.InvalidArgument, err.Error(),
				[]*api.Problem{{Field: "key", Value: fmt.Sprintf("%.80q", key), Rule: err.Error()}})
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

// replacedStreams are the control plane's own streams that a backup takes the place of: with its ring, which the
// targets have. They must have no ring here yet, for there may be records in that, and be in the backup, whose ids are
// given to others otherwise.
func replacedStreams(v *state.View, entries []*api.BackupEntry) (names []string, err error) {
	for _, name := range slices.Sorted(maps.Keys(v.Streams)) {
		if !pattern.IsSystem(name) {
			return nil, hasStreams()
		}
		rings, _ := reconcile.RingSpecs(v.Rings, v.Streams[name])
		if slices.ContainsFunc(rings, func(ring *api.RingSpec) bool { return len(ring.GetRingUuid()) > 0 }) ||
			v.Epochs[name] != 0 {
			return nil, refusal.Precondition(refusal.ReasonNotEmpty, "name", refusal.Quote(name),
				"expected a control plane to which no target has come").
				Errorf("this control plane's own stream %q has a ring already: restore into a new one before targets "+
					"come to it", name)
		}
		if !slices.ContainsFunc(entries,
			func(entry *api.BackupEntry) bool { return entry.Key == etcd.KeyStreams+name }) {
			return nil, refusal.Precondition(refusal.ReasonNotInBackup, "name", refusal.Quote(name),
				"expected a backup with that stream, or a control plane without it").
				Errorf("this control plane's own stream %q is not in the backup: restore into a new one with "+
					"--audit-stream off", name)
		}
		names = append(names, name)
	}
	return names, nil
}

func hasStreams() error {
	return refusal.Precondition(refusal.ReasonNotEmpty, "entry", "",
		"expected a control plane without streams").Errorf("this control plane has streams: restore into one with a " +
		"new --data-dir, or an etcd without /farlog/v1/")
}

// writeRestored writes batch by batch, each only while there is no stream but those that are replaced. One that fails
// on the way leaves keys that do nothing without streams; the same again writes them again.
func (s *Server) writeRestored(ctx context.Context, entries []*api.BackupEntry) error {
	now, err := s.fresh()
	if err != nil {
		return err
	}
	own, err := replacedStreams(now, entries)
	if err != nil {
		return err
	}
	revision := int64(0)
	for i, batch := range slices.Collect(slices.Chunk(entries, etcd.BatchMax)) {
		guards, writes := restoreGuards(batch), []clientv3.Op{}
		for _, entry := range batch {
			writes = append(writes, clientv3.OpPut(entry.Key, entry.Value))
		}
		for _, name := range own {
			if i == 0 { // what comes behind has been changed by this
				guards = append(guards, state.UnchangedSince(now, etcd.KeyRings+name),
					state.UnchangedSince(now, etcd.KeyEpochs+name), state.UnchangedSince(now, etcd.KeyStreams+name))
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
	return s.mirror.WaitRevision(ctx, revision)
}

// restoreGuards are the conditions of a batch: none of its streams is there, or none at all, but the control plane's
// own.
func restoreGuards(batch []*api.BackupEntry) (guards []clientv3.Cmp) {
	isOfStreams := false
	for _, entry := range batch {
		name, isStream := strings.CutPrefix(entry.Key, etcd.KeyStreams)
		isOfStreams = isOfStreams || isStream
		if isStream && !pattern.IsSystem(name) {
			guards = append(guards, clientv3.Compare(clientv3.CreateRevision(entry.Key), "=", 0))
		}
	}
	if !isOfStreams {
		own := etcd.KeyStreams + pattern.SystemPrefix
		guards = append(guards, clientv3.Compare(clientv3.CreateRevision(etcd.KeyStreams), "=", 0).WithRange(own),
			clientv3.Compare(clientv3.CreateRevision(clientv3.GetPrefixRangeEnd(own)), "=",
				0).WithRange(clientv3.GetPrefixRangeEnd(etcd.KeyStreams)))
	}
	return guards
}

// restored is an entry as it is written: checked, and with its numbers leapt over what may have been given since.
func restored(entry *api.BackupEntry) (*api.BackupEntry, error) {
	key, value := etcd.KeyRoot+entry.Key, entry.Value
	if strings.HasPrefix(entry.Key, "/") {
		key = entry.Key
	}
	if !isKept(key) {
		return nil, fmt.Errorf("key %q: expected one of a backup", entry.Key)
	}
	prefix, name := etcd.CutKey(key)
	var err error
	if strings.HasPrefix(key, etcd.KeyPastEpochs) {
		prefix, name = etcd.KeyPastEpochs, strings.TrimPrefix(key, etcd.KeyPastEpochs)
	}
	switch prefix {
	case etcd.KeyPastEpochs:
		err = etcd.Decode(key, []byte(value), new(api.PastEpochs))
	case "", etcd.KeyEpochs:
		value, err = leapt(key, value)
	case etcd.KeyAssignments:
		value, err = rewritten(key, value, new(api.Assignment),
			func(given *api.Assignment) { given.Generation += restoreLeap })
	case etcd.KeyAdmissions:
		value, err = rewritten(key, value, new(api.Admission), func(admission *api.Admission) {
			for _, granted := range admission.Grants {
				if grant.IsDrain(granted) {
					granted.Generation += restoreLeap
				}
			}
		})
	default:
		err = state.NewView().Put(key, []byte(value))
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
	if err := etcd.Decode(key, []byte(value), message); err != nil {
		return "", err
	}
	change(message)
	return etcd.Encode(message)
}
