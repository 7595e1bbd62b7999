package service

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/check"
	"github.com/farlog/farlog/pkg/control/etcd/etcdtest"
	"github.com/farlog/farlog/pkg/control/fabric"
	"github.com/farlog/farlog/pkg/control/state"
)

// Whatever is declared and there: a plan without problems takes no tenant that it lets have more beyond its quota, and
// one with a problem would have.
func TestPlanFabric_Quotas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v, wanted := state.NewView(), new(api.Fabric)
		names := rapid.SampledFrom([]string{"a/1", "a/2", "a/3", "a/4", "a", "b/1", "b/2", "b/x/3"})
		draw := func(what string) map[string]*api.StreamSpec {
			list := map[string]*api.StreamSpec{}
			for _, name := range rapid.SliceOfDistinct(names, rapid.ID[string]).Draw(t, what) {
				list[name] = check.StreamWithDefaults(&api.StreamSpec{
					Name: name, RingSizeBytes: 1 << 20,
					Members:          rapid.Uint32Range(1, 3).Draw(t, "members"),
					RecordsPerSecond: rapid.Uint64Range(1, 3).Draw(t, "records"), BytesPerSecond: 9,
				})
			}
			return list
		}
		for name, spec := range draw("there") {
			v.Streams[name] = &api.Stream{Spec: spec}
		}
		asked := draw("asked")
		for _, name := range slices.Sorted(maps.Keys(asked)) {
			if have := v.Streams[name]; have != nil {
				asked[name] = proto.Clone(have.Spec).(*api.StreamSpec)
				asked[name].RecordsPerSecond = rapid.Uint64Range(1, 5).Draw(t, "records now")
			}
			wanted.Streams = append(wanted.Streams, asked[name])
		}
		quota := func(name string) *api.TenantSpec {
			return &api.TenantSpec{
				Name: name, StreamsMax: rapid.Uint64Range(0, 4).Draw(t, "streams"),
				RingBytesMax:        rapid.Uint64Range(0, 8).Draw(t, "MiB") << 20,
				RecordsPerSecondMax: rapid.Uint64Range(0, 12).Draw(t, "records of all"),
			}
		}
		v.Tenants["a"] = quota("a")
		wanted.Tenants = append(wanted.Tenants, quota("b"))
		plan, err := fabric.NewPlan(v, wanted, nil)
		if err != nil {
			t.Fatal(err)
		}
		isOver := false
		for _, quota := range []*api.TenantSpec{v.Tenants["a"], wanted.Tenants[0]} {
			streams, bytes, added, records, isFaster := uint64(0), uint64(0), 0, uint64(0), false
			for _, name := range []string{"a/1", "a/2", "a/3", "a/4", "a", "b/1", "b/2", "b/x/3"} {
				spec := asked[name]
				if have := v.Streams[name]; have != nil {
					isFaster = isFaster || spec.GetRecordsPerSecond() > have.Spec.RecordsPerSecond &&
						name[:1] == quota.Name
					if spec == nil {
						spec = have.Spec
					}
				} else if spec != nil && name[:1] == quota.Name {
					added++
				}
				if spec != nil && name[:1] == quota.Name {
					streams, bytes, records = streams+1, bytes+spec.RingSizeBytes*uint64(spec.Members),
						records+spec.RecordsPerSecond
				}
			}
			isOver = isOver || added > 0 && (quota.StreamsMax > 0 && streams > quota.StreamsMax ||
				quota.RingBytesMax > 0 && bytes > quota.RingBytesMax) ||
				(added > 0 || isFaster) && quota.RecordsPerSecondMax > 0 && records > quota.RecordsPerSecondMax
		}
		if isOver != (len(plan.Problems) > 0) {
			t.Fatalf("over a quota: %v; problems %v", isOver, plan.Problems)
		}
	})
}

