package service

import (
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/check"
)

// problemsMost is how many problems of a body are told.
const problemsMost = 1000

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
