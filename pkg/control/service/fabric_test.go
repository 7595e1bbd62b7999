package service

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/access"
	"github.com/farlog/farlog/pkg/control/check"
	"github.com/farlog/farlog/pkg/control/etcd/etcdtest"
	"github.com/farlog/farlog/pkg/control/fabric"
	"github.com/farlog/farlog/pkg/control/refusal"
	"github.com/farlog/farlog/pkg/control/refusal/refusaltest"
	"github.com/farlog/farlog/pkg/control/state"
)

// problemsIn takes the details out of an error.
func problemsIn(err error) (texts []string) {
	for _, detail := range status.Convert(err).Details() {
		if list, ok := detail.(*api.Problems); ok {
			for _, one := range list.Problems {
				texts = append(texts, one.Field+"="+one.Value+": "+one.Rule)
			}
		}
	}
	return texts
}

func (i *instance) apply(request *api.ApplyFabricRequest) (*api.ApplyFabricResponse, error) {
	return i.control.ApplyFabric(i.context(), request)
}

func changesText(changes []*api.Change) string {
	var texts []string
	for _, change := range changes {
		text := change.Kind + " " + change.Name
		if change.Created {
			text += " new"
		} else {
			for _, field := range change.Fields {
				text += fmt.Sprintf(" %s %s->%s", field.Name, field.Before, field.After)
			}
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, "; ")
}

func TestApplyFabric_UntilItIsSo(t *testing.T) {
	t.Parallel()
	one := startInstance(t, etcdtest.Open(t, t.TempDir()), true)
	one.create("there")
	fabric := &api.Fabric{
		Targets: []*api.TargetSpec{{Host: "alpha", CapacityBytes: 1 << 30}},
		Streams: []*api.StreamSpec{{Name: "a", TargetHost: "alpha"}, {Name: "b", Policy: api.Policy_POLICY_REJECT}},
	}
	dry, err := one.apply(&api.ApplyFabricRequest{Fabric: fabric, DryRun: true})
	if got := changesText(dry.GetChanges()); err != nil || got != "target alpha new; stream a new; stream b new" {
		t.Fatalf("dry run: %q, %v", got, err)
	}
	if list, _ := one.control.ListStreams(one.context(), &api.ListStreamsRequest{}); len(list.GetStreams()) != 1 {
		t.Fatalf("a dry run made streams: %v", list)
	}
	done, err := one.apply(&api.ApplyFabricRequest{Fabric: fabric})
	if err != nil || !proto.Equal(&api.ApplyFabricResponse{Changes: done.Changes},
		&api.ApplyFabricResponse{Changes: dry.Changes}) || !slices.Equal(done.Undeclared, []string{"stream there"}) {
		t.Fatalf("got %v, %v", done, err)
	}
	again, err := one.apply(&api.ApplyFabricRequest{Fabric: fabric, Revision: done.Revision})
	if err != nil || len(again.Changes) != 0 || again.Revision != done.Revision {
		t.Fatalf("again: %v, %v", again, err)
	}
	// What is exported and applied is so already, with every default written out.
	exported, err := one.control.GetFabric(one.context(), &api.GetFabricRequest{})
	if err != nil || len(exported.Fabric.Streams) != 3 ||
		exported.Fabric.Streams[0].RingSizeBytes != check.RingSizeDefault {
		t.Fatalf("export: %v, %v", exported, err)
	}
	if again, err = one.apply(&api.ApplyFabricRequest{Fabric: exported.Fabric}); err != nil ||
		len(again.Changes)+len(again.Undeclared) != 0 {
		t.Fatalf("exported and applied: %v, %v", again, err)
	}
	fabric.Targets[0].Closed, fabric.Streams[1].Policy, fabric.Streams[0].Deadline = true, 0,
		durationpb.New(time.Second)
	changed, err := one.apply(&api.ApplyFabricRequest{Fabric: fabric})
	want := "target alpha closed false->true; stream a deadline 0s->1s; stream b policy reject->block"
	if got := changesText(changed.GetChanges()); err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	if _, err := one.apply(&api.ApplyFabricRequest{
		Fabric:   fabric,
		Revision: done.Revision,
	}); status.Code(err) != codes.Aborted {
		t.Errorf("an old revision: %v", err)
	}
}

// All that is wrong is told in one answer, field by field, and nothing is done.
func TestApplyFabric_AllProblemsAtOnce(t *testing.T) {
	t.Parallel()
	one := startInstance(t, etcdtest.Open(t, t.TempDir()), true)
	one.create("there")
	_, err := one.apply(&api.ApplyFabricRequest{Fabric: &api.Fabric{
		Targets: []*api.TargetSpec{{Host: "alpha", CapacityBytes: 100 << 20}, {Host: "alpha"}, {Host: "no host"}},
		Streams: []*api.StreamSpec{
			{Name: "good"},
			{Name: "../etc"},
			{Name: "good"},
			{Name: "x", Align: 96},
			{Name: "y", TargetHost: "nowhere"},
			{Name: "there", RingSizeBytes: 1 << 20},
			{Name: "one", TargetHost: "alpha"},
			{Name: "two", TargetHost: "alpha"},
			{Name: "z", RingSizeBytes: 5, Level: api.Level_LEVEL_ARCHIVED},
		},
	}})
	if status.Code(err) != codes.InvalidArgument {
		t.Fatalf("got %v", err)
	}
	got := problemsIn(err)
	for _, want := range []string{
		`fabric.targets[2].host="no host": expected 1 to 128 letters`,
		`fabric.targets[1].host="alpha": expected each host once: targets[0] is the same`,
		`fabric.streams[1].name="../etc": expected 1 to 63 letters`,
		`fabric.streams[2].name="good": expected each name once: streams[0] is the same`,
		`fabric.streams[3].align=96: expected a power of two from 64 to 4096`,
		`fabric.streams[4].target_host="nowhere": expected a host under targets`,
		`fabric.streams[5].ring_size_bytes=1048576: expected 67108864 as it is`,
		`fabric.streams[7].ring_size_bytes=67108864: expected at most 37748736 bytes: so much is left of the ` +
			`104857600 of target host alpha`,
		`fabric.streams[8].ring_size_bytes=5: expected a multiple of 4096 bytes`,
		`fabric.streams[8].level=archived: expected posted, visible or persistent`,
	} {
		if !slices.ContainsFunc(got, func(text string) bool { return strings.HasPrefix(text, want) }) {
			t.Errorf("not told: %s", want)
		}
	}
	if len(got) > 13 { // the record_len_max of "there" follows from its ring
		t.Errorf("told %d problems:\n%s", len(got), strings.Join(got, "\n"))
	}
	if list, _ := one.control.ListStreams(one.context(), &api.ListStreamsRequest{}); len(list.GetStreams()) != 1 {
		t.Errorf("something was applied: %v", list)
	}
}

func TestUpdateStream_ByRevision(t *testing.T) {
	t.Parallel()
	one := startInstance(t, etcdtest.Open(t, t.TempDir()), true)
	stream := one.create("a")
	spec := proto.Clone(stream.Spec).(*api.StreamSpec)
	spec.Policy = api.Policy_POLICY_REJECT
	dry, err := one.control.UpdateStream(one.context(),
		&api.UpdateStreamRequest{Spec: spec, Revision: stream.Revision, DryRun: true})
	if err != nil || len(dry.Fields) != 1 {
		t.Fatalf("dry run: %v, %v", dry, err)
	}
	updated, err := one.control.UpdateStream(one.context(),
		&api.UpdateStreamRequest{Spec: spec, Revision: stream.Revision})
	if err != nil || updated.Stream.Spec.Policy != spec.Policy || updated.Stream.Revision <= stream.Revision ||
		updated.Stream.Salt != stream.Salt {
		t.Fatalf("got %v, %v", updated, err)
	}
	if _, err := one.control.UpdateStream(one.context(),
		&api.UpdateStreamRequest{Spec: spec, Revision: stream.Revision}); status.Code(err) != codes.Aborted {
		t.Errorf("the same revision twice: %v", err)
	}
	spec.RingSizeBytes = 1 << 20
	_, err = one.control.UpdateStream(one.context(), &api.UpdateStreamRequest{Spec: spec})
	if got := problemsIn(err); status.Code(err) != codes.FailedPrecondition &&
		status.Code(err) != codes.InvalidArgument || len(got) == 0 {
		t.Errorf("another size: %v", err)
	}
	if _, err := one.control.UpdateStream(one.context(),
		&api.UpdateStreamRequest{Spec: &api.StreamSpec{Name: "none"}}); status.Code(err) != codes.NotFound {
		t.Errorf("got %v", err)
	}
}

func TestListStreams_PagesAndFilters(t *testing.T) {
	t.Parallel()
	one := startInstance(t, etcdtest.Open(t, t.TempDir()), true)
	var streams []*api.StreamSpec
	for i := range 25 {
		streams = append(streams, &api.StreamSpec{Name: fmt.Sprintf("desk%d/s%02d", i%2, i)})
	}
	if _, err := one.apply(&api.ApplyFabricRequest{Fabric: &api.Fabric{Streams: streams}}); err != nil {
		t.Fatal(err)
	}
	list := func(request *api.ListStreamsRequest) (names []string, pages int) {
		t.Helper()
		for {
			response, err := one.control.ListStreams(one.context(), request)
			if err != nil {
				t.Fatal(err)
			}
			pages++
			for _, stream := range response.Streams {
				names = append(names, stream.Stream.Spec.Name)
			}
			if request.PageToken = response.NextPageToken; request.PageToken == "" {
				return names, pages
			}
		}
	}
	names, pages := list(&api.ListStreamsRequest{PageSize: 10})
	if len(names) != 25 || pages != 3 || !slices.IsSorted(names) {
		t.Errorf("%d names on %d pages: %v", len(names), pages, names)
	}
	if names, pages = list(&api.ListStreamsRequest{PageSize: 6, Name: "desk1/*"}); len(names) != 12 || pages != 2 {
		t.Errorf("desk1: %d names on %d pages", len(names), pages)
	}
	if names, _ = list(&api.ListStreamsRequest{Conditions: []api.Condition{api.Condition_CONDITION_OK}}); len(
		names,
	) != 0 {
		t.Errorf("ok: %v", names)
	}
	if names, _ = list(&api.ListStreamsRequest{Conditions: []api.Condition{api.Condition_CONDITION_PENDING}}); len(
		names,
	) != 25 {
		t.Errorf("pending: %d", len(names))
	}
	for _, request := range []*api.ListStreamsRequest{{PageSize: 10001}, {PageToken: "%"}, {Name: "["}} {
		if _, err := one.control.ListStreams(one.context(), request); status.Code(err) != codes.InvalidArgument ||
			len(problemsIn(err)) != 1 {
			t.Errorf("%v: %v", request, err)
		}
	}
}

// A watch that breaks goes on from the revision it has learned of: nothing is told twice, nothing is left out.
func TestWatchStreams_GoesOnAfterABreak(t *testing.T) {
	t.Parallel()
	one := startInstance(t, etcdtest.Open(t, t.TempDir()), true)
	one.create("a")
	revision, received := int64(0), []string{}
	receive := func(until string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), stepTimeout)
		defer cancel()
		watch, err := one.control.WatchStreams(ctx, &api.WatchStreamsRequest{Revision: revision})
		for err == nil {
			var message *api.WatchStreamsResponse
			if message, err = watch.Recv(); err != nil {
				break
			}
			revision = message.Revision
			for _, stream := range message.Streams {
				received = append(received, stream.Spec.Name)
			}
			if slices.Contains(received, until) {
				return
			}
		}
		t.Fatalf("received %v, then %v", received, err)
	}
	receive("a")
	one.create("b")
	one.create("c")
	receive("c")
	one.create("d")
	receive("d")
	if got := strings.Join(received, ""); got != "abcd" {
		t.Errorf("received %q", got)
	}
}

