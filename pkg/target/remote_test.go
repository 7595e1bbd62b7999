package target

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/farlog"
)

const stepTimeout = 30 * time.Second

// newListening makes a target that lets clients of other hosts in.
func newListening(t *testing.T, dir string) *Target {
	t.Helper()
	return newListeningAt(t, dir, "ofi:tcp://127.0.0.1:0")
}

func newListeningAt(t *testing.T, dir string, uris ...string) *Target {
	t.Helper()
	one := newTarget(t, dir)
	remote, err := openRemoteServer(uris, "", "", one.requestReport)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(remote.close)
	one.remote = remote
	return one
}

// admitting is a ring with these clients let in.
func admitting(epochMin uint32, grants ...*api.RemoteGrant) *api.RingSpec {
	spec := want("desk7/orders", 5)
	spec.Admission = &api.Admission{EpochMin: epochMin, Grants: grants}
	return spec
}

func tokenOf(digit byte) (token [farlog.TokenLen]byte) {
	for i := range token {
		token[i] = digit
	}
	return token
}

func writerGrant(epoch uint32) *api.RemoteGrant {
	token := tokenOf(byte(epoch))
	return &api.RemoteGrant{Token: token[:], Role: api.GrantRole_GRANT_ROLE_WRITER, Epoch: epoch}
}

func drainGrant(generation uint64) *api.RemoteGrant {
	token := tokenOf(byte(100 + generation))
	return &api.RemoteGrant{Token: token[:], Role: api.GrantRole_GRANT_ROLE_DRAIN, Generation: generation}
}

// seeUntil looks until the ring is as it should be.
func seeUntil(t *testing.T, one *Target, what string, spec *api.RingSpec,
	done func(*api.RingState) bool,
) *api.RingState {
	t.Helper()
	for deadline := time.Now().Add(stepTimeout); ; time.Sleep(time.Millisecond) {
		state := see(one, spec)[0].State
		if done(state) {
			return state
		}
		if time.Now().After(deadline) {
			t.Fatalf("never: %s; last seen: %v", what, state)
		}
	}
}

func openFar(t *testing.T, uri string, epoch uint32) (*farlog.Writer, error) {
	t.Helper()
	token := tokenOf(byte(epoch))
	return farlog.OpenWriter(uri, farlog.WriterOptions{
		Level: farlog.LevelPosted, Epoch: epoch, Token: &token,
		CountersDir: "none", Deadline: 30 * time.Second,
	})
}

func TestDoors_FenceEndsAWriterAndTheNextOneIsLetIn(t *testing.T) {
	one := newListening(t, t.TempDir())
	spec := admitting(1, writerGrant(1))
	state := seeUntil(t, one, "writer 1 is let in", spec,
		func(state *api.RingState) bool { return state.EpochFenced == 1 && state.EpochAdmitted == 1 })
	if len(state.RemoteUris) != 1 || !strings.HasPrefix(state.RemoteUris[0], "ofi:tcp://127.0.0.1:") ||
		!strings.HasSuffix(state.RemoteUris[0], "/desk7/orders") {
		t.Fatalf("reached at %q", state.RemoteUris)
	}
	old, err := openFar(t, state.RemoteUris[0], 1)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	if _, err := old.Append(farlog.Entry{Data: []byte("order")}, 0); err != nil {
		t.Fatal(err)
	}
	spec = admitting(2, writerGrant(2))
	state = seeUntil(t, one, "writer 2 is let in", spec,
		func(state *api.RingState) bool { return state.EpochFenced == 2 && state.EpochAdmitted == 2 })
	if state.EpochMin != 2 {
		t.Errorf("the fence in the ring is %d, expected 2: it was to be persisted before it was confirmed",
			state.EpochMin)
	}
	next, err := openFar(t, state.RemoteUris[0], 2)
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	if _, err := old.Append(farlog.Entry{Data: []byte("too late")}, 0); !errors.Is(err, farlog.ErrFenced) &&
		!errors.Is(err, farlog.ErrUnknown) {
		t.Errorf("the fenced writer's append gave %v", err)
	}
	if _, err := next.Append(farlog.Entry{Data: []byte("order")}, 0); err != nil {
		t.Error(err)
	}
	if rings := one.ServedRings(); len(rings) != 1 || rings[0].Transport != "ofi" ||
		counterOf(rings[0], "fenced_count") != 1 || counterOf(rings[0], "admitted_count") < 2 {
		t.Errorf("counted %v", rings)
	}
}

