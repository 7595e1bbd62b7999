package main

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// TestEveryPage asks with the token of the page before, until there is none, and not again after an error.
func TestEveryPage(t *testing.T) {
	env := &environment{stderr: io.Discard, control: "127.0.0.1:1", isInsecure: true}
	next := map[string]string{"": "b", "b": "c", "c": ""}
	var asked []string
	err := env.everyPage(t.Context(), func(_ context.Context, _ *controlClient, token string) (string, error) {
		asked = append(asked, token)
		return next[token], nil
	})
	if err != nil || !slices.Equal(asked, []string{"", "b", "c"}) {
		t.Errorf("asked for the pages %q, %v, want those after nothing, b and c", asked, err)
	}
	asked = nil
	err = env.everyPage(t.Context(), func(_ context.Context, _ *controlClient, token string) (string, error) {
		asked = append(asked, token)
		return "more", errors.New("interrupted")
	})
	if err == nil || len(asked) != 1 {
		t.Errorf("asked %d times after an error, %v", len(asked), err)
	}
}

// What comes in several pages is listed as one, in their order, and asked for with the filter each time.
func TestListAll_PagesBecomeOne(t *testing.T) {
	env := &environment{stderr: io.Discard, control: "127.0.0.1:1", isInsecure: true}
	pages := map[string]*api.ListTargetsResponse{
		"":  {Targets: []*api.Target{{Host: "a"}, {Host: "b"}}, Revision: 5, NextPageToken: "b"},
		"b": {Targets: []*api.Target{{Host: "c"}}, Revision: 6},
	}
	all, err := listAll(t.Context(), env, &api.ListTargetsRequest{Rack: "r"},
		func(_ *controlClient, _ context.Context, request *api.ListTargetsRequest,
			_ ...grpc.CallOption,
		) (*api.ListTargetsResponse, error) {
			if request.Rack != "r" {
				t.Errorf("asked with %v", request)
			}
			return pages[request.PageToken], nil
		})
	if want := (&api.ListTargetsResponse{
		Targets:  []*api.Target{{Host: "a"}, {Host: "b"}, {Host: "c"}},
		Revision: 6,
	}); err != nil || !proto.Equal(all, want) {
		t.Errorf("got %v, %v, want %v", all, err, want)
	}
}
