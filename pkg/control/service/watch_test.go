package service

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/access"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/etcd/etcdtest"
	"github.com/farlog/farlog/pkg/control/grant"
	"github.com/farlog/farlog/pkg/control/state"
	"github.com/farlog/farlog/pkg/identity"
)

// writersWatch reads a watch of writers; received are those of which each message told, by stream.
type writersWatch struct {
	t      *testing.T
	stream grpc.ServerStreamingClient[api.WatchWritersResponse]
	told   map[string]*api.WriterState
}

func (i *instance) watchWriters(request *api.WatchWritersRequest) *writersWatch {
	i.t.Helper()
	stream, err := i.control.WatchWriters(i.context(), request)
	if err != nil {
		i.t.Fatal(err)
	}
	return &writersWatch{t: i.t, stream: stream, told: map[string]*api.WriterState{}}
}

// until reads on until what is known is as wanted, and demands that nothing was told but of these streams.
func (w *writersWatch) until(what string, streams []string, isSo func(told map[string]*api.WriterState) bool) {
	w.t.Helper()
	for isFirst := true; isFirst || !isSo(w.told); isFirst = false {
		message, err := w.stream.Recv()
		if err != nil {
			w.t.Fatalf("%s: %v, told %v", what, err, w.told)
		}
		if message.Snapshot {
			clear(w.told)
		}
		received := slices.Clone(message.Gone)
		for _, one := range message.Writers {
			w.told[one.Stream] = one
			received = append(received, one.Stream)
		}
		for _, name := range message.Gone {
			delete(w.told, name)
		}
		for _, name := range received {
			if !slices.Contains(streams, name) {
				w.t.Errorf("%s: told of stream %q, expected of %q alone", what, name, streams)
			}
		}
	}
}

// createRings creates streams with a ring each, which target t1 reports.
func (i *instance) createRings(names ...string) (rings []*api.RingState) {
	i.t.Helper()
	for _, name := range names {
		i.create(name)
		rings = append(rings, ring(name, "t1"))
	}
	i.reportTarget("t1", rings...)
	return rings
}

// A host learns of its writers what ExtendWriter would say: when they are granted, when their stream is declared
// otherwise, when they have taken that in, when a ring takes the place of another, when a later epoch is handed out.
// Nothing is told of others, nor twice; and who begins again is told of all.
func TestWatchWriters_TellsWhatExtendWriterWouldSay(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Open(t, t.TempDir())
	one := startInstance(t, etcd, true)
	one.reportTarget("t1")
	rings := one.createRings("a", "b", "c")
	watch, elsewhere := one.watchWriters(&api.WatchWritersRequest{Host: "h"}),
		one.watchWriters(&api.WatchWritersRequest{Host: "gamma"})
	only := one.watchWriters(&api.WatchWritersRequest{Host: "h", Stream: "b*"})
	for _, w := range []*writersWatch{watch, elsewhere, only} {
		w.until("nobody writes", nil, func(told map[string]*api.WriterState) bool { return len(told) == 0 })
	}
	for _, name := range []string{"a", "b"} {
		if _, err := one.acquire(name); err != nil {
			t.Fatal(err)
		}
		watch.until(name+" was granted", []string{name}, func(told map[string]*api.WriterState) bool {
			state := told[name]
			return state.GetEpoch() == 1 && state.Pid == 1 && state.Declared.Level == api.Level_LEVEL_PERSISTENT &&
				isSameSettings(state.Declared, state.Running) && len(state.RingUuids) == 0
		})
	}
	spec := one.status("a").Stream.Spec
	spec.Policy = api.Policy_POLICY_REJECT
	if _, err := one.control.UpdateStream(one.context(), &api.UpdateStreamRequest{Spec: spec}); err != nil {
		t.Fatal(err)
	}
	watch.until("a is declared otherwise", []string{"a"}, func(told map[string]*api.WriterState) bool {
		return told["a"].Declared.Policy == api.Policy_POLICY_REJECT &&
			told["a"].Running.Policy == api.Policy_POLICY_BLOCK
	})
	extend := &api.ExtendWriterRequest{
		Stream: "a", Epoch: 1, Holder: &api.Holder{Host: "h", Pid: 1},
		Running: settingsOf(spec),
	}
	if _, err := one.control.ExtendWriter(one.context(), extend); err != nil {
		t.Fatal(err)
	}
	watch.until("its writer has taken that in", []string{"a"}, func(told map[string]*api.WriterState) bool {
		return told["a"].Running.Policy == api.Policy_POLICY_REJECT
	})
	replaceRing(t, one, etcd)
	rings[0].RingUuid = bytes.Repeat([]byte{7}, grant.RingUUIDLen)
	one.reportTarget("t1", rings...)
	watch.until("its ring is another one", []string{"a"}, func(told map[string]*api.WriterState) bool {
		return len(told["a"].RingUuids) == 1 && bytes.Equal(told["a"].RingUuids[0], rings[0].RingUuid)
	})
	now, _ := one.server.mirror.Load()
	if _, _, err := grant.NextEpoch(one.context(), one.server.config.Client, now, &api.Grant{Stream: "b"}, 0, 1,
		func(int, *api.Admission, uint32) error { return nil }, nil); err != nil {
		t.Fatal(err)
	}
	watch.until("a later epoch than b's writer's", []string{"b"},
		func(told map[string]*api.WriterState) bool { return told["b"] == nil && told["a"] != nil })
	if _, err := one.acquire("b"); err != nil {
		t.Fatal(err)
	}
	watch.until("b is granted again", []string{"b"},
		func(told map[string]*api.WriterState) bool { return told["b"].GetEpoch() == 3 })
	only.until("b alone", []string{"b"},
		func(told map[string]*api.WriterState) bool { return told["b"].GetEpoch() == 3 })
	watchElsewhere(one, watch, elsewhere)
	again := one.watchWriters(&api.WatchWritersRequest{Host: "h"})
	again.until("watched again", []string{"a"},
		func(told map[string]*api.WriterState) bool { return len(told["a"].GetRingUuids()) == 1 })
	_, err := one.watchWriters(&api.WatchWritersRequest{}).stream.Recv()
	wants(t, "no host", err, codes.InvalidArgument, `host="": must be at least 1 characters`)
}

