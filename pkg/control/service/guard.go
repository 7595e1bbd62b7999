package service

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/access"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/pattern"
	"github.com/farlog/farlog/pkg/identity"
)

// guardInterval is how often somebody who watches is looked at again: a certificate may end or be revoked, a role be
// taken away.
const guardInterval = time.Second

// resyncingMost is how many looks without etcd a watch outlives. Behind them whoever watches should go where there is
// news.
const resyncingMost = 3

type callerKey struct{}

// callerOf gives who makes a call. Only the guard can have put one there.
func callerOf(ctx context.Context) access.Caller {
	caller, _ := ctx.Value(callerKey{}).(access.Caller)
	return caller
}

// identify finds out who calls, by the certificate of the connection as it is now.
func (s *Server) identify(ctx context.Context) (access.Caller, error) {
	if s.config.Keeper == nil {
		return access.Local(), nil
	}
	state, ok := identity.PeerState(ctx)
	if !ok {
		return access.Caller{}, status.Error(codes.Unauthenticated, "the connection has no TLS")
	}
	id, err := s.config.Keeper.Check(state)
	if err != nil {
		return access.Caller{}, status.Error(codes.Unauthenticated, err.Error())
	}
	return s.config.Access.Caller(id), nil
}

func (s *Server) admit(ctx context.Context, method string) (access.Caller, error) {
	caller, err := s.identify(ctx)
	if err != nil {
		return caller, err
	}
	if err := caller.MayCall(method); err != nil {
		return caller, status.Error(codes.PermissionDenied, err.Error())
	}
	return caller, nil
}

// guardUnary lets a call through when its caller has the role for it, on the stream that it names if it names one.
func (s *Server) guardUnary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (any, error) {
	caller, err := s.identify(ctx)
	if err != nil {
		return nil, err
	}
	// Before anything else is looked at: who is refused may ask no oftener than others.
	if err := s.limiter.call(clientOf(ctx, caller.ID, info.FullMethod)); err != nil {
		return nil, err
	}
	if err := checkLength(ctx, request); err != nil {
		return nil, err
	}
	if s.isResyncingFor(info.FullMethod) {
		return nil, api.EtcdUnreachable(resyncingText)
	}
	if err := mayAsk(caller, info.FullMethod, request); err != nil {
		s.recorder.RecordRefusal(ctx, caller, info.FullMethod, request, err)
		return nil, err
	}
	handle := func() (any, error) {
		if err := checkRequest(request); err != nil {
			return nil, err
		}
		if s.isResyncingFor(info.FullMethod) { // by now: the recorder may have waited
			return nil, api.EtcdUnreachable(resyncingText)
		}
		return s.handleNewest(context.WithValue(ctx, callerKey{}, caller), request, handler)
	}
	if info.FullMethod == api.ControlService_ExtendWriter_FullMethodName { // which records what is an audit event of it
		return handle()
	}
	return s.recorder.Do(ctx, caller, info.FullMethod, request, handle)
}

// handleNewest handles a request, and once more when it names something that this control plane has not learned of and
// etcd has newer entries than it has seen: another one may have made it a moment ago. A handler that answers NOT_FOUND
// has changed nothing.
func (s *Server) handleNewest(ctx context.Context, request any, handler grpc.UnaryHandler) (any, error) {
	seen := s.view().Revision
	answer, err := handler(ctx, request)
	if status.Code(err) != codes.NotFound {
		return answer, err
	}
	newest, failed := s.config.Client.Get(ctx, etcd.KeySeen)
	if failed != nil {
		return nil, status.Errorf(codes.Unavailable, "ask etcd whether there is more by now: %s", failed)
	}
	if newest.Header.Revision <= seen {
		return nil, err
	}
	if err := s.mirror.WaitRevision(ctx, newest.Header.Revision); err != nil {
		return nil, err
	}
	return handler(ctx, request)
}

// isResyncingFor reports whether a call needs an etcd that is not seen: nothing is begun then, so that its caller may
// go to another control plane with it.
func (s *Server) isResyncingFor(method string) bool {
	return strings.HasPrefix(method, "/farlog.v1.") && s.isResyncing()
}

