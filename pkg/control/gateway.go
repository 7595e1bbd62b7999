package control

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/identity"
)

const (
	httpHeaderMax = 5 * time.Second
	httpIdleMax   = 2 * time.Minute
)

// newHTTP makes the API over HTTP/JSON: the same calls, by way of the same guard, as whoever the connection's certificate says.
func (s *Server) newHTTP(ctx context.Context) (*http.Server, error) {
	mux := runtime.NewServeMux(runtime.WithMarshalerOption(runtime.MIMEWildcard, &runtime.JSONPb{
		MarshalOptions:   protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true},
		UnmarshalOptions: protojson.UnmarshalOptions{DiscardUnknown: false},
	}))
	if err := api.RegisterControlServiceHandlerClient(ctx, mux, api.NewControlServiceClient(inProcess{s})); err != nil {
		return nil, fmt.Errorf("set up HTTP: %w", err)
	}
	handler := http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		if s.config.Keeper == nil && !isLocalRequest(request) {
			http.Error(response, "without TLS only programs of this host are answered, and no web page", http.StatusForbidden)
			return
		}
		from := &peer.Peer{Addr: clientAddress(request.RemoteAddr)}
		if request.TLS != nil {
			from.AuthInfo = tlsInfo(*request.TLS)
		}
		request.Body = http.MaxBytesReader(response, request.Body, api.RequestLenMax)
		mux.ServeHTTP(response, request.WithContext(peer.NewContext(request.Context(), from)))
	})
	return &http.Server{Handler: handler, ReadHeaderTimeout: httpHeaderMax, IdleTimeout: httpIdleMax}, nil
}

// isLocalRequest tells a program from a web page in a browser on this host, which has nobody's certificate to show either: a page of somebody else's
// says where it is from, or has given its own name this host's address.
func isLocalRequest(request *http.Request) bool {
	host := request.Host
	if _, _, err := net.SplitHostPort(host); err != nil {
		host = net.JoinHostPort(strings.Trim(host, "[]"), "80")
	}
	return request.Header.Get("Origin") == "" && request.Header.Get("Sec-Fetch-Site") == "" && identity.IsLoopback(host)
}

// clientAddress is a net.Addr by its text.
type clientAddress string

// Network implements net.Addr.
func (clientAddress) Network() string { return "tcp" }

// String implements net.Addr.
func (a clientAddress) String() string { return string(a) }

// inProcess makes calls of the control service in this process, through the interceptors that calls from outside go through. It is what the gateway takes
// for a connection; the caller is in the context.
type inProcess struct{ server *Server }

// Invoke implements grpc.ClientConnInterface.
func (p inProcess) Invoke(ctx context.Context, method string, request, response any, _ ...grpc.CallOption) error {
	name := method[strings.LastIndexByte(method, '/')+1:]
	for _, one := range api.ControlService_ServiceDesc.Methods {
		if one.MethodName != name {
			continue
		}
		decode := func(into any) error { return copyMessage(into, request) }
		answer, err := one.Handler(p.server, ctx, decode, p.intercept)
		if err != nil {
			return err
		}
		return copyMessage(response, answer)
	}
	return status.Errorf(codes.Unimplemented, "method %s", method)
}

func (p inProcess) intercept(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	return p.server.observeUnary(ctx, request, info, func(ctx context.Context, request any) (any, error) {
		return p.server.guardUnary(ctx, request, info, handler)
	})
}

// NewStream implements grpc.ClientConnInterface, for calls with one request and many answers.
func (p inProcess) NewStream(ctx context.Context, _ *grpc.StreamDesc, method string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	name := method[strings.LastIndexByte(method, '/')+1:]
	for _, one := range api.ControlService_ServiceDesc.Streams {
		if one.StreamName != name {
			continue
		}
		s := &pipe{ctx: ctx, request: make(chan any, 1), answers: make(chan any), ended: make(chan struct{})}
		info := &grpc.StreamServerInfo{FullMethod: method, IsServerStream: true}
		go func() {
			defer close(s.ended)
			s.err = p.server.observeStream(p.server, served{s}, info, func(server any, stream grpc.ServerStream) error {
				return p.server.guardStream(server, stream, info, one.Handler)
			})
		}()
		return s, nil
	}
	return nil, status.Errorf(codes.Unimplemented, "method %s", method)
}

// pipe is such a call. It is the client's end; served is the server's.
type pipe struct {
	ctx     context.Context
	request chan any
	answers chan any
	ended   chan struct{}
	err     error // once ended is closed
}

// Context implements grpc.ClientStream.
func (p *pipe) Context() context.Context { return p.ctx }

// Header implements grpc.ClientStream.
func (p *pipe) Header() (metadata.MD, error) { return metadata.MD{}, nil }

// Trailer implements grpc.ClientStream.
func (p *pipe) Trailer() metadata.MD { return nil }

// CloseSend implements grpc.ClientStream.
func (p *pipe) CloseSend() error { return nil }

// SendMsg implements grpc.ClientStream.
func (p *pipe) SendMsg(message any) error {
	p.request <- message
	return nil
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
	case message := <-s.pipe.request:
		return copyMessage(into, message)
	case <-s.pipe.ctx.Done():
		return s.pipe.ctx.Err()
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
