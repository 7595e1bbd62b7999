package service

import (
	"compress/gzip"
	"errors"
	"io"
	"net/http"

	"connectrpc.com/connect"
	"connectrpc.com/vanguard"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// routeNames routes calls by their names, as Connect and gRPC-Web have them, to the server of gRPC.
func routeNames(mux *http.ServeMux, overGRPC http.Handler) error {
	var services []*vanguard.Service
	for _, one := range overHTTP {
		services = append(services, vanguard.NewService(one.ServiceName, overGRPC,
			vanguard.WithTargetProtocols(vanguard.ProtocolGRPC), vanguard.WithTargetCodecs(vanguard.CodecProto),
			vanguard.WithNoTargetCompression(), vanguard.WithMaxMessageBufferBytes(api.AnswerLenMax)))
	}
	transcoder, err := vanguard.NewTranscoder(services,
		vanguard.WithCodec(func(vanguard.TypeResolver) vanguard.Codec { return strictJSON{} }),
		vanguard.WithCompression(vanguard.CompressionGzip,
			func() connect.Compressor { return gzip.NewWriter(io.Discard) },
			func() connect.Decompressor { return &boundedGzip{} }),
		vanguard.WithUnknownHandler(http.HandlerFunc(func(response http.ResponseWriter, _ *http.Request) {
			writeHTTPError(response, status.Error(codes.NotFound, http.StatusText(http.StatusNotFound)))
		})))
	if err != nil {
		return err
	}
	for _, one := range overHTTP {
		mux.Handle("/"+one.ServiceName+"/", transcoder)
	}
	return nil
}

// strictJSON reads and writes JSON as calls by path do: a field that there is not is refused.
type strictJSON struct{}

// Name implements vanguard.Codec.
func (strictJSON) Name() string { return vanguard.CodecJSON }

// MarshalAppend implements vanguard.Codec.
func (strictJSON) MarshalAppend(base []byte, message proto.Message) ([]byte, error) {
	return protojson.MarshalOptions{EmitUnpopulated: true}.MarshalAppend(base, message)
}

// Unmarshal implements vanguard.Codec.
func (strictJSON) Unmarshal(raw []byte, into proto.Message) error {
	err := unmarshalJSON(raw, into)
	if err == nil {
		return nil
	}
	told := statusOf(err)
	coded := connect.NewError(connect.Code(told.Code), errors.New(told.Message))
	for _, one := range told.Details {
		if detail, err := connect.NewErrorDetail(one); err == nil {
			coded.AddDetail(detail)
		}
	}
	return coded
}

// boundedGzip unpacks no more than a message may have: vanguard itself would unpack all.
type boundedGzip struct {
	gzip.Reader
	left int
}

// Reset implements connect.Decompressor.
func (b *boundedGzip) Reset(from io.Reader) error {
	b.left = messageReadMax
	return b.Reader.Reset(from)
}

// Read implements connect.Decompressor.
func (b *boundedGzip) Read(into []byte) (int, error) {
	count, err := b.Reader.Read(into)
	if b.left -= count; b.left < 0 {
		return 0, connect.NewError(connect.CodeResourceExhausted,
			errors.New("the message is too large when it is unpacked"))
	}
	return count, err
}
