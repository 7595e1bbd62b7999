package target

import (
	"errors"
	"strings"
	"testing"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/farlog"
)

// A token that was used is good for nobody else, also when a target goes over to another control plane: that tells it
// the grant again, and may be behind and tell of the time before first.
func TestDoors_UsedTokenToldAnewByAnotherControlPlane(t *testing.T) {
	one := newListening(t, t.TempDir())
	granted := admitting(1, writerGrant(1))
	isLetIn := func(state *api.RingState) bool { return state.EpochAdmitted == 1 }
	state := seeUntil(t, one, "the writer may come", granted, isLetIn)
	writer, err := openFar(t, state.RemoteUris[0], 1)
	if err != nil {
		t.Fatal(err)
	}
	refused := func(when string) {
		t.Helper()
		seeUntil(t, one, "the grant is known", granted, isLetIn)
		other, err := openFar(t, state.RemoteUris[0], 1)
		if !errors.Is(err, farlog.ErrHeld) || !strings.Contains(err.Error(), "used by another client already") {
			t.Errorf("%s the token was not refused as used: %v", when, err)
		}
		if err == nil {
			other.Close()
		}
	}
	refused("reported again,")
	see(one, admitting(0))
	refused("reported again behind a time without it,")
	if err := writer.Close(); err != nil {
		t.Logf("the writer: %v", err)
	}
	refused("with its writer gone")
	see(one, admitting(0))
	refused("with its writer gone, reported again behind a time without it,")
}