// Whoever stands by for a writer waits for its target to tell that it has gone: the rings are looked at when that
// happens, and not only at the next turn.
func TestDoors_AWriterThatComesOrGoesIsLookedAt(t *testing.T) {
	one := newListening(t, t.TempDir())
	state := seeUntil(t, one, "the writer may come", admitting(1, writerGrant(1)),
		func(state *api.RingState) bool { return state.EpochAdmitted == 1 })
	isAsked := func(what string) {
		t.Helper()
		select {
		case <-one.look:
		case <-time.After(stepTimeout):
			t.Fatalf("no look was asked for when the writer had %s", what)
		}
	}
	isAsked("been granted its epoch")
	writer, err := openFar(t, state.RemoteUris[0], 1)
	if err != nil {
		t.Fatal(err)
	}
	isAsked("come")
	if state := see(one, admitting(1, writerGrant(1)))[0].State; !state.WriterHeld {
		t.Errorf("the writer that has come is not seen: %v", state)
	}
	writer.Close()
	isAsked("gone")
	if state := see(one, admitting(1, writerGrant(1)))[0].State; state.WriterHeld {
		t.Errorf("the writer that has gone is still seen: %v", state)
	}
}

// A token is good from where its holder's host is, and from nowhere else; when that host has other addresses, the
// target is told of those.
func TestDoors_TokenIsRefusedFromAnotherAddress(t *testing.T) {
	one := newListening(t, t.TempDir())
	for i, here := range [][]string{{"192.0.2.7", "127.0.0.1"}, {"127.0.0.0/29"}, {"::ffff:127.0.0.1"}, nil} {
		epoch := uint32(i + 1)
		granted := writerGrant(epoch)
		granted.Addresses = []string{"192.0.2.7", "198.51.100.0/24", "127.0.0.2/31", "2001:db8::/32"}
		state := seeUntil(t, one, "the token is known", admitting(epoch, granted),
			func(state *api.RingState) bool { return state.EpochAdmitted == epoch })
		if writer, err := openFar(t, state.RemoteUris[0], epoch); !errors.Is(err, farlog.ErrInvalid) ||
			!strings.Contains(err.Error(), "did not name this address") {
			writer.Close()
			t.Fatalf("a writer from another address: %v", err)
		}
		moved := writerGrant(epoch)
		moved.Addresses = here
		seeUntil(t, one, "the other addresses are known", admitting(epoch, moved), func(*api.RingState) bool {
			one.remote.mutex.Lock()
			defer one.remote.mutex.Unlock()
			return one.remote.rings["desk7/orders"].hasGranted(moved)
		})
		writer, err := openFar(t, state.RemoteUris[0], epoch)
		if err != nil {
			t.Fatalf("a writer that may come from %q: %v", here, err)
		}
		if _, err := writer.Append(farlog.Entry{Data: []byte("order")}, 0); err != nil {
			t.Error(err)
		}
		writer.Close()
	}
}