// Many ask at once, of two control planes: as many streams are made as the quota has space for, and all others are told
// why not.
func TestCreateStream_QuotaHoldsAgainstManyAtOnce(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Open(t, t.TempDir())
	both := []*instance{startInstance(t, etcd, false), startInstance(t, etcd, false)}
	const space, asked = 5, 16
	fabric := &api.Fabric{Tenants: []*api.TenantSpec{
		{Name: "desk7", StreamsMax: space},
		{Name: "desk8", RingBytesMax: 3 << 20},
	}, Streams: []*api.StreamSpec{{Name: "desk7/first"}}}
	if _, err := both[0].control.ApplyFabric(both[0].context(), &api.ApplyFabricRequest{Fabric: fabric}); err != nil {
		t.Fatal(err)
	}
	for _, one := range both {
		one.until("the quota is known", func() bool {
			got, err := one.control.GetFabric(one.context(), &api.GetFabricRequest{})
			return err == nil && len(got.Fabric.Tenants) == 2 && len(got.Fabric.Streams) == 1
		})
	}
	var made atomic.Int32
	var asking sync.WaitGroup
	for i := range asked {
		one, ctx := both[i%2], both[i%2].context()
		asking.Go(func() {
			_, err := one.control.CreateStream(ctx,
				&api.CreateStreamRequest{Spec: &api.StreamSpec{Name: fmt.Sprintf("desk7/%d", i)}})
			switch {
			case err == nil:
				made.Add(1)
			case status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "its quota is 5"):
				t.Errorf("stream %d: %v", i, err)
			}
		})
	}
	asking.Wait()
	if made.Load() != space-1 {
		t.Errorf("%d streams were made beside the first one, the quota is %d", made.Load(), space)
	}
	one := both[0]
	create := func(name string, bytes uint64, members uint32) error {
		_, err := one.control.CreateStream(one.context(),
			&api.CreateStreamRequest{Spec: &api.StreamSpec{Name: name, RingSizeBytes: bytes, Members: members}})
		return err
	}
	if err := create("desk7/first", 0, 0); err != nil {
		t.Errorf("one that is there: %v", err)
	}
	if err := create("desk9/any", 0, 0); err != nil {
		t.Errorf("of a tenant without a quota: %v", err)
	}
	if err := create("desk8/two", 1<<20, 2); err != nil {
		t.Errorf("within the bytes: %v", err)
	}
	if err := create("desk8/more", 2<<20, 0); status.Code(err) != codes.FailedPrecondition ||
		!strings.Contains(err.Error(), "at most 1048576 bytes") {
		t.Errorf("beyond the bytes: %v", err)
	}
	got, err := one.control.GetFabric(one.context(), &api.GetFabricRequest{})
	if err != nil || len(got.Tenants) != 3 || got.Tenants[0].Streams != space || got.Tenants[1].RingBytes != 2<<20 ||
		got.Tenants[2].Quota != nil {
		t.Errorf("told %v, %v", got.GetTenants(), err)
	}
}

// rates is a stream of tenant desk7 that declares these rates a second.
func rates(name string, records, bytes uint64) *api.StreamSpec {
	return &api.StreamSpec{Name: "desk7/" + name, RecordsPerSecond: records, BytesPerSecond: bytes}
}

func (i *instance) createDeclared(spec *api.StreamSpec, isDryRun bool) error {
	_, err := i.control.CreateStream(i.context(), &api.CreateStreamRequest{Spec: spec, DryRun: isDryRun})
	return err
}

func (i *instance) updateDeclared(spec *api.StreamSpec) error {
	_, err := i.control.UpdateStream(i.context(), &api.UpdateStreamRequest{Spec: spec})
	return err
}

func (i *instance) declareStreams(specs ...*api.StreamSpec) error {
	_, err := i.apply(&api.ApplyFabricRequest{Fabric: &api.Fabric{Streams: specs}})
	return err
}

// rateCase is a call that declares rates, and the beginnings of the problems that it is refused for.
type rateCase struct {
	name  string
	err   error
	wants []string
}

func checkRates(t *testing.T, cases []rateCase) {
	t.Helper()
	for _, test := range cases {
		got := problemsIn(test.err)
		for i, want := range test.wants {
			if i >= len(got) || !strings.HasPrefix(got[i], want) {
				t.Errorf("%s: got %q, want %q", test.name, got, test.wants)
			}
		}
		if len(got) != len(test.wants) {
			t.Errorf("%s: got %q", test.name, got)
		}
	}
}

