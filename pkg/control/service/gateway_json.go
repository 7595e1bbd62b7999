package service

import (
	"encoding/json"
	"io"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/check"
)

// problemsMost is how many problems of a body are told.
const problemsMost = 1000

// jsonBody is the body of a request, and what was wrong with it as a message: the gateway hands the reader of a body
// on, and of its error only the text.
type jsonBody struct {
	io.ReadCloser
	problems []*api.Problem
}

// pathJSON is the gateway's reader and writer of JSON. Of a body that is no request it finds all that is wrong, each
// with the path of its field: of a fabric with many streams the name alone tells nobody which one it is.
type pathJSON struct{ *runtime.JSONPb }

// NewDecoder implements runtime.Marshaler.
func (p pathJSON) NewDecoder(from io.Reader) runtime.Decoder {
	decoder := json.NewDecoder(from)
	return runtime.DecoderFunc(func(into any) error {
		message, ok := into.(proto.Message)
		if !ok {
			return runtime.DecoderWrapper{Decoder: decoder, UnmarshalOptions: p.UnmarshalOptions}.Decode(into)
		}
		var raw json.RawMessage
		if err := decoder.Decode(&raw); err != nil {
			return err
		}
		err := p.UnmarshalOptions.Unmarshal(raw, message)
		if body, ok := from.(*jsonBody); ok && err != nil {
			body.problems = problemsOfJSON(raw, message)
		}
		return err
	})
}

// problemsOfJSON finds all that is wrong with a body that is not a message of this kind: in what can be read of it also
// what breaks the rules of its fields. nil: nothing that it knows of.
func problemsOfJSON(raw []byte, message proto.Message) []*api.Problem {
	w := jsonWalk{raw: raw, isTold: map[string]bool{}}
	readable := w.object(message.ProtoReflect().New(), 0, len(raw), "", "")
	if len(w.problems) == 0 {
		return nil
	}
	proto.Reset(message)
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(readable, message); err == nil {
		for _, one := range problemsOfRequest(message) {
			if !w.isSaid(one.Field) {
				w.problems = append(w.problems, one)
			}
		}
	}
	return w.problems[:min(len(w.problems), problemsMost)]
}

// problemsOfRequest finds what breaks the rules of a request's fields, by itself.
func problemsOfRequest(message proto.Message) (problems []*api.Problem) {
	prefix := ""
	switch request := message.(type) {
	case interface{ GetSpec() *api.StreamSpec }:
		if request.GetSpec() == nil {
			return nil
		}
		message, prefix = check.StreamWithDefaults(request.GetSpec()), "spec."
	case interface{ GetSpec() *api.RouteSpec }:
		if request.GetSpec() == nil {
			return nil
		}
		message, prefix = check.RouteWithDefaults(request.GetSpec()), "spec."
	case *api.ApplyFabricRequest:
		message, prefix = check.Complete(request.GetFabric()), "fabric."
	}
	problems, _ = check.Message(message, prefix) // of a message without rules there is nothing to tell
	return problems
}