// Two ports of one transport are one series: a second one of the same labels would end all of /metrics.
func TestDoors_ListenersOfATransportAreCountedTogether(t *testing.T) {
	one := newListeningAt(t, t.TempDir(), "ofi:tcp://127.0.0.1:0", "ofi:tcp://127.0.0.1:0")
	spec := admitting(1, writerGrant(1))
	state := seeUntil(t, one, "writer 1 is let in", spec,
		func(state *api.RingState) bool { return state.EpochAdmitted == 1 })
	if len(state.RemoteUris) != 2 {
		t.Fatalf("reached at %q, expected two", state.RemoteUris)
	}
	for i, uri := range state.RemoteUris {
		if _, err := openFar(t, uri, 2); err == nil {
			t.Errorf("%s: a token that nobody granted was let in", uri)
		}
		if sum := one.Unauthenticated()["ofi"].Refused; sum != uint64(i+1) {
			t.Errorf("%d unauthenticated connections counted, expected %d", sum, i+1)
		}
	}
	writer, err := openFar(t, state.RemoteUris[1], 1)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	if rings := one.ServedRings(); len(rings) != 1 || counterOf(rings[0], "admitted_count") != 1 ||
		counterOf(rings[0], "writer_count") != 1 {
		t.Errorf("counted %v", rings)
	}
}

func counterOf(ring ServedRing, name string) uint64 {
	for _, counter := range ring.Counters {
		if counter.Name == name {
			return counter.Value
		}
	}
	return 0
}

func TestDoors_DrainThatIsReplacedIsShutOutAndTheWriterGoesOn(t *testing.T) {
	one := newListening(t, t.TempDir())
	spec := admitting(1, writerGrant(1), drainGrant(1))
	state := seeUntil(t, one, "drain 1 is let in", spec,
		func(state *api.RingState) bool { return state.DrainGeneration == 1 && state.EpochAdmitted == 1 })
	writer, err := openFar(t, state.RemoteUris[0], 1)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	first, second := tokenOf(101), tokenOf(102)
	old, err := farlog.OpenReader(state.RemoteUris[0], farlog.ReaderOptions{Drain: true, Token: &first})
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	state = seeUntil(t, one, "drain 2 is let in", admitting(1, writerGrant(1), drainGrant(2)),
		func(state *api.RingState) bool { return state.DrainGeneration == 2 })
	next, err := farlog.OpenReader(state.RemoteUris[0], farlog.ReaderOptions{Drain: true, Token: &second})
	if err != nil {
		t.Fatalf("the second drain is not let in: %v", err)
	}
	defer next.Close()
	if _, err := farlog.OpenReader(state.RemoteUris[0], farlog.ReaderOptions{Drain: true, Token: &first}); err == nil {
		t.Error("the first drain was let in again")
	}
	if _, err := writer.Append(farlog.Entry{Data: []byte("order")}, stepTimeout); err != nil {
		t.Errorf("the writer did not come again: %v", err)
	}
}

func TestDoors_RestartedTargetLearnsItsGrantsAgain(t *testing.T) {
	dir := t.TempDir()
	spec := admitting(3, writerGrant(3))
	isDone := func(state *api.RingState) bool { return state.EpochFenced == 3 && state.EpochAdmitted == 3 }
	for range 2 {
		one := newListening(t, dir)
		state := seeUntil(t, one, "writer 3 is let in", spec, isDone)
		if state.Error != "" {
			t.Error(state.Error)
		}
		one.remote.close()
		one.remote.listeners = nil
		one.lock.Close()
	}
}

// A ring is never reported without the ways to it, from the first look of a target that is started again: who asked
// then would be told that it does not listen.
func TestDoors_RestartedTargetListensFromItsFirstReport(t *testing.T) {
	dir := t.TempDir()
	one := newListening(t, dir)
	see(one, admitting(1))
	one.lock.Close()
	one = newListening(t, dir)
	for name, specs := range map[string][]*api.RingSpec{"not told of it yet": nil, "wanted": {admitting(1)}} {
		rings := see(one, specs...)
		if len(rings) != 1 || len(rings[0].State.RingUuid) == 0 || len(rings[0].State.RemoteUris) != 1 {
			t.Errorf("%s: seen %v, expected a ring and one way to it", name, rings)
		}
	}
}