// A watch that goes on from a revision of another etcd, such as the one that a backup was restored from, is told all
// there is and goes on from here: not nothing, until this etcd has come as far.
func TestWatchStreams_OfAnotherEtcd(t *testing.T) {
	t.Parallel()
	one := startInstance(t, etcdtest.Open(t, t.TempDir()), true)
	one.create("a")
	ctx, cancel := context.WithTimeout(t.Context(), stepTimeout)
	defer cancel()
	watch, err := one.control.WatchStreams(ctx, &api.WatchStreamsRequest{Revision: 1 << 40})
	if err != nil {
		t.Fatal(err)
	}
	receive := func(want string, isAll bool) int64 {
		t.Helper()
		message, err := watch.Recv()
		if err != nil || len(message.Streams) != 1 || message.Streams[0].Spec.Name != want ||
			message.Snapshot != isAll ||
			message.Revision >= 1<<40 {
			t.Fatalf("got %v, %v, expected stream %s, all there is: %t", message, err, want, isAll)
		}
		return message.Revision
	}
	revision := receive("a", true)
	one.create("b")
	receive("b", false)
	if watch, err = one.control.WatchStreams(ctx, &api.WatchStreamsRequest{Revision: revision}); err != nil {
		t.Fatal(err)
	}
	receive("b", false)
}

