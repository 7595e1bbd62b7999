package control

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
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/reconcile"
)

// ReaderGrantDefault is how long a reader may take from its grant to its coming.
const ReaderGrantDefault = grantUnusedMax

// readersMax bounds how many readers of one ring are let in within that time; those that renew their grants are among them for as long as they read.
const readersMax = 256

// AcquireReader implements farlog.v1.ControlService. As for writers: it is persisted, then the target confirms, then it is told.
func (s *Server) AcquireReader(ctx context.Context, request *api.AcquireReaderRequest) (*api.AcquireReaderResponse, error) {
	asked := &api.AcquireWriterRequest{Stream: request.Stream, Holder: request.Holder, Transport: request.Transport}
	if err := checkHolder(request.Holder); err != nil {
		return nil, err
	}
	asked.Holder = copyOf(request.Holder)
	asked.Holder.Identity = string(callerOf(ctx).ID)
	now, rings, err := s.waitRings(ctx, request.Stream)
	if err != nil {
		return nil, err
	}
	stream := now.streams[request.Stream]
	coming, err := now.coming(rings, asked)
	if err != nil {
		return nil, err
	}
	coming.life, coming.renewed = s.config.ReaderGrant, request.Renewed
	if err := s.letIn(ctx, now, request.Stream, coming); err != nil {
		return nil, err
	}
	var members []*api.Member
	for i, ring := range rings {
		member := &api.Member{Uri: ring.Uri, RingUuid: uuidOf(now.rings[reconcile.MemberKey(request.Stream, i)]), Target: ring.Target, Token: coming.tokens[i]}
		if member.Token != nil {
			member.Uri = reconcile.FarURI(ring.FarUris, request.Transport, request.Stream, i)
		}
		members = append(members, member)
	}
	s.config.Logger.Info("granted to a reader", "stream", request.Stream, "host", asked.Holder.GetHost(), "pid", asked.Holder.GetPid(), "is_far", coming.isFar(), "is_renewed", len(request.Renewed) > 0, "by", callerOf(ctx).ID)
	grant := &api.Grant{
		Stream: request.Stream, StreamId: stream.StreamId, Members: members, K: stream.K, RecordLenMax: stream.Spec.RecordLenMax, Holder: asked.Holder, Granted: timestamppb.Now(),
	}
	if coming.isFar() {
		grant.GoodFor = durationpb.New(time.Until(coming.expires))
	}
	return &api.AcquireReaderResponse{Grant: grant}, nil
}

// comingReader is somebody who is to be let in at the doors of a stream's rings.
type comingReader struct {
	tokens      [][]byte   // one a ring; nil: the ring is on the reader's host
	from        [][]string // the addresses from which each may be brought
	generations []uint64   // the target lets him in when it says this one
	life        time.Duration
	expires     time.Time // by the clock here, once he is let in
	renewed     [][]byte  // the SHA-256 of the tokens that his take the place of
}

func (v *view) coming(rings []*api.RingState, asked *api.AcquireWriterRequest) (*comingReader, error) {
	c := &comingReader{generations: make([]uint64, len(rings))}
	for _, ring := range rings {
		isFar, err := v.isFar(ring, asked)
		if err != nil {
			return nil, err
		}
		var token []byte
		if isFar {
			if token, err = newToken(); err != nil {
				return nil, err
			}
		}
		c.tokens, c.from = append(c.tokens, token), append(c.from, v.origins(asked.Holder.Addresses, asked.Holder.Host, ring))
	}
	return c, nil
}

func (c *comingReader) isFar() bool {
	return slices.ContainsFunc(c.tokens, func(token []byte) bool { return token != nil })
}

// letInBy counts the rings that he may open, and tells whether all may be whose targets live.
func (c *comingReader) letInBy(v *view, stream string) (count int, isAll bool) {
	isAll = true
	for i, token := range c.tokens {
		spec := v.rings[reconcile.MemberKey(stream, i)]
		if token == nil || reconcile.SeenRing(v.targets, spec).GetReaderGeneration() >= c.generations[i] {
			count++
		} else if v.liveTargets[spec.GetTarget()] != nil {
			isAll = false
		}
	}
	return count, isAll
}

