package service

import (
	"errors"
	"net/http"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
)

// httpCodes are those of google/rpc/code.proto; 500 where there is none.
var httpCodes = map[codes.Code]int{
	codes.Canceled:           499,
	codes.InvalidArgument:    http.StatusBadRequest,
	codes.DeadlineExceeded:   http.StatusGatewayTimeout,
	codes.NotFound:           http.StatusNotFound,
	codes.AlreadyExists:      http.StatusConflict,
	codes.PermissionDenied:   http.StatusForbidden,
	codes.ResourceExhausted:  http.StatusTooManyRequests,
	codes.FailedPrecondition: http.StatusBadRequest,
	codes.Aborted:            http.StatusConflict,
	codes.OutOfRange:         http.StatusBadRequest,
	codes.Unimplemented:      http.StatusNotImplemented,
	codes.Unavailable:        http.StatusServiceUnavailable,
	codes.Unauthenticated:    http.StatusUnauthorized,
}

// codedError has another code over HTTP than those of its kind.
type codedError struct {
	httpCode int
	error
}

// GRPCStatus is what status.FromError gives.
func (e codedError) GRPCStatus() *status.Status { return status.Convert(e.error) }

func statusOf(err error) *statuspb.Status { return status.Convert(err).Proto() }

// writeHTTPError answers with an error, as google.rpc.Status.
func writeHTTPError(response http.ResponseWriter, err error) {
	told, code := statusOf(err), http.StatusInternalServerError
	if known, ok := httpCodes[codes.Code(told.Code)]; ok {
		code = known
	}
	var coded codedError
	if errors.As(err, &coded) {
		code = coded.httpCode
	}
	text, err := protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}.Marshal(told)
	if err != nil { // a detail of a kind that is not known here
		code, text = http.StatusInternalServerError, []byte(`{"code":13,"message":"the error cannot be encoded"}`)
	}
	response.Header().Set("Content-Type", "application/json")
	response.WriteHeader(code)
	_, _ = response.Write(text)
}
