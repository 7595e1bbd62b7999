// Package grant decides who is let in at the rings of a stream: epochs for writers, tokens for writers, drains and
// readers of other hosts, and the confirmation that the writers before are fenced.
package grant

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/reconcile"
	"github.com/farlog/farlog/pkg/control/refusal"
	"github.com/farlog/farlog/pkg/control/state"
)

const (
	TokenLen = 16 // FARLOG_TOKEN_LEN

	// UnusedMax is how long a writer may take from its grant to the opening of its epoch.
	UnusedMax = 10 * time.Minute

	confirmWaitMax = 8 * time.Second        // for a target to fence and to admit
	confirmGrace   = 300 * time.Millisecond // for the rest of them, when there are enough
	answerReserve  = 200 * time.Millisecond // of the caller's deadline, to tell it why not
)

// NewToken draws a grant's secret.
func NewToken() ([]byte, error) {
	token := make([]byte, TokenLen)
	if _, err := rand.Read(token); err != nil {
		return nil, fmt.Errorf("draw token: %w", err)
	}
	return token, nil
}

// AdmissionWrite reads the admission of a ring, by its MemberKey, and changes it. It returns the condition that nobody
// else has changed it meanwhile, and the write; the write is nil when there is nothing to change.
func AdmissionWrite(ctx context.Context, client *clientv3.Client, name string, change func(*api.Admission) error,
) (clientv3.Cmp, *clientv3.Op, error) {
	got, err := client.Get(ctx, etcd.KeyAdmissions+name)
	if err != nil {
		return clientv3.Cmp{}, nil, fmt.Errorf("read admission of stream %q: %w", name, err)
	}
	return changeAdmission(name, got.Kvs, change)
}

// changeAdmission changes an admission that was read; without kvs there is none yet.
func changeAdmission(name string, kvs []*mvccpb.KeyValue, change func(*api.Admission) error) (clientv3.Cmp,
	*clientv3.Op, error,
) {
	key := etcd.KeyAdmissions + name
	unchanged := clientv3.Compare(clientv3.ModRevision(key), "=", 0)
	before := new(api.Admission)
	if len(kvs) > 0 {
		unchanged = clientv3.Compare(clientv3.ModRevision(key), "=", kvs[0].ModRevision)
		if err := etcd.Decode(key, kvs[0].Value, before); err != nil {
			return unchanged, nil, err
		}
	}
	after := proto.Clone(before).(*api.Admission)
	if err := change(after); err != nil || proto.Equal(before, after) {
		return unchanged, nil, err
	}
	value, err := etcd.Encode(after)
	if err != nil {
		return unchanged, nil, err
	}
	write := clientv3.OpPut(key, value)
	return unchanged, &write, nil
}

// AdmitWriter fences every writer below the epoch and lets the one with this token in, when it comes from one of the
// addresses, or writes a namespace from the host with this NQN.
func AdmitWriter(admission *api.Admission, epoch uint32, token []byte, addresses []string, nqn string,
	expires time.Time,
) {
	EndWriters(admission, epoch)
	admission.Grants = append(admission.Grants, &api.RemoteGrant{
		Token: token, Role: api.GrantRole_GRANT_ROLE_WRITER, Epoch: epoch, ExpireTime: timestamppb.New(expires),
		Addresses: addresses, HostNqn: nqn,
	})
}

// EndWriters fences every writer below the epoch. Where there never was a far one, the ring's lock is enough.
func EndWriters(admission *api.Admission, epoch uint32) {
	admission.EpochMin = epoch
	admission.Grants = slices.DeleteFunc(admission.Grants, IsWriter)
}

// admitDrain lets in the drain with this token and no other; nil: none at all.
func admitDrain(admission *api.Admission, generation uint64, token []byte) {
	admission.Grants = slices.DeleteFunc(admission.Grants, IsDrain)
	if token != nil {
		admission.Grants = append(admission.Grants, &api.RemoteGrant{
			Token: token, Role: api.GrantRole_GRANT_ROLE_DRAIN,
			Generation: generation,
		})
	}
}

// keepWriter takes the time limit off the grant of a writer that has opened its epoch: it must come in again after a
// restart of the target.
func keepWriter(admission *api.Admission, epoch uint32) {
	for _, grant := range admission.Grants {
		if IsWriter(grant) && grant.Epoch == epoch {
			grant.ExpireTime = nil
		}
	}
}

// IsWriter tells the grant of a writer.
func IsWriter(grant *api.RemoteGrant) bool { return grant.Role == api.GrantRole_GRANT_ROLE_WRITER }

// IsDrain tells the grant of a drain.
func IsDrain(grant *api.RemoteGrant) bool { return grant.Role == api.GrantRole_GRANT_ROLE_DRAIN }