// watchElsewhere grants b to another host: that host is told of it, the former one that it is gone.
func watchElsewhere(one *instance, watch, elsewhere *writersWatch) {
	// The last of a is not told of before, so that whatever else was told would have been received.
	one.until("granted elsewhere", func() bool {
		_, err := one.control.AcquireWriter(one.context(),
			&api.AcquireWriterRequest{Stream: "b", Holder: &api.Holder{Host: "gamma", Pid: 7}})
		return err == nil
	})
	elsewhere.until("granted there", []string{"b"},
		func(told map[string]*api.WriterState) bool { return told["b"].GetPid() == 7 })
	watch.until("and not here any more", []string{"b"},
		func(told map[string]*api.WriterState) bool { return told["b"] == nil })
}

// What is told of a writer is told to whom its grant is for alone, and while he may write the stream.
func TestWriterState_OneOfItIsAnother(t *testing.T) {
	t.Parallel()
	for what, one := range map[string]struct {
		identity, host string
		streams, from  string
		epoch, granted uint32
		isTold         bool
	}{
		"its own":                      {"desk", "beta", "a", "beta", 3, 3, true},
		"another identity":             {"other", "beta", "a", "beta", 3, 3, false},
		"another host":                 {"desk", "gamma", "a", "beta", 3, 3, false},
		"a stream he may not write":    {"desk", "beta", "b", "beta", 3, 3, false},
		"a later epoch is handed out":  {"desk", "beta", "a", "beta", 4, 3, false},
		"a host he may not write from": {"desk", "beta", "a", "gamma", 3, 3, false},
	} {
		caller := access.Rules{{
			Identities: []string{"desk"}, Roles: []access.Role{access.RoleAppend},
			Streams: []string{one.streams}, Hosts: []string{one.from},
		}}.Caller("desk")
		v := &state.View{
			Streams: map[string]*api.Stream{"a": {Spec: &api.StreamSpec{Name: "a"}}},
			Epochs:  map[string]uint32{"a": one.epoch},
			Grants: map[string]*api.Grant{"a": {
				Epoch:   one.granted,
				Holder:  &api.Holder{Identity: one.identity, Host: one.host},
				Members: []*api.Member{{Target: "t1", Token: []byte("secret")}},
			}},
		}
		if other := otherWriter(v, caller, "beta", "a"); (other != nil) != (what == "another identity") ||
			strings.Contains(other.String(), "secret") {
			t.Errorf("%s: of another's told %v", what, other)
		}
		if state := writerState(v, caller, "beta", "a"); (state != nil) != one.isTold {
			t.Errorf("%s: told %v", what, state)
		}
	}
}

// streamsKnown is what a watch of epochs has told.
type streamsKnown struct {
	t      *testing.T
	stream grpc.ServerStreamingClient[api.WatchEpochsResponse]
	known  map[string]string
	last   *api.WatchEpochsResponse
}

func (i *instance) watchEpochs(ctx context.Context, known map[string]string,
	request *api.WatchEpochsRequest,
) *streamsKnown {
	i.t.Helper()
	stream, err := i.fabric().WatchEpochs(ctx, request)
	if err != nil {
		i.t.Fatal(err)
	}
	return &streamsKnown{t: i.t, stream: stream, known: known}
}