// mayAsk decides whether a caller has the role for a call, on the stream or route that it names if it names one.
func mayAsk(caller access.Caller, method string, request any) error {
	var err error
	if route, ok := access.RouteOf(request); ok { // which is more than that he may call, and is named in a refusal
		err = caller.MayRoute(method, route)
	} else if stream, ok := access.StreamOf(request); ok {
		err = caller.May(method, stream)
	} else {
		err = caller.MayCall(method)
	}
	if host, ok := access.HostOf(request); err == nil && ok &&
		!slices.Contains(caller.Streams(access.RoleAdmin), pattern.All) {
		err = fmt.Errorf(
			"%s has not the role admin on all streams, which a change of what is declared of host %q needs", caller.ID,
			host)
	}
	if err != nil {
		return status.Error(codes.PermissionDenied, err.Error())
	}
	return nil
}

// guardedStream carries the caller, and ends when it loses the right to watch.
type guardedStream struct {
	grpc.ServerStream
	ctx context.Context
}

// Context implements grpc.ServerStream.
func (g guardedStream) Context() context.Context { return g.ctx }

// guardStream is guardUnary for calls that last: the caller is looked at again and again.
func (s *Server) guardStream(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo,
	handler grpc.StreamHandler,
) error {
	caller, err := s.identify(stream.Context())
	if err != nil {
		return err
	}
	from := clientOf(stream.Context(), caller.ID, info.FullMethod)
	if err := s.limiter.call(from); err != nil {
		return err
	}
	if s.isResyncingFor(info.FullMethod) {
		return api.EtcdUnreachable(resyncingText)
	}
	if err := mayAsk(caller, info.FullMethod, nil); err != nil {
		s.recorder.RecordRefusal(stream.Context(), caller, info.FullMethod, nil, err)
		return err
	}
	end, err := s.limiter.watch(from)
	if err != nil {
		return err
	}
	defer end()
	ctx, cancel := context.WithCancelCause(context.WithValue(stream.Context(), callerKey{}, caller))
	defer cancel(nil)
	go s.recheckCaller(ctx, cancel, caller, info.FullMethod)
	_, err = s.recorder.Do(ctx, caller, info.FullMethod, nil, func() (any, error) {
		return nil, handler(server, guardedStream{ServerStream: stream, ctx: ctx})
	})
	if cause := context.Cause(ctx); err != nil && cause != nil && stream.Context().Err() == nil {
		return cause
	}
	return err
}

// recheckCaller ends a call whose caller has lost the right to it, and a watch of whom the rules say something else
// than when it was opened: opened again, it tells what he may see by now.
func (s *Server) recheckCaller(
	ctx context.Context,
	cancel context.CancelCauseFunc,
	caller access.Caller,
	method string,
) {
	tick := time.NewTicker(guardInterval)
	defer tick.Stop()
	for misses := 0; ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if misses++; !s.isResyncingFor(method) {
			misses = 0
		}
		if misses > resyncingMost {
			cancel(api.EtcdUnreachable(resyncingText))
			return
		}
		now, err := s.admit(ctx, method)
		if err == nil && !now.IsSame(caller) && isWatch(method) {
			err = status.Errorf(codes.Unavailable, "what %s may see has changed: open the watch again", caller.ID)
		}
		if err != nil {
			cancel(err)
			return
		}
	}
}

// isWatch tells the calls that tell of what changes. Health's has no streams in it.
func isWatch(method string) bool {
	return strings.HasPrefix(method[strings.LastIndexByte(method, '/')+1:], "Watch")
}

// speaksFor checks that an agent is one whom the caller may speak for, and gives it with what the control plane says of
// it.
func speaksFor(ctx context.Context, role access.Role, agent *api.Agent) error {
	caller := callerOf(ctx)
	if err := caller.MaySpeakFor(role, agent.GetHost(), agent.GetId()); err != nil {
		return status.Error(codes.PermissionDenied, err.Error())
	}
	agent.Streams = nil
	if role == access.RoleDrain {
		agent.Streams = caller.StreamsOf(role, agent.Host, agent.Id)
	}
	return nil
}

// RecvMsg implements grpc.ServerStream.
func (g guardedStream) RecvMsg(into any) error {
	if err := g.ServerStream.RecvMsg(into); err != nil {
		return err
	}
	if err := checkLength(g.Context(), into); err != nil {
		return err
	}
	return checkRequest(into)
}
