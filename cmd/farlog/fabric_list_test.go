package main

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// TestEveryPage asks with the token of the page before, until there is none, and not again after an error.
func TestEveryPage(t *testing.T) {
	env := &environment{stderr: io.Discard, control: "127.0.0.1:1", isInsecure: true}
	next := map[string]string{"": "b", "b": "c", "c": ""}
	var asked []string
	err := env.everyPage(t.Context(), func(_ context.Context, _ api.FabricServiceClient, token string) (string, error) {
		asked = append(asked, token)
		return next[token], nil
	})
	if err != nil || !slices.Equal(asked, []string{"", "b", "c"}) {
		t.Errorf("asked for the pages %q, %v, want those after nothing, b and c", asked, err)
	}
	asked = nil
	err = env.everyPage(t.Context(), func(_ context.Context, _ api.FabricServiceClient, token string) (string, error) {
		asked = append(asked, token)
		return "more", errors.New("interrupted")
	})
	if err == nil || len(asked) != 1 {
		t.Errorf("asked %d times after an error, %v", len(asked), err)
	}
}