// drainToken is the token of an assignment for one of the rings; nil: it needs none.
func drainToken(v *state.View, assignment *api.Assignment, member int) []byte {
	for _, grant := range v.Admissions[reconcile.MemberKey(assignment.Stream, member)].GetGrants() {
		if IsDrain(grant) && grant.Generation == assignment.Generation {
			return grant.Token
		}
	}
	return nil
}

// IsRemote decides whether a holder gets the ring's far URI.
func IsRemote(v *state.View, ring *api.RingState, request *api.AcquireWriterRequest) (bool, error) {
	switch request.Transport {
	case reconcile.TransportMem:
		return false, nil
	case reconcile.TransportVerbs, reconcile.TransportOFI:
		if reconcile.RemoteURI(ring.RemoteUris, request.Transport, request.Stream, 0) == "" {
			return false, refusal.Precondition(refusal.ReasonNoTransport, "transport", refusal.Quote(request.Transport),
				"expected one by which target %s listens", ring.Target).
				Errorf("stream %q: target %s does not listen by %s (it listens at %q): start it with --listen",
					request.Stream, ring.Target, request.Transport, ring.RemoteUris)
		}
		return true, nil
	case "":
		host := request.Holder.GetHost()
		return len(ring.RemoteUris) > 0 && host != "" && host != v.Targets[ring.Target].GetAgent().GetHost(), nil
	}
	return false, refusal.InvalidArgument("", []*api.Problem{{
		Field: "transport",
		Value: fmt.Sprintf("%q", request.Transport), Rule: "expected mem, verbs or ofi",
	}})
}

// WithoutDrains lets no drain into any of so many rings.
func WithoutDrains(members int) map[int]func(*api.Admission) error {
	changes := map[int]func(*api.Admission) error{}
	for i := range members {
		changes[i] = func(admission *api.Admission) error {
			admitDrain(admission, 0, nil)
			return nil
		}
	}
	return changes
}

// AdmissionsOf is what an action changes at the listeners of a stream's rings, by member. A drain that is replaced is
// fenced with its tokens.
func AdmissionsOf(action reconcile.Action) map[int]func(*api.Admission) error {
	if keep := action.Keep; keep != nil {
		return map[int]func(*api.Admission) error{keep.Member: func(admission *api.Admission) error {
			keepWriter(admission, keep.Epoch)
			return nil
		}}
	}
	to := action.Assign
	if to == nil {
		return nil
	}
	uris := []string{to.Uri}
	if len(to.Members) > 0 {
		uris = nil
	}
	for _, member := range to.Members {
		uris = append(uris, member.Uri)
	}
	changes := map[int]func(*api.Admission) error{}
	for i, uri := range uris {
		changes[i] = func(admission *api.Admission) error {
			var token []byte
			if reconcile.IsRemote(uri) {
				var err error
				if token, err = NewToken(); err != nil {
					return err
				}
			}
			admitDrain(admission, to.Generation, token)
			return nil
		}
	}
	return changes
}

// AdmissionChanges are what is to be changed at the listeners of rings, by their MemberKey, one after the other.
type AdmissionChanges map[string][]func(*api.Admission) error

// Add puts a change of the ring of a name, its MemberKey, behind those that are there.
func (d AdmissionChanges) Add(name string, change func(*api.Admission) error) {
	d[name] = append(d[name], change)
}

// AdmissionWrites is AdmissionWrite for many rings, read in one transaction.
func AdmissionWrites(
	ctx context.Context,
	client *clientv3.Client,
	listeners AdmissionChanges,
) (unchanged []clientv3.Cmp,
	writes []clientv3.Op, err error,
) {
	names := slices.Sorted(maps.Keys(listeners))
	var reads []clientv3.Op
	for _, name := range names {
		reads = append(reads, clientv3.OpGet(etcd.KeyAdmissions+name))
	}
	if len(reads) == 0 {
		return nil, nil, nil
	}
	got, err := client.Txn(ctx).Then(reads...).Commit()
	if err != nil {
		return nil, nil, fmt.Errorf("read %d admissions: %w", len(reads), err)
	}
	for i, name := range names {
		guard, write, err := changeAdmission(name, got.Responses[i].GetResponseRange().Kvs,
			func(admission *api.Admission) error {
				for _, change := range listeners[name] {
					if err := change(admission); err != nil {
						return err
					}
				}
				return nil
			})
		if err != nil {
			return nil, nil, err
		}
		if write != nil {
			unchanged, writes = append(unchanged, guard), append(writes, *write)
		}
	}
	return unchanged, writes, nil
}
