package control

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/reconcile"
)

const (
	tokenLen = 16 // FARLOG_TOKEN_LEN

	// grantUnusedMax is how long a writer may take from its grant to the opening of its epoch.
	grantUnusedMax = 10 * time.Minute

	confirmWaitMax = 8 * time.Second        // for a target to fence and to admit
	confirmGrace   = 300 * time.Millisecond // for the rest of them, when there are enough
	answerReserve  = 200 * time.Millisecond // of the caller's deadline, to tell it why not
)

// newToken draws a grant's secret.
func newToken() ([]byte, error) {
	token := make([]byte, tokenLen)
	if _, err := rand.Read(token); err != nil {
		return nil, fmt.Errorf("draw token: %w", err)
	}
	return token, nil
}

// admissionWrite reads the admission of a ring, by its MemberKey, and changes it. It returns the condition that nobody else
// has changed it meanwhile, and the write; the write is nil when there is nothing to change.
func admissionWrite(ctx context.Context, client *clientv3.Client, name string, change func(*api.Admission) error) (clientv3.Cmp, *clientv3.Op, error) {
	got, err := client.Get(ctx, keyAdmissions+name)
	if err != nil {
		return clientv3.Cmp{}, nil, fmt.Errorf("read admission of stream %q: %w", name, err)
	}
	return changeAdmission(name, got.Kvs, change)
}

// changeAdmission changes an admission that was read; without kvs there is none yet.
func changeAdmission(name string, kvs []*mvccpb.KeyValue, change func(*api.Admission) error) (clientv3.Cmp, *clientv3.Op, error) {
	key := keyAdmissions + name
	unchanged := clientv3.Compare(clientv3.ModRevision(key), "=", 0)
	before := new(api.Admission)
	if len(kvs) > 0 {
		unchanged = clientv3.Compare(clientv3.ModRevision(key), "=", kvs[0].ModRevision)
		if err := decode(key, kvs[0].Value, before); err != nil {
			return unchanged, nil, err
		}
	}
	after := proto.Clone(before).(*api.Admission)
	if err := change(after); err != nil || proto.Equal(before, after) {
		return unchanged, nil, err
	}
	value, err := encode(after)
	if err != nil {
		return unchanged, nil, err
	}
	write := clientv3.OpPut(key, value)
	return unchanged, &write, nil
}

// admitWriter fences every writer below the epoch and lets the one with this token in, when it comes from one of the addresses.
func admitWriter(admission *api.Admission, epoch uint32, token []byte, addresses []string, expires time.Time) {
	endWriters(admission, epoch)
	admission.Grants = append(admission.Grants, &api.FarGrant{
		Token: token, Role: api.GrantRole_GRANT_ROLE_WRITER, Epoch: epoch, Expires: timestamppb.New(expires), Addresses: addresses,
	})
}

// endWriters fences every writer below the epoch. Where there never was a far one, the ring's lock is enough.
func endWriters(admission *api.Admission, epoch uint32) {
	admission.EpochMin = epoch
	admission.Grants = slices.DeleteFunc(admission.Grants, isWriter)
}

// admitDrain lets in the drain with this token and no other; nil: none at all.
func admitDrain(admission *api.Admission, generation uint64, token []byte) {
	admission.Grants = slices.DeleteFunc(admission.Grants, isDrain)
	if token != nil {
		admission.Grants = append(admission.Grants, &api.FarGrant{Token: token, Role: api.GrantRole_GRANT_ROLE_DRAIN, Generation: generation})
	}
}

// keepWriter takes the time limit off the grant of a writer that has opened its epoch: it must come in again after a restart of the target.
func keepWriter(admission *api.Admission, epoch uint32) {
	for _, grant := range admission.Grants {
		if isWriter(grant) && grant.Epoch == epoch {
			grant.Expires = nil
		}
	}
}

func isWriter(grant *api.FarGrant) bool { return grant.Role == api.GrantRole_GRANT_ROLE_WRITER }
func isDrain(grant *api.FarGrant) bool  { return grant.Role == api.GrantRole_GRANT_ROLE_DRAIN }

// drainToken is the token of an assignment for one of the rings; nil: it needs none.
func (v *view) drainToken(assignment *api.Assignment, member int) []byte {
	for _, grant := range v.admissions[reconcile.MemberKey(assignment.Stream, member)].GetGrants() {
		if isDrain(grant) && grant.Generation == assignment.Generation {
			return grant.Token
		}
	}
	return nil
}

// isFar decides whether a holder gets the ring's far URI.
func (v *view) isFar(ring *api.RingState, request *api.AcquireWriterRequest) (bool, error) {
	switch request.Transport {
	case reconcile.TransportMem:
		return false, nil
	case reconcile.TransportVerbs, reconcile.TransportOFI:
		if reconcile.FarURI(ring.FarUris, request.Transport, request.Stream, 0) == "" {
			return false, unmet(reasonNoTransport, "transport", quoted(request.Transport), "expected one by which target %s listens", ring.Target).
				errorf("stream %q: target %s does not listen by %s (it listens at %q): start it with --listen",
					request.Stream, ring.Target, request.Transport, ring.FarUris)
		}
		return true, nil
	case "":
		host := request.Holder.GetHost()
		return len(ring.FarUris) > 0 && host != "" && host != v.targets[ring.Target].GetAgent().GetHost(), nil
	}
	return false, invalid("", []*api.Problem{{Field: "transport", Value: fmt.Sprintf("%q", request.Transport), Rule: "expected mem, verbs or ofi"}})
}