// Who writes a ring from another host has it by the target's open file. When that has gone, nothing that comes is
// acknowledged any more; when it is back, the writer goes on.
func TestDoors_RingIsTakenAwayAndPutBack(t *testing.T) {
	one := newListening(t, t.TempDir())
	spec := admitting(1, writerGrant(1))
	state := seeUntil(t, one, "the writer is let in", spec,
		func(state *api.RingState) bool { return state.EpochFenced == 1 && state.EpochAdmitted == 1 })
	spec.RingUuid = state.RingUuid
	writer, err := openFar(t, state.RemoteUris[0], 1)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	if _, err := writer.Append(farlog.Entry{Data: []byte("order")}, stepTimeout); err != nil {
		t.Fatal(err)
	}
	path := strings.TrimPrefix(state.Uri, "mem:")
	if err := os.Rename(path, path+".aside"); err != nil {
		t.Fatal(err)
	}
	seeUntil(t, one, "nobody is in", spec, func(state *api.RingState) bool {
		one.remote.mutex.Lock()
		defer one.remote.mutex.Unlock()
		return state.Error != "" && len(one.remote.rings) == 0
	})
	if position, err := writer.Append(farlog.Entry{Data: []byte("lost")}, 300*time.Millisecond); err == nil {
		t.Errorf("acknowledged at %v while the ring is away", position)
	}
	if err := os.Rename(path+".aside", path); err != nil {
		t.Fatal(err)
	}
	seeUntil(t, one, "the writer is let in again", spec,
		func(state *api.RingState) bool { return state.EpochAdmitted == 1 })
	for deadline := time.Now().Add(stepTimeout); ; {
		if _, err = writer.Append(farlog.Entry{Data: []byte("order")}, time.Second); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// A target that is started again while there is no control plane lets those in whom it knew.
func TestDoors_RestartWithoutAControlPlaneKeepsTheGrants(t *testing.T) {
	dir := t.TempDir()
	one := newTarget(t, dir)
	wanted := &api.WatchRingsResponse{Rings: []*api.RingSpec{admitting(3, writerGrant(3))}}
	if err := one.remember(wantedName, wanted); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(dir, wantedName)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file with the tokens: %v, %v", info.Mode(), err)
	}
	one.lock.Close()
	one = newListening(t, dir)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- one.Run(ctx) }()
	for deadline := time.Now().Add(stepTimeout); ; time.Sleep(time.Millisecond) {
		if rings := one.Rings(); len(rings) == 1 && rings[0].State.EpochAdmitted == 3 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("seen %v", one.Rings())
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	one.remote.listeners = nil // closed by Run
}

// A writer that was fenced while it slept is told so by a target that was started again since, although the control
// plane names only its successor.
func TestDoors_FencedWriterIsToldAfterARestart(t *testing.T) {
	dir := t.TempDir()
	one := newListening(t, dir)
	message := func(epoch uint32) *api.WatchRingsResponse {
		return &api.WatchRingsResponse{Rings: []*api.RingSpec{admitting(epoch, writerGrant(epoch))}}
	}
	admitted := func(epoch uint32) string {
		one.mutex.Lock()
		spec := one.wanted[0]
		one.mutex.Unlock()
		state := seeUntil(t, one, "the writer is let in", spec,
			func(state *api.RingState) bool { return state.EpochFenced == epoch && state.EpochAdmitted == epoch })
		return state.RemoteUris[0]
	}
	one.applyWanted(message(3))
	zombie, err := openFar(t, admitted(3), 3)
	if err != nil {
		t.Fatal(err)
	}
	defer zombie.Close()
	if _, err := zombie.Append(farlog.Entry{Data: []byte("order")}, stepTimeout); err != nil {
		t.Fatal(err)
	}
	listened := one.remote.listeners[0].URI()
	one.applyWanted(message(4))
	one.remote.close()
	one.remote.listeners = nil
	one.lock.Close()
	one = newTarget(t, dir)
	remote, err := openRemoteServer([]string{listened}, "", "", one.requestReport)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(remote.close)
	one.remote = remote
	recalled, err := one.recall(wantedName)
	if err != nil {
		t.Fatal(err)
	}
	one.wanted = recalled.Rings
	one.applyWanted(message(4))
	admitted(4)
	if _, err := zombie.Append(farlog.Entry{Data: []byte("too late")}, stepTimeout); !errors.Is(err, farlog.ErrFenced) {
		t.Errorf("the fenced writer's append gave %v", err)
	}
	one.applyWanted(message(20))
	if grants := one.wanted[0].Admission.Grants; len(grants) != 3 || grants[0].Epoch != 20 || grants[1].Epoch != 4 ||
		grants[2].Epoch != 3 {
		t.Errorf("remembered %v, expected writer 20 and the fenced ones, 4 and 3", grants)
	}
}

func TestCarryFenced_KeepsTheNewest(t *testing.T) {
	var before []*api.RingSpec
	for epoch := uint32(1); epoch <= 2*fencedMax; epoch++ {
		now := []*api.RingSpec{admitting(epoch, writerGrant(epoch), drainGrant(uint64(epoch)))}
		carryFenced(before, now)
		before = now
	}
	grants := before[0].Admission.Grants
	if len(grants) != 2+fencedMax || grants[0].Epoch != 2*fencedMax ||
		grants[1].Role != api.GrantRole_GRANT_ROLE_DRAIN ||
		grants[2].Epoch != 2*fencedMax-1 || grants[1+fencedMax].Epoch != fencedMax {
		t.Errorf("kept %v", grants)
	}
}

func TestDoors_BadGrantIsTheRingsErrorAndNoOtherRings(t *testing.T) {
	one := newListening(t, t.TempDir())
	bad := admitting(1, &api.RemoteGrant{Token: []byte("short"), Role: api.GrantRole_GRANT_ROLE_WRITER, Epoch: 1})
	good := proto.Clone(admitting(1, writerGrant(1))).(*api.RingSpec)
	good.Stream.Spec.Name = "desk8/orders"
	for deadline := time.Now().Add(stepTimeout); ; time.Sleep(time.Millisecond) {
		rings := see(one, bad, good)
		first, second := rings[0].State, rings[1].State
		if strings.Contains(first.Error, "token of 5 bytes") && second.Error == "" && second.EpochAdmitted == 1 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("seen %q and %q", first.Error, second.Error)
		}
	}
}