// What streams declare to have a second is counted as their rings are: at a creation, where one is declared to be
// faster, in a file; a quota that is below what there is takes nothing away, and is told.
func TestTenant_RatesThatAreDeclared(t *testing.T) {
	t.Parallel()
	one := startInstance(t, etcdtest.Open(t, t.TempDir()), true)
	quota := &api.TenantSpec{Name: "desk7", RecordsPerSecondMax: 1000, BytesPerSecondMax: 100_000}
	fabric := &api.Fabric{Tenants: []*api.TenantSpec{quota}}
	if _, err := one.apply(&api.ApplyFabricRequest{Fabric: fabric}); err != nil {
		t.Fatal(err)
	}
	create, update, declare := one.createDeclared, one.updateDeclared, one.declareStreams
	if err := cmp.Or(create(rates("a", 600, 60_000), true), create(rates("a", 600, 60_000), false)); err != nil {
		t.Fatal(err)
	}
	const recordsLeft = "400 records/s: so much is left of the quota of 1000 of tenant desk7"
	checkRates(t, []rateCase{
		{"without a rate", create(rates("b", 0, 0), false), []string{
			"spec.records_per_second=0: expected a rate that " +
				"is declared: tenant desk7 has a quota of 1000 records/s; 400 are left of it",
			"spec.bytes_per_second=0: expected a rate that is declared: tenant desk7 has a quota of 100000 bytes/s; " +
				"40000 are left of it",
		}},
		{
			"too fast", create(rates("b", 500, 50_000), false),
			[]string{"spec.records_per_second=500: expected at most " + recordsLeft, "spec.bytes_per_second=50000: " +
				"expected at most 40000 bytes/s: so much is left of the quota of 100000 of tenant desk7"},
		},
		{"dry", create(rates("b", 401, 40_000), true), []string{"spec.records_per_second=401: expected at most " +
			recordsLeft}},
		{"faster", update(rates("a", 1001, 60_000)), []string{"spec.records_per_second=1001: expected at most 1000 " +
			"records/s: so much is left of the quota of 1000 of tenant desk7"}},
		{
			"no longer declared", update(rates("a", 0, 0)),
			[]string{"spec.records_per_second=0: expected a rate", "spec.bytes_per_second=0: expected a rate"},
		},
		{
			"in a file", declare(rates("a", 700, 60_000), rates("b", 301, 1000)),
			[]string{"fabric.streams[1].records_per_second=301: expected at most 300 records/s"},
		},
		{
			"both faster in a file", declare(rates("a", 1001, 60_000)),
			[]string{"fabric.streams[0].records_per_second=1001: expected at most 1000 records/s"},
		},
		{
			"bytes without records",
			create(rates("b", 0, 5), false),
			[]string{"spec.bytes_per_second=5: expected a byte " +
				"a record at least, and none without records_per_second, which is 0"},
		},
	})
	for name, err := range map[string]error{
		"slower, and what is left for another one": declare(rates("a", 500, 50_000),
			rates("b", 500, 50_000)), "slower by itself": update(rates("b", 100, 10_000)),
		"to the last": update(rates("a", 500, 50_000)),
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	checkLowQuota(t, one)
}

// checkLowQuota sets a quota below what a tenant has: it is applied, reported, and lets what is there become slower.
func checkLowQuota(t *testing.T, one *instance) {
	t.Helper()
	quota := &api.TenantSpec{Name: "desk7", RecordsPerSecondMax: 300, StreamsMax: 1}
	fabric := &api.Fabric{Tenants: []*api.TenantSpec{quota}}
	if _, err := one.apply(&api.ApplyFabricRequest{Fabric: fabric}); err != nil {
		t.Fatal(err)
	}
	got, err := one.apply(&api.ApplyFabricRequest{Fabric: fabric, DryRun: true})
	want := "it has 2 streams, more than its quota of 1, and 600 records/s declared, more than its quota of 300: " +
		"they stay, and no further ones are taken"
	if err != nil || len(got.Drift) != 1 || got.Drift[0].Kind != "tenant" || got.Drift[0].Reason != want {
		t.Errorf("a quota below what there is: %v, %v", got, err)
	}
	if err := one.updateDeclared(rates("a", 400, 40_000)); err != nil {
		t.Errorf("slower beyond a quota: %v", err)
	}
}

// Of a quota of rates one control plane gives to a stream that is declared to be faster, the other one to a new one:
// what was judged by a view that is old does not hold.
func TestTenant_RatesHoldAgainstOthers(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Open(t, t.TempDir())
	both := []*instance{startInstance(t, etcd, false), startInstance(t, etcd, false)}
	spec := func(name string, records uint64) *api.StreamSpec {
		return check.StreamWithDefaults(&api.StreamSpec{
			Name: "desk7/" + name, RecordsPerSecond: records,
			BytesPerSecond: 1000,
		})
	}
	wanted := &api.Fabric{
		Tenants: []*api.TenantSpec{{Name: "desk7", RecordsPerSecondMax: 1000}},
		Streams: []*api.StreamSpec{spec("a", 500)},
	}
	if _, err := both[0].apply(&api.ApplyFabricRequest{Fabric: wanted}); err != nil {
		t.Fatal(err)
	}
	old := func() *state.View {
		var seen *state.View
		both[1].until("the other one knows it", func() bool {
			mine, _ := both[0].server.mirror.Load()
			seen, _ = both[1].server.mirror.Load()
			return len(seen.Tenants) == 1 && seen.Streams["desk7/a"] != nil &&
				seen.FabricRevision == mine.FabricRevision
		})
		return seen
	}
	before := old()
	if _, err := both[0].control.UpdateStream(both[0].context(),
		&api.UpdateStreamRequest{Spec: spec("a", 900)}); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := both[1].server.fabric.CreateStreamAt(both[1].context(), before, spec("b", 500)); !errors.Is(err,
		fabric.ErrUsedMeanwhile) {
		t.Errorf("created beside one that had become faster: %v", err)
	}
	before = old()
	plan, err := fabric.NewPlan(before, &api.Fabric{Streams: []*api.StreamSpec{spec("a", 1000)}}, nil)
	if err != nil || !plan.IsRaised || len(plan.Problems) > 0 {
		t.Fatalf("%v, %v", plan, err)
	}
	if _, err := both[0].control.CreateStream(both[0].context(),
		&api.CreateStreamRequest{Spec: spec("b", 100)}); err != nil {
		t.Fatal(err)
	}
	if _, err := both[1].server.fabric.ApplyPlan(both[1].context(), before, plan); status.Code(err) != codes.Aborted {
		t.Errorf("applied beside one that is new: %v", err)
	}
	taking, err := fabric.AcquireQuota(both[1].context(), both[1].server.config.Client, before.Revision)
	if err != nil {
		t.Error(err)
	} else if _, err := fabric.UpdateStream(both[1].context(), both[1].server.config.Client, before.Streams["desk7/a"],
		spec("a", 1000), taking); status.Code(err) != codes.Aborted {
		t.Errorf("changed beside one that is new: %v", err)
	}
}