// A ring that no host can ever hold is refused where no target is named, too; so is one that finds no space beside the
// others; one that could go where there is no limit is not.
func TestPlanFabric_NoHostIsLargeEnough(t *testing.T) {
	wanted := &api.Fabric{
		Targets: []*api.TargetSpec{{Host: "alpha", CapacityBytes: 64 << 20}, {Host: "beta", CapacityBytes: 100 << 20}},
		Streams: []*api.StreamSpec{
			{Name: "big", RingSizeBytes: 200 << 20},
			{Name: "fits", RingSizeBytes: 100 << 20},
			{Name: "later", RingSizeBytes: 100 << 20},
		},
	}
	problems := func(v *state.View) (texts []string) {
		t.Helper()
		plan, err := fabric.NewPlan(v, wanted, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range plan.Problems {
			texts = append(texts, one.Field+"="+one.Value+": "+one.Rule)
		}
		return texts
	}
	v := state.NewView()
	want := []string{
		"fabric.streams[0].ring_size_bytes=209715200: expected at most 104857600 bytes, the capacity of " +
			"host beta: no target has more",
		"fabric.streams[2].ring_size_bytes=104857600: expected a target with free space for it beside what is " +
			"declared: " +
			"host beta has 0 bytes left of its capacity of 104857600, the ring needs 104857600",
	}
	if got := problems(v); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	v.LiveTargets["gamma-1"] = &api.Agent{Id: "gamma-1", Host: "gamma"}
	if got := problems(v); len(got) != 0 {
		t.Errorf("a registered host without a limit: %q", got)
	}
}

// So it is when it is created by itself, dry or not, and when what is there has taken the space; nothing is limited
// where a target without a limit reports.
func TestCreateStream_NoHostIsLargeEnough(t *testing.T) {
	t.Parallel()
	one := startInstance(t, etcdtest.Open(t, t.TempDir()), true)
	fabric := &api.Fabric{Targets: []*api.TargetSpec{
		{Host: "alpha", CapacityBytes: 64 << 20},
		{Host: "beta", CapacityBytes: 100 << 20},
	}}
	if _, err := one.control.ApplyFabric(one.context(), &api.ApplyFabricRequest{Fabric: fabric}); err != nil {
		t.Fatal(err)
	}
	create := func(spec *api.StreamSpec, isDryRun bool) error {
		_, err := one.control.CreateStream(one.context(), &api.CreateStreamRequest{Spec: spec, DryRun: isDryRun})
		return err
	}
	for spec, want := range map[*api.StreamSpec]string{
		{Name: "big", RingSizeBytes: 200 << 20}: "spec.ring_size_bytes=209715200: expected at " +
			"most 104857600 bytes, the capacity of host beta: no target has more",
		{Name: "there", RingSizeBytes: 100 << 20, TargetHost: "alpha"}: "spec.ring_size_bytes=104857600: expected at " +
			"most 67108864 bytes, the capacity of host alpha",
	} {
		for _, isDryRun := range []bool{true, false} {
			err := create(spec, isDryRun)
			if reason, field := refusaltest.Check(t, err); status.Code(err) != codes.ResourceExhausted ||
				reason != refusal.ReasonCapacity || field != "spec.ring_size_bytes" {
				t.Errorf("%s, dry %t: %v", spec.Name, isDryRun, err)
			}
			if got := problemsIn(err); !slices.Equal(got, []string{want}) {
				t.Errorf("%s: %q", spec.Name, got)
			}
			if !strings.HasSuffix(status.Convert(err).Message(),
				"; raise a capacity, declare another target (farlog apply, targets), or take a smaller ring") {
				t.Errorf("%s is told no remedy: %v", spec.Name, err)
			}
		}
		if _, err := one.control.GetStream(one.context(),
			&api.GetStreamRequest{Name: spec.Name}); status.Code(err) != codes.NotFound {
			t.Errorf("%s is there: %v", spec.Name, err)
		}
	}
	if err := create(&api.StreamSpec{Name: "fits", RingSizeBytes: 100 << 20}, false); err != nil {
		t.Fatal(err)
	}
	for _, isDryRun := range []bool{true, false} {
		err := create(&api.StreamSpec{Name: "crowded", RingSizeBytes: 100 << 20}, isDryRun)
		if reason, _ := refusaltest.Check(t, err); status.Code(err) != codes.ResourceExhausted ||
			reason != refusal.ReasonCapacity || !strings.Contains(err.Error(),
			"host beta has 0 bytes left of its capacity of 104857600") {
			t.Errorf("beside another one, dry %t: %v", isDryRun, err)
		}
	}
	one.until("gamma is there", func() bool {
		state := &api.TargetState{Agent: &api.Agent{Id: "gamma-1", Host: "gamma"}}
		if _, err := one.target.ReportTarget(one.context(), &api.ReportTargetRequest{State: state}); err != nil {
			t.Error(err)
		}
		return create(&api.StreamSpec{Name: "big", RingSizeBytes: 200 << 20}, true) == nil
	})
}

// A capacity that is lowered below what lies on the host is told.
func TestDrift_CapacityBelowWhatIsThere(t *testing.T) {
	v := state.NewView()
	v.LiveTargets["alpha-1"] = &api.Agent{Id: "alpha-1", Host: "alpha"}
	v.Rings["a"] = &api.RingSpec{Target: "alpha-1", Stream: &api.Stream{Spec: &api.StreamSpec{
		Name:          "a",
		RingSizeBytes: 200 << 20,
	}}}
	for capacity, want := range map[uint64]string{
		0: "", 200 << 20: "",
		100 << 20: "its rings have 209715200 bytes, more than its capacity of 104857600",
	} {
		drift := fabric.DriftFrom(v, access.Local(), &api.Fabric{Targets: []*api.TargetSpec{{
			Host:          "alpha",
			CapacityBytes: capacity,
		}}})
		if got := len(drift) > 0 && strings.HasPrefix(drift[0].Reason, want); got != (want != "") {
			t.Errorf("capacity %d: got %v, want %q", capacity, drift, want)
		}
	}
}

// Drains that were declared before count as those of the file do: a stream that wants another one is refused. One that
// is there as it is declared again passes, whatever became of its drain.
func TestApplyFabric_DrainsDeclaredBefore(t *testing.T) {
	t.Parallel()
	one := startInstance(t, etcdtest.Open(t, t.TempDir()), true)
	apply := func(fabric *api.Fabric) error {
		_, err := one.apply(&api.ApplyFabricRequest{Fabric: fabric})
		return err
	}
	early := &api.Fabric{Streams: []*api.StreamSpec{{Name: "early", DrainHost: "elsewhere"}}}
	for _, fabric := range []*api.Fabric{
		early,
		{Drains: []*api.DrainSpec{{Host: "central1"}}},
		early,
		{Streams: []*api.StreamSpec{{Name: "good", DrainHost: "central1"}}},
	} {
		if err := apply(fabric); err != nil {
			t.Fatalf("%v: %v", fabric, err)
		}
	}
	for _, fabric := range []*api.Fabric{
		{Streams: []*api.StreamSpec{{Name: "late", DrainHost: "centrall"}}},
		{Streams: []*api.StreamSpec{{Name: "early", DrainHost: "centrall"}}},
	} {
		err := apply(fabric)
		if problems := problemsIn(err); status.Code(err) != codes.InvalidArgument || len(problems) != 1 ||
			!strings.HasPrefix(problems[0], "fabric.streams[0].drain_host=") {
			t.Errorf("%v: %v", fabric, err)
		}
	}
}
