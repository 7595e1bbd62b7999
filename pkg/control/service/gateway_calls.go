package service

import (
	"context"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// overHTTP are the services that HTTP reaches.
var overHTTP = []grpc.ServiceDesc{
	api.ControlService_ServiceDesc, api.FabricService_ServiceDesc,
	api.TargetService_ServiceDesc, api.DrainService_ServiceDesc,
	api.HostService_ServiceDesc,
}

// inProcess makes calls of the services in this process, through the interceptors that calls from outside go through.
// It is what the gateway takes for a connection; the caller is in the context.
type inProcess struct{ server *Server }

// Invoke implements grpc.ClientConnInterface.
func (p inProcess) Invoke(ctx context.Context, method string, request, response any, _ ...grpc.CallOption) error {
	one, ok := unaryCall(method)
	if !ok {
		return status.Errorf(codes.Unimplemented, "method %s", method)
	}
	decode := func(into any) error { return copyMessage(into, request) }
	answer, err := one.Handler(p.server, ctx, decode, p.intercept)
	if err != nil {
		return err
	}
	return copyMessage(response, answer)
}

// unaryCall finds a call by its full name.
func unaryCall(method string) (grpc.MethodDesc, bool) {
	for _, service := range overHTTP {
		for _, one := range service.Methods {
			if "/"+service.ServiceName+"/"+one.MethodName == method {
				return one, true
			}
		}
	}
	return grpc.MethodDesc{}, false
}

// streamCall finds a call with many messages by its full name.
func streamCall(method string) (grpc.StreamDesc, bool) {
	for _, service := range overHTTP {
		for _, one := range service.Streams {
			if "/"+service.ServiceName+"/"+one.StreamName == method {
				return one, true
			}
		}
	}
	return grpc.StreamDesc{}, false
}

func (p inProcess) intercept(ctx context.Context, request any, info *grpc.UnaryServerInfo,
	handler grpc.UnaryHandler,
) (any, error) {
	return p.server.observeUnary(ctx, request, info, func(ctx context.Context, request any) (any, error) {
		return p.server.guardUnary(ctx, request, info, handler)
	})
}

// NewStream implements grpc.ClientConnInterface.
func (p inProcess) NewStream(ctx context.Context, _ *grpc.StreamDesc, method string,
	_ ...grpc.CallOption,
) (grpc.ClientStream, error) {
	one, ok := streamCall(method)
	if !ok {
		return nil, status.Errorf(codes.Unimplemented, "method %s", method)
	}
	s := &pipe{
		ctx: ctx, hasOneRequest: !one.ClientStreams, requests: make(chan any, 1), sent: make(chan struct{}),
		answers: make(chan any), ended: make(chan struct{}),
	}
	info := &grpc.StreamServerInfo{
		FullMethod: method, IsServerStream: one.ServerStreams,
		IsClientStream: one.ClientStreams,
	}
	go func() {
		defer close(s.ended)
		s.err = p.server.observeStream(p.server, served{s}, info, func(server any, stream grpc.ServerStream) error {
			return p.server.guardStream(server, stream, info, one.Handler)
		})
	}()
	return s, nil
}

// pipe is such a call. It is the client's end; served is the server's.
type pipe struct {
	ctx           context.Context
	hasOneRequest bool
	requests      chan any
	sent          chan struct{} // closed behind the last request
	closing       sync.Once
	answers       chan any
	ended         chan struct{}
	err           error // once ended is closed
}

// Context implements grpc.ClientStream.
func (p *pipe) Context() context.Context { return p.ctx }

// Header implements grpc.ClientStream.
func (p *pipe) Header() (metadata.MD, error) { return metadata.MD{}, nil }

// Trailer implements grpc.ClientStream.
func (p *pipe) Trailer() metadata.MD { return nil }

// CloseSend implements grpc.ClientStream.
func (p *pipe) CloseSend() error {
	p.closing.Do(func() { close(p.sent) })
	return nil
}

// SendMsg implements grpc.ClientStream. io.EOF: the call has ended, RecvMsg says how. The generated code asks RecvMsg
// after io.EOF only where there are many requests: of a call with one gRPC's own SendMsg tells no error either.
func (p *pipe) SendMsg(message any) error {
	select {
	case p.requests <- message:
		return nil
	case <-p.ended:
	case <-p.ctx.Done():
	}
	if p.hasOneRequest {
		return nil
	}
	return io.EOF
}

// RecvMsg implements grpc.ClientStream.
func (p *pipe) RecvMsg(into any) error {
	select {
	case answer := <-p.answers:
		return copyMessage(into, answer)
	case <-p.ended:
		if p.err != nil {
			return p.err
		}
		return io.EOF
	}
}

type served struct{ pipe *pipe }

// Context implements grpc.ServerStream.
func (s served) Context() context.Context { return s.pipe.ctx }

// SetHeader implements grpc.ServerStream.
func (s served) SetHeader(metadata.MD) error { return nil }

// SendHeader implements grpc.ServerStream.
func (s served) SendHeader(metadata.MD) error { return nil }

// SetTrailer implements grpc.ServerStream.
func (s served) SetTrailer(metadata.MD) {}

// SendMsg implements grpc.ServerStream.
func (s served) SendMsg(message any) error {
	select {
	case s.pipe.answers <- message:
		return nil
	case <-s.pipe.ctx.Done():
		return s.pipe.ctx.Err()
	}
}

// RecvMsg implements grpc.ServerStream.
func (s served) RecvMsg(into any) error {
	select {
	case message := <-s.pipe.requests:
		return copyMessage(into, message)
	case <-s.pipe.ctx.Done():
		return s.pipe.ctx.Err()
	case <-s.pipe.sent:
	}
	select {
	case message := <-s.pipe.requests: // the last one, sent before that
		return copyMessage(into, message)
	default:
		return io.EOF
	}
}

func copyMessage(into, from any) error {
	to, isTo := into.(proto.Message)
	message, isMessage := from.(proto.Message)
	if !isTo || !isMessage {
		return status.Errorf(codes.Internal, "%T is no message", from)
	}
	proto.Reset(to)
	proto.Merge(to, message)
	return nil
}