func TestDoors_PortInUseIsNamed(t *testing.T) {
	one := newListening(t, t.TempDir())
	_, err := openRemoteServer([]string{one.remote.listeners[0].URI()}, "", "", func() {})
	if err == nil || !strings.Contains(err.Error(), "target.listen") ||
		!strings.Contains(err.Error(), one.remote.listeners[0].URI()) {
		t.Errorf("error %v, expected one that names the setting and the address", err)
	}
}

func TestAdvertised_HostThatClientsDial(t *testing.T) {
	for _, c := range []struct{ uri, host, want string }{
		{"ofi:tcp://0.0.0.0:7471", "", "ofi:tcp://storage1:7471"},
		{"ofi:tcp://[::]:7471", "", "ofi:tcp://storage1:7471"},
		{"verbs://10.0.0.7:7471", "", "verbs://10.0.0.7:7471"},
		{"verbs://10.0.0.7:7471", "storage3.example", "verbs://storage3.example:7471"},
		{"verbs://0.0.0.0:7471", "fd00::7", "verbs://[fd00::7]:7471"},
		{"ofi:tcp://storage2:7471", "", "ofi:tcp://storage2:7471"},
	} {
		if got, err := advertised(c.uri, c.host, "storage1"); err != nil || got != c.want {
			t.Errorf("advertised(%q, %q) is %q, %v; expected %q", c.uri, c.host, got, err, c.want)
		}
	}
}