func (w *streamsKnown) until(want string) {
	w.t.Helper()
	for {
		var err error
		if w.last, err = w.stream.Recv(); err != nil {
			w.t.Fatalf("waiting for %q: %v, known %v", want, err, w.known)
		}
		if w.last.Snapshot {
			clear(w.known)
		}
		for _, stream := range w.last.Streams {
			delete(w.known, stream)
		}
		for _, one := range w.last.Epochs {
			w.known[one.Stream] = fmt.Sprint(one.Granted)
		}
		var have []string
		for _, stream := range slices.Sorted(maps.Keys(w.known)) {
			have = append(have, stream+" "+w.known[stream])
		}
		if w.last.Revision > 0 && strings.Join(have, "; ") == want {
			return
		}
	}
}

// A watch of epochs tells all, then what changes; after a break it goes on from the revision that it learned of last,
// also with another control plane, and where that does not know so much any more with all. What is gone is told as
// gone.
func TestEpochs_WatchedAcrossABreak(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Open(t, t.TempDir())
	one := startInstance(t, etcd, true)
	one.reportTarget("t1")
	for _, name := range []string{"desk7/a", "desk7/b", "desk8/a"} {
		one.create(name)
	}
	one.reportTarget("t1", ring("desk7/a", "t1"), ring("desk7/b", "t1"), ring("desk8/a", "t1"))
	acquire := func(name string) {
		t.Helper()
		if _, err := one.acquire(name); err != nil {
			t.Fatal(err)
		}
	}
	acquire("desk7/a")
	gone := one.view().Revision // the other instance does not know what was before
	other := startInstance(t, etcd, false)
	ctx, stop := context.WithTimeout(t.Context(), stepTimeout)
	watch := one.watchEpochs(ctx, map[string]string{"lost": "1"}, &api.WatchEpochsRequest{Stream: "desk7/*"})
	watch.until("desk7/a 1; desk7/b 0")
	acquire("desk8/a")
	acquire("desk7/b")
	watch.until("desk7/a 1; desk7/b 1")
	if watch.last.Snapshot || !slices.Equal(watch.last.Streams, []string{"desk7/b"}) {
		t.Errorf("a change is told as %v", watch.last)
	}
	acquire("desk7/b")
	watch.until("desk7/a 1; desk7/b 2")
	stop()
	acquire("desk7/a")
	forget(t, one, "desk7/b")
	ctx, stop = context.WithTimeout(t.Context(), stepTimeout)
	defer stop()
	for _, from := range []*instance{one, other} {
		resumed := from.watchEpochs(ctx, maps.Clone(watch.known),
			&api.WatchEpochsRequest{Stream: "desk7/*", Revision: watch.last.Revision})
		resumed.until("desk7/a 2")
		if resumed.last.Snapshot {
			t.Errorf("a watch that goes on is told %v", resumed.last)
		}
	}
	for _, revision := range []int64{gone - 1, 1 << 40} {
		resumed := other.watchEpochs(ctx, map[string]string{"lost": "1"}, &api.WatchEpochsRequest{Revision: revision})
		if resumed.until("desk7/a 2; desk8/a 1"); !resumed.last.Snapshot {
			t.Errorf("from revision %d: told %v", revision, resumed.last)
		}
	}
	_, err := one.watchEpochs(ctx, nil, &api.WatchEpochsRequest{Stream: "["}).stream.Recv()
	wants(t, "no pattern", err, codes.InvalidArgument, `stream="[": `+streamPatternRule)
	_, err = one.watchEpochs(ctx, nil, &api.WatchEpochsRequest{Revision: -1}).stream.Recv()
	wants(t, "no revision", err, codes.InvalidArgument, "revision=-1: must be greater than or equal to 0")
}

// forget takes a stream out of etcd, as the end of a deletion does.
func forget(t *testing.T, one *instance, name string) {
	t.Helper()
	for _, key := range []string{
		etcd.KeyRings + name, etcd.KeyEpochs + name, etcd.KeyGrants + name,
		etcd.KeyStreams + name,
	} {
		if _, err := one.etcd.Client().Delete(one.context(), key); err != nil {
			t.Fatal(err)
		}
	}
}

