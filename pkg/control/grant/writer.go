package grant

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/reconcile"
	"github.com/farlog/farlog/pkg/control/state"
)

// AdmittedBefore is what a grant has changed at the listeners of its rings; nil: it is not the stream's newest any
// more, its rings are others, or the time to come with its tokens is over.
func AdmittedBefore(v *state.View, granted *api.Grant, now time.Time) *WriterAdmission {
	specs, isWhole := reconcile.RingSpecs(v.Rings, v.Streams[granted.Stream])
	if v.Epochs[granted.Stream] != granted.Epoch || !isWhole || len(specs) != len(granted.Members) ||
		granted.CloseTime != nil {
		return nil
	}
	a := new(WriterAdmission)
	for i, spec := range specs {
		if !bytes.Equal(spec.RingUuid, granted.Members[i].RingUuid) {
			return nil
		}
		var token []byte
		admission := v.Admissions[reconcile.MemberKey(granted.Stream, i)]
		for _, one := range admission.GetGrants() {
			if !IsWriter(one) || one.Epoch != granted.Epoch {
				continue
			}
			if one.ExpireTime != nil && one.ExpireTime.AsTime().Before(now) {
				return nil
			}
			token = one.Token
		}
		a.Tokens, a.IsFar = append(a.Tokens, token), append(a.IsFar, token != nil)
		a.hadFar = append(a.hadFar, token == nil && admission.GetEpochMin() == granted.Epoch)
	}
	return a
}

// WriterAdmission is what a grant changes at the listeners of a stream's rings.
type WriterAdmission struct {
	IsFar  []bool
	hadFar []bool // there was a writer from another host before
	Tokens [][]byte
	from   [][]string // the addresses from which each token may be brought
	nqns   []string   // of the writer's host, for each ring in a namespace; "": the ring lies in none
}

// NewWriterAdmission draws a token for each ring, and finds out which rings are on other hosts than the writer.
func NewWriterAdmission(v *state.View, rings []*api.RingState, request *api.AcquireWriterRequest) (*WriterAdmission,
	error,
) {
	a := &WriterAdmission{hadFar: make([]bool, len(rings))}
	specs, _ := reconcile.RingSpecs(v.Rings, v.Streams[request.Stream])
	for i, ring := range rings {
		nqn, err := hostNQN(v, specs[i], request)
		if err != nil {
			return nil, err
		}
		isFar := nqn != ""
		if !isFar {
			if isFar, err = IsRemote(v, ring, request); err != nil {
				return nil, err
			}
		}
		a.nqns = append(a.nqns, nqn)
		token, err := NewToken()
		if err != nil {
			return nil, err
		}
		a.IsFar, a.Tokens = append(a.IsFar, isFar), append(a.Tokens, token)
		a.from = append(a.from, Origins(v, request.Holder.GetAddresses(), request.Holder.GetHost(), ring))
	}
	return a, nil
}

// Admit changes the admission of ring i: it fences writers below epoch, and lets this one in if it is on another host.
func (a *WriterAdmission) Admit(i int, admission *api.Admission, epoch uint32) error {
	a.hadFar[i] = slices.ContainsFunc(admission.Grants, IsWriter)
	if a.IsFar[i] {
		AdmitWriter(admission, epoch, a.Tokens[i], a.from[i], a.nqns[i], time.Now().Add(UnusedMax))
	} else if a.hadFar[i] {
		EndWriters(admission, epoch)
	}
	return nil
}

// Confirmation is what the targets have to confirm before the grant is answered.
func (a *WriterAdmission) Confirmation(v *state.View, stream string, epoch uint32) *Confirmation {
	c := &Confirmation{
		Stream: stream, Epoch: epoch, IsLetIn: a.IsFar, required: reconcile.Quorum(v.Streams[stream]),
		Fences: reconcile.FenceCount(v.Streams[stream]),
	}
	for i := range a.IsFar {
		isAlive := v.LiveTargets[v.Rings[reconcile.MemberKey(stream, i)].GetTarget()] != nil
		c.IsAsked = append(c.IsAsked, a.IsFar[i] || a.hadFar[i] && isAlive)
	}
	return c
}

// New is a grant without its epoch and, because it is kept and shown, without a token.
func New(v *state.View, rings []*api.RingState, admitting *WriterAdmission, request *api.AcquireWriterRequest,
) *api.Grant {
	stream := v.Streams[request.Stream]
	grant := &api.Grant{
		Stream:       request.Stream,
		StreamId:     stream.StreamId,
		K:            stream.K,
		Level:        stream.Spec.Level,
		Policy:       stream.Spec.Policy,
		RecordLenMax: stream.Spec.RecordLenMax,
		Deadline:     stream.Spec.Deadline,
		Holder:       request.Holder,
		RequestId:    request.RequestId,
	}
	for i, ring := range rings {
		member := &api.Member{
			Uri: ring.Uri, RingUuid: RingUUID(v.Rings[reconcile.MemberKey(request.Stream, i)]),
			Target: ring.Target,
		}
		if admitting.IsFar[i] {
			member.Uri = cmp.Or(reconcile.NamespaceURI(v.Rings[reconcile.MemberKey(request.Stream, i)]),
				reconcile.RemoteURI(ring.RemoteUris, request.Transport, request.Stream, i))
		}
		grant.Members = append(grant.Members, member)
	}
	return grant
}

// RingUUIDLen is the length of a ring's uuid in bytes.
const RingUUIDLen = 16

// RingUUID is the ring that a writer is told to expect of a member: of one that is not there yet none that could be.
func RingUUID(ring *api.RingSpec) []byte {
	if len(ring.GetRingUuid()) == 0 && ring.GetReplacement() != nil {
		return bytes.Repeat([]byte{0xFF}, RingUUIDLen)
	}
	return ring.GetRingUuid()
}
