package apiv1

import (
	"context"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"
)

// A control plane that answers and cannot see its etcd is good for nothing, and its connection for not being left: gRPC
// tries the next address only when a connection breaks. So it says so, having done nothing, and its client goes to
// another one.

const (
	reasonEtcdUnreachable = "ETCD_UNREACHABLE"
	domain                = "farlog"

	shunTime = 10 * time.Second // that a control plane without its etcd is left alone while there are others
)

// EtcdUnreachable is the error of a control plane that cannot see its etcd and has done nothing.
func EtcdUnreachable(text string) error {
	unreachable := status.New(codes.Unavailable, text)
	info := &errdetails.ErrorInfo{Reason: reasonEtcdUnreachable, Domain: domain}
	if detailed, err := unreachable.WithDetails(info); err == nil {
		unreachable = detailed
	}
	return unreachable.Err()
}

// IsBlind tells such an error.
func IsBlind(err error) bool {
	failure, ok := status.FromError(err)
	if !ok || failure.Code() != codes.Unavailable {
		return false
	}
	return slices.ContainsFunc(failure.Details(), func(detail any) bool {
		info, ok := detail.(*errdetails.ErrorInfo)
		return ok && info.Reason == reasonEtcdUnreachable && info.Domain == domain
	})
}

// among is a choice of control planes: the first that takes a connection, of those that are not shunned.
type among struct {
	addresses []string
	resolver  *manual.Resolver

	mutex   sync.Mutex
	shunned map[string]time.Time // since when
}

func newAmong(addresses []string) *among {
	a := &among{addresses: addresses, resolver: manual.NewBuilderWithScheme("farlog"), shunned: map[string]time.Time{}}
	a.resolver.InitialState(a.state())
	return a
}

// state has those that are not shunned; all of them, when all are.
func (a *among) state() (state resolver.State) {
	for _, all := range []bool{false, true} {
		for _, one := range a.addresses {
			if _, isShunned := a.shunned[one]; all || !isShunned {
				state.Endpoints = append(state.Endpoints,
					resolver.Endpoint{Addresses: []resolver.Address{{Addr: one, ServerName: one}}})
			}
		}
		if len(state.Endpoints) > 0 {
			break
		}
	}
	return state
}

// switchFrom goes from a control plane to the others, and lets those in again that were shunned long enough. False:
// there is no other to go to.
func (a *among) switchFrom(address string) bool {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	for one, since := range a.shunned {
		if time.Since(since) > shunTime {
			delete(a.shunned, one)
		}
	}
	for _, one := range a.addresses {
		if isAt(one, address) {
			a.shunned[one] = time.Now()
		}
	}
	isAny := len(a.shunned) < len(a.addresses)
	if !isAny {
		clear(a.shunned)
	}
	a.resolver.UpdateState(a.state())
	return isAny
}

// isAt reports whether a name is that of the address of a connection.
func isAt(name, address string) bool {
	host, port, err := net.SplitHostPort(name)
	ip, portOf, errOf := net.SplitHostPort(address)
	if err != nil || errOf != nil || port != portOf {
		return false
	}
	if host == ip {
		return true
	}
	known, err := net.LookupHost(host)
	return err == nil && slices.Contains(known, ip)
}

func addressOf(from *peer.Peer) string {
	if from.Addr == nil {
		return ""
	}
	return from.Addr.String()
}

// unary makes a call again with another control plane when the one asked was blind. It has done nothing.
func (a *among) unary(ctx context.Context, method string, request, response any, conn *grpc.ClientConn,
	invoke grpc.UnaryInvoker, options ...grpc.CallOption,
) error {
	for range a.addresses {
		var from peer.Peer
		err := invoke(ctx, method, request, response, conn, append(slices.Clone(options), grpc.Peer(&from))...)
		if !IsBlind(err) || !a.switchFrom(addressOf(&from)) {
			return err
		}
	}
	return invoke(ctx, method, request, response, conn, options...)
}

// stream leaves a control plane that has ended a watch because it is blind: whoever opens it again finds another one.
func (a *among) stream(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string,
	open grpc.Streamer, options ...grpc.CallOption,
) (grpc.ClientStream, error) {
	stream, err := open(ctx, desc, conn, method, options...)
	if err != nil {
		return nil, err
	}
	return &watched{ClientStream: stream, among: a}, nil
}

type watched struct {
	grpc.ClientStream
	among *among
}

// RecvMsg implements grpc.ClientStream.
func (w *watched) RecvMsg(message any) error {
	err := w.ClientStream.RecvMsg(message)
	if from, ok := peer.FromContext(w.Context()); ok && err != nil && err != io.EOF && IsBlind(err) {
		w.among.switchFrom(addressOf(from))
	}
	return err
}