// What is told in more than one message is told once, and only the last says from where to go on.
func TestWatchStreams_InParts(t *testing.T) {
	t.Parallel()
	v, names := state.NewView(), []string{}
	v.Revision = 9
	for i := range 2*watchChunk + 1 {
		names = append(names, fmt.Sprintf("s%04d", i))
		v.Streams[names[i]] = new(api.Stream)
	}
	var told []streamsPart[*api.EpochInfo]
	w := streamsWatch[*api.EpochInfo]{
		of:   func(_ *state.View, stream string) []*api.EpochInfo { return []*api.EpochInfo{{Stream: stream}} },
		send: func(one streamsPart[*api.EpochInfo]) error { told = append(told, one); return nil },
	}
	memory := newMemory()
	memory.begin()
	if err := w.sendChanged(v, memory, names, true); err != nil {
		t.Fatal(err)
	}
	count := 0
	for i, one := range told {
		isLast := i == len(told)-1
		if count += len(one.items); one.isAll != (i == 0) || (one.revision == 9) != isLast || !isLast &&
			one.revision != 0 {
			t.Errorf("message %d of %d: all %v, revision %d", i, len(told), one.isAll, one.revision)
		}
	}
	if len(told) != 3 || count != len(names) {
		t.Errorf("%d messages with %d streams, expected 3 with %d", len(told), count, len(names))
	}
	told = nil
	if err := w.sendChanged(v, memory, names, false); err != nil || len(told) != 0 {
		t.Errorf("told again: %d messages, %v", len(told), err)
	}
}

// openWatches open a watch each, and give what the first message tells and what waits for the next.
func openWatches(ctx context.Context, t *testing.T, conn *grpc.ClientConn) map[string]func() (end func() error,
	names []string) {
	return map[string]func() (end func() error, names []string){
		"WatchRoutes": func() (func() error, []string) {
			watch, err := api.NewControlServiceClient(conn).WatchRoutes(ctx, &api.WatchRoutesRequest{})
			if err != nil {
				t.Fatal(err)
			}
			message, err := watch.Recv()
			if err != nil {
				t.Fatal(err)
			}
			names := []string{}
			for _, one := range message.Routes {
				names = append(names, one.Route.Spec.Name)
			}
			return func() error { _, err := watch.Recv(); return err }, names
		},
		"WatchEpochs": func() (func() error, []string) {
			watch, err := api.NewFabricServiceClient(conn).WatchEpochs(ctx, &api.WatchEpochsRequest{})
			if err != nil {
				t.Fatal(err)
			}
			message, err := watch.Recv()
			if err != nil {
				t.Fatal(err)
			}
			return func() error { _, err := watch.Recv(); return err }, message.Streams
		},
	}
}

// Somebody from whom the rules take a stream while he watches is not told of it any more: the watch ends, and opened
// again tells what he may see; routes as well. Others go on.
func TestGuard_RulesChangeWhileWatching(t *testing.T) {
	t.Parallel()
	const rule = "rules:\n- {identities: [spiffe://farlog/farlog/host/desk7], roles: [append], streams: [%s]}\n"
	g := startGuarded(t, fmt.Sprintf(rule, "desk7/*, desk8/*"))
	ada := api.NewControlServiceClient(g.dial(g.keeper(identity.KindAdmin, "ada", time.Hour)))
	for _, name := range []string{"desk7/orders", "desk8/orders"} {
		if _, err := ada.CreateStream(t.Context(),
			&api.CreateStreamRequest{Spec: &api.StreamSpec{Name: name}}); err != nil {
			t.Fatal(err)
		}
		if _, err := ada.CreateRoute(t.Context(), &api.CreateRouteRequest{Spec: route(strings.Replace(name, "orders",
			"all", 1), "to "+name)}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), stepTimeout)
	defer cancel()
	conn := g.dial(g.keeper(identity.KindHost, "desk7", time.Hour))
	open := openWatches(ctx, t, conn)
	ends := map[string]func() error{}
	for what, one := range open {
		end, names := one()
		if ends[what] = end; len(names) != 2 {
			t.Errorf("%s: told %q, expected two", what, names)
		}
	}
	others, err := ada.WatchRoutes(ctx, &api.WatchRoutesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := others.Recv(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(g.dir, "access.yaml"), []byte(fmt.Sprintf(rule, "desk7/*")),
		0o644); err != nil {
		t.Fatal(err)
	}
	for what, end := range ends {
		if err := end(); status.Code(err) != codes.Unavailable ||
			!strings.Contains(err.Error(), "what spiffe://farlog/farlog/host/desk7 may see has changed") {
			t.Errorf("%s goes on: %v", what, err)
		}
		if _, names := open[what](); len(names) != 1 || !strings.HasPrefix(names[0], "desk7/") {
			t.Errorf("%s: told %q, expected what is desk7's", what, names)
		}
	}
	if _, err := ada.DeleteRoute(ctx, &api.DeleteRouteRequest{Name: "desk8/all"}); err != nil {
		t.Fatal(err)
	}
	if message, err := others.Recv(); err != nil || len(message.Routes) != 1 {
		t.Errorf("somebody else's watch: %v, %v", message, err)
	}
}
