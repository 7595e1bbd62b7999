package grant

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/reconcile"
	"github.com/farlog/farlog/pkg/control/refusal"
	"github.com/farlog/farlog/pkg/control/state"
)

// readersMax bounds how many readers of one ring are let in within that time; those that renew their grants are among
// them for as long as they read.
const readersMax = 256

// Reader is somebody who is to be let in at the listeners of a stream's rings.
type Reader struct {
	Tokens      [][]byte   // one a ring; nil: the ring is on the reader's host
	from        [][]string // the addresses from which each may be brought
	URIs        []string   // of each ring in a namespace; "": it lies in none
	generations []uint64   // the target lets him in when it says this one
	Life        time.Duration
	Expires     time.Time // by the clock here, once he is let in
	Renewed     [][]byte  // the SHA-256 of the tokens that his take the place of
}

// NewReader draws a token for each ring that is on another host than the reader.
func NewReader(v *state.View, rings []*api.RingState, asked *api.AcquireWriterRequest) (*Reader, error) {
	c := &Reader{generations: make([]uint64, len(rings))}
	specs, _ := reconcile.RingSpecs(v.Rings, v.Streams[asked.Stream])
	for i, ring := range rings {
		uri, err := readerURI(v, specs[i], ring, asked)
		if err != nil {
			return nil, err
		}
		isFar := false
		if uri == "" {
			if isFar, err = IsRemote(v, ring, asked); err != nil {
				return nil, err
			}
		}
		c.URIs = append(c.URIs, uri)
		var token []byte
		if isFar {
			if token, err = NewToken(); err != nil {
				return nil, err
			}
		}
		c.Tokens, c.from = append(c.Tokens, token), append(c.from,
			Origins(v, asked.Holder.Addresses, asked.Holder.Host, ring))
	}
	return c, nil
}

// IsRemote reports whether any ring is on another host than the reader.
func (c *Reader) IsRemote() bool {
	return slices.ContainsFunc(c.Tokens, func(token []byte) bool { return token != nil })
}

// letInBy counts the rings that he may open, and reports whether all may be whose targets live.
func (c *Reader) letInBy(v *state.View, stream string) (count int, isAll bool) {
	isAll = true
	for i, token := range c.Tokens {
		spec := v.Rings[reconcile.MemberKey(stream, i)]
		if token == nil || reconcile.SeenRing(v.Targets, spec).GetReaderGeneration() >= c.generations[i] {
			count++
		} else if v.LiveTargets[spec.GetTarget()] != nil {
			isAll = false
		}
	}
	return count, isAll
}

// LetIn answers when so many of the rings' targets let him in that he can know the log, and has waited a moment for the
// others: those he tries until they do.
func (c *Reader) LetIn(ctx context.Context, client *clientv3.Client, mirror *state.Mirror, now *state.View,
	stream string,
) error {
	if !c.IsRemote() {
		return nil
	}
	revision, err := addReader(ctx, client, now, stream, c, time.Now())
	if err != nil {
		return err
	}
	if err := mirror.WaitRevision(ctx, revision); err != nil {
		return err
	}
	limit := confirmWaitMax
	if deadline, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(deadline)-answerReserve)
	}
	waiting, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	required := reconcile.Quorum(now.Streams[stream])
	now, err = mirror.Wait(waiting, func(v *state.View) bool {
		count, _ := c.letInBy(v, stream)
		return count >= required
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return c.RefusalOf(now, stream, limit)
	}
	rest, stop := context.WithTimeout(waiting, confirmGrace)
	defer stop()
	_, _ = mirror.Wait(rest, func(v *state.View) bool { // those that have not by then are tried later
		_, isAll := c.letInBy(v, stream)
		return isAll
	})
	return ctx.Err()
}