// letIn answers when so many of the rings' targets let him in that he can know the log, and has waited a moment for the others: those he tries until they do.
func (s *Server) letIn(ctx context.Context, now *view, stream string, coming *comingReader) error {
	if !coming.isFar() {
		return nil
	}
	revision, err := addReader(ctx, s.config.Client, now, stream, coming, time.Now())
	if err != nil {
		return err
	}
	if err := s.mirror.waitRevision(ctx, revision); err != nil {
		return err
	}
	limit := confirmWaitMax
	if deadline, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(deadline)-answerReserve)
	}
	waiting, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	required := reconcile.Quorum(now.streams[stream])
	now, err = s.mirror.wait(waiting, func(v *view) bool {
		count, _ := coming.letInBy(v, stream)
		return count >= required
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return coming.refusal(now, stream, limit)
	}
	rest, stop := context.WithTimeout(waiting, confirmGrace)
	defer stop()
	_, _ = s.mirror.wait(rest, func(v *view) bool { // those that have not by then are tried later
		_, isAll := coming.letInBy(v, stream)
		return isAll
	})
	return ctx.Err()
}

// refusal names the targets that have not let him in.
func (c *comingReader) refusal(now *view, stream string, limit time.Duration) error {
	var missing []string
	for i, token := range c.tokens {
		spec := now.rings[reconcile.MemberKey(stream, i)]
		if token != nil && reconcile.SeenRing(now.targets, spec).GetReaderGeneration() < c.generations[i] {
			missing = append(missing, spec.GetTarget())
		}
	}
	return status.Errorf(codes.Unavailable, "stream %q: target %s has not let a reader in within %s: farlog status %s says how it is",
		stream, strings.Join(missing, ", "), limit.Round(time.Millisecond), stream)
}

// addReader lets a reader in at the rings of a stream that is there and is to stay. errRingsChanged: they are no longer those of the view.
func addReader(ctx context.Context, client *clientv3.Client, v *view, stream string, coming *comingReader, now time.Time) (revision int64, err error) {
	coming.expires = now.Add(coming.life)
	for {
		got, err := client.Txn(ctx).Then(clientv3.OpGet(keyDeletions+stream), clientv3.OpGet(keyStreams+stream, clientv3.WithCountOnly())).Commit()
		if err != nil {
			return 0, fmt.Errorf("read stream %q: %w", stream, err)
		}
		isStaying, err := stays(stream, got.Responses[0].GetResponseRange(), got.Responses[1].GetResponseRange())
		if err != nil {
			return 0, err
		}
		guards, writes := append(ringsUnchanged(v, stream), isStaying), []clientv3.Op(nil)
		for i, token := range coming.tokens {
			if token == nil {
				continue
			}
			unchanged, write, err := admissionWrite(ctx, client, reconcile.MemberKey(stream, i), func(admission *api.Admission) (err error) {
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
			return 0, cmp.Or(err, errRingsChanged)
		}
	}
}

// admit lets him in at one ring, and forgets those whose time to come is over and those whose place he takes.
func (c *comingReader) admit(admission *api.Admission, ring int, now time.Time) (generation uint64, err error) {
	for _, grant := range admission.Grants {
		if isReader(grant) {
			generation = max(generation, grant.Generation)
		}
	}
	count := 0
	admission.Grants = slices.DeleteFunc(admission.Grants, func(grant *api.FarGrant) bool {
		isOver := isReader(grant) && (grant.Expires.AsTime().Before(now) || c.isRenewed(grant))
		if isReader(grant) && !isOver {
			count++
		}
		return isOver
	})
	if count >= readersMax {
		return 0, overQuota(reasonReaders, "stream", "", "expected at most %d readers let in within %s", readersMax, c.life).
			errorf("%d readers were let in within %s: expected fewer, try again later", count, c.life)
	}
	generation++
	admission.Grants = append(admission.Grants, &api.FarGrant{
		Token: c.tokens[ring], Role: api.GrantRole_GRANT_ROLE_READER, Generation: generation, Expires: timestamppb.New(now.Add(c.life)), Addresses: c.from[ring],
	})
	return generation, nil
}

// isRenewed tells a grant whose place this one takes. Whoever holds it shows that by its sum, which is no secret and so may be recorded.
func (c *comingReader) isRenewed(grant *api.FarGrant) bool {
	sum := sha256.Sum256(grant.Token)
	return slices.ContainsFunc(c.renewed, func(one []byte) bool { return bytes.Equal(one, sum[:]) })
}

func isReader(grant *api.FarGrant) bool { return grant.Role == api.GrantRole_GRANT_ROLE_READER }
