package service

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/tracing"
)

// webCall answers one call of the API as JSON, through the interceptors that calls over gRPC go through.
type webCall struct {
	server         *Server
	name, fullName string
	hasBody        bool     // the request is the body; else it is in the path and behind the ?
	variables      []string // fields in the path
	unary          *grpc.MethodDesc
	stream         *grpc.StreamDesc // where unary is nil
}

// ServeHTTP implements http.Handler.
func (c *webCall) ServeHTTP(response http.ResponseWriter, request *http.Request) {
	if request.Method == http.MethodHead { // which http.ServeMux takes for GET
		writeMethodError(response, request, []string{http.MethodGet})
		return
	}
	ctx := request.Context()
	if !api.IsTraced(&stats.RPCTagInfo{FullMethodName: c.fullName}) {
		_ = c.answer(ctx, response, request) // it has been told
		return
	}
	ctx = otel.GetTextMapPropagator().Extract(ctx, propagation.HeaderCarrier(request.Header))
	ctx, span := tracing.Tracer.Start(ctx, c.fullName[1:], trace.WithSpanKind(trace.SpanKindServer))
	tracing.EndSpan(span, c.answer(ctx, response, request))
}

// answer makes the call and writes what it gives, or its error, which it gives as well.
func (c *webCall) answer(ctx context.Context, response http.ResponseWriter, request *http.Request) error {
	if c.unary == nil {
		return c.answerStream(ctx, response, request)
	}
	decode := func(into any) error { return c.readRequest(response, request, into.(proto.Message)) }
	answer, err := c.unary.Handler(c.server, ctx, decode, c.server.interceptUnary)
	if err == nil {
		err = writeJSON(response, answer, "", "")
	} else {
		writeHTTPError(response, err)
	}
	return err
}

func (s *Server) interceptUnary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (any, error) {
	return s.observeUnary(ctx, request, info, func(ctx context.Context, request any) (any, error) {
		return s.guardUnary(ctx, request, info, handler)
	})
}

func (c *webCall) answerStream(ctx context.Context, response http.ResponseWriter, request *http.Request) error {
	stream := &webStream{ctx: ctx, call: c, response: response, request: request}
	info := &grpc.StreamServerInfo{
		FullMethod: c.fullName, IsServerStream: c.stream.ServerStreams, IsClientStream: c.stream.ClientStreams,
	}
	err := c.server.observeStream(c.server, stream, info, func(server any, stream grpc.ServerStream) error {
		return c.server.guardStream(server, stream, info, c.stream.Handler)
	})
	switch {
	case err != nil && stream.isAnswered:
		_ = writeJSON(response, statusOf(err), `{"error":`, "}\n") // the line behind the last message
	case err != nil:
		writeHTTPError(response, err)
	}
	return err
}

// webStream is a call with many messages. Its requests are a line of the body each, its answers a line of JSON each
// below "result". One goroutine reads, one writes.
type webStream struct {
	ctx        context.Context
	call       *webCall
	response   http.ResponseWriter
	request    *http.Request
	lines      *bufio.Scanner
	isRead     bool // the only request
	isAnswered bool
}

// Context implements grpc.ServerStream.
func (w *webStream) Context() context.Context { return w.ctx }

// SetHeader implements grpc.ServerStream.
func (w *webStream) SetHeader(metadata.MD) error { return nil }

// SendHeader implements grpc.ServerStream.
func (w *webStream) SendHeader(metadata.MD) error { return nil }

// SetTrailer implements grpc.ServerStream.
func (w *webStream) SetTrailer(metadata.MD) {}

// SendMsg implements grpc.ServerStream.
func (w *webStream) SendMsg(message any) error {
	w.isAnswered = true
	if !w.call.stream.ServerStreams {
		return writeJSON(w.response, message, "", "")
	}
	if err := writeJSON(w.response, message, `{"result":`, "}\n"); err != nil {
		return err
	}
	return http.NewResponseController(w.response).Flush()
}

// RecvMsg implements grpc.ServerStream.
func (w *webStream) RecvMsg(into any) error {
	if w.call.stream.ClientStreams {
		return w.readLine(into.(proto.Message))
	}
	if w.isRead {
		return io.EOF
	}
	w.isRead = true
	return w.call.readRequest(w.response, w.request, into.(proto.Message))
}

// readLine reads the next message of several. None is longer than one may be that comes alone.
func (w *webStream) readLine(into proto.Message) error {
	if w.lines == nil {
		w.lines = bufio.NewScanner(w.request.Body)
		w.lines.Buffer(nil, api.RequestLenMax)
	}
	for w.lines.Scan() {
		if line := w.lines.Bytes(); len(line) > 0 {
			return unmarshalJSON(line, into)
		}
	}
	if err := w.lines.Err(); err != nil {
		return bodyError(err)
	}
	return io.EOF
}

// writeJSON writes a message with what stands before and behind it, in one piece.
func writeJSON(response http.ResponseWriter, message any, before, behind string) error {
	text, err := protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}.
		MarshalAppend([]byte(before), message.(proto.Message))
	if err != nil {
		return fmt.Errorf("write answer: %w", err)
	}
	response.Header().Set("Content-Type", "application/json")
	_, err = response.Write(append(text, behind...))
	return err
}