// RefusalOf names the targets that have not let him in.
func (c *Reader) RefusalOf(now *state.View, stream string, limit time.Duration) error {
	var missing []string
	for i, token := range c.Tokens {
		spec := now.Rings[reconcile.MemberKey(stream, i)]
		if token != nil && reconcile.SeenRing(now.Targets, spec).GetReaderGeneration() < c.generations[i] {
			missing = append(missing, spec.GetTarget())
		}
	}
	return status.Errorf(codes.Unavailable,
		"stream %q: target %s has not let a reader in within %s: farlog status %s says how it is",
		stream, strings.Join(missing, ", "), limit.Round(time.Millisecond), stream)
}

// addReader lets a reader in at the rings of a stream that is there and is to stay. ErrRingsChanged: they are no longer
// those of the view.
func addReader(ctx context.Context, client *clientv3.Client, v *state.View, stream string, coming *Reader,
	now time.Time,
) (revision int64, err error) {
	coming.Expires = now.Add(coming.Life)
	for {
		got, err := client.Txn(ctx).Then(clientv3.OpGet(etcd.KeyDeletions+stream),
			clientv3.OpGet(etcd.KeyStreams+stream, clientv3.WithCountOnly())).Commit()
		if err != nil {
			return 0, fmt.Errorf("read stream %q: %w", stream, err)
		}
		isStaying, err := state.NotDeleted(stream, got.Responses[0].GetResponseRange(),
			got.Responses[1].GetResponseRange())
		if err != nil {
			return 0, err
		}
		guards, writes := append(state.RingsUnchanged(v, stream), isStaying), []clientv3.Op(nil)
		for i, token := range coming.Tokens {
			if token == nil {
				continue
			}
			unchanged, write, err := AdmissionWrite(ctx, client, reconcile.MemberKey(stream, i),
				func(admission *api.Admission) (err error) {
					coming.generations[i], err = coming.admit(admission, i, now)
					return err
				})
			if err != nil {
				return 0, err
			}
			guards, writes = append(guards, unchanged), append(writes, *write)
		}
		put, err := client.Txn(ctx).If(guards...).Then(writes...).Commit()
		if err != nil {
			return 0, fmt.Errorf("let a reader of stream %q in: %w", stream, err)
		}
		if put.Succeeded {
			return put.Header.Revision, nil
		}
		if isChanged, err := areRingsChanged(ctx, client, v, stream); err != nil || isChanged {
			return 0, cmp.Or(err, ErrRingsChanged)
		}
	}
}

// admit lets him in at one ring, and forgets those whose time to come is over and those whose place he takes.
func (c *Reader) admit(admission *api.Admission, ring int, now time.Time) (generation uint64, err error) {
	for _, grant := range admission.Grants {
		if isReader(grant) {
			generation = max(generation, grant.Generation)
		}
	}
	count := 0
	admission.Grants = slices.DeleteFunc(admission.Grants, func(grant *api.RemoteGrant) bool {
		isOver := isReader(grant) && (grant.ExpireTime.AsTime().Before(now) || c.isRenewed(grant))
		if isReader(grant) && !isOver {
			count++
		}
		return isOver
	})
	if count >= readersMax {
		return 0, refusal.Exhausted(refusal.ReasonReaders, "stream", "", "expected at most %d readers admitted "+
			"within %s",
			readersMax, c.Life).
			Errorf("%d readers were admitted within %s: expected fewer, try again later", count, c.Life)
	}
	generation++
	admission.Grants = append(admission.Grants, &api.RemoteGrant{
		Token: c.Tokens[ring], Role: api.GrantRole_GRANT_ROLE_READER, Generation: generation,
		ExpireTime: timestamppb.New(now.Add(c.Life)), Addresses: c.from[ring],
	})
	return generation, nil
}

// isRenewed tells a grant whose place this one takes. Whoever holds it shows that by its sum, which is no secret and so
// may be recorded.
func (c *Reader) isRenewed(grant *api.RemoteGrant) bool {
	sum := sha256.Sum256(grant.Token)
	return slices.ContainsFunc(c.Renewed, func(one []byte) bool { return bytes.Equal(one, sum[:]) })
}

func isReader(grant *api.RemoteGrant) bool { return grant.Role == api.GrantRole_GRANT_ROLE_READER }
