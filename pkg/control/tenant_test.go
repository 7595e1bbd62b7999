package control

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"pgregory.net/rapid"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// Whatever is declared and there: a plan without problems takes no tenant that it lets have more beyond its quota, and one with a problem would have.
func TestPlanFabric_Quotas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v, fabric := newView(), new(api.Fabric)
		names := rapid.SampledFrom([]string{"a/1", "a/2", "a/3", "a/4", "a", "b/1", "b/2", "b/x/3"})
		draw := func(what string) map[string]*api.StreamSpec {
			list := map[string]*api.StreamSpec{}
			for _, name := range rapid.SliceOfDistinct(names, rapid.ID[string]).Draw(t, what) {
				list[name] = withDefaults(&api.StreamSpec{Name: name, RingSizeBytes: 1 << 20, Members: rapid.Uint32Range(1, 3).Draw(t, "members")})
			}
			return list
		}
		for name, spec := range draw("there") {
			v.streams[name] = &api.Stream{Spec: spec}
		}
		asked := draw("asked")
		for _, name := range sortedKeys(asked) {
			if have := v.streams[name]; have != nil {
				asked[name] = have.Spec
			}
			fabric.Streams = append(fabric.Streams, asked[name])
		}
		quota := func(name string) *api.TenantSpec {
			return &api.TenantSpec{Name: name, StreamsMax: rapid.Uint64Range(0, 4).Draw(t, "streams"), RingBytesMax: rapid.Uint64Range(0, 8).Draw(t, "MiB") << 20}
		}
		v.tenants["a"] = quota("a")
		fabric.Tenants = append(fabric.Tenants, quota("b"))
		plan, err := planFabric(v, fabric)
		if err != nil {
			t.Fatal(err)
		}
		isOver := false
		for _, quota := range []*api.TenantSpec{v.tenants["a"], fabric.Tenants[0]} {
			streams, bytes, added := uint64(0), uint64(0), 0
			for _, name := range []string{"a/1", "a/2", "a/3", "a/4", "a", "b/1", "b/2", "b/x/3"} {
				spec := asked[name]
				if have := v.streams[name]; have != nil {
					spec = have.Spec
				} else if spec != nil && name[:1] == quota.Name {
					added++
				}
				if spec != nil && name[:1] == quota.Name {
					streams, bytes = streams+1, bytes+spec.RingSizeBytes*uint64(spec.Members)
				}
			}
			isOver = isOver || added > 0 && (quota.StreamsMax > 0 && streams > quota.StreamsMax || quota.RingBytesMax > 0 && bytes > quota.RingBytesMax)
		}
		if isOver != (len(plan.problems) > 0) {
			t.Fatalf("over a quota: %v; problems %v", isOver, plan.problems)
		}
	})
}

// Many ask at once, of two control planes: as many streams are made as the quota has room for, and all others are told why not.
func TestCreateStream_QuotaHoldsAgainstManyAtOnce(t *testing.T) {
	t.Parallel()
	etcd := openEtcd(t, t.TempDir())
	both := []*instance{startInstance(t, etcd, false), startInstance(t, etcd, false)}
	const room, asked = 5, 16
	fabric := &api.Fabric{Tenants: []*api.TenantSpec{{Name: "desk7", StreamsMax: room}, {Name: "desk8", RingBytesMax: 3 << 20}}, Streams: []*api.StreamSpec{{Name: "desk7/first"}}}
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
			_, err := one.control.CreateStream(ctx, &api.CreateStreamRequest{Spec: &api.StreamSpec{Name: fmt.Sprintf("desk7/%d", i)}})
			switch {
			case err == nil:
				made.Add(1)
			case status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "its quota is 5"):
				t.Errorf("stream %d: %v", i, err)
			}
		})
	}
	asking.Wait()
	if made.Load() != room-1 {
		t.Errorf("%d streams were made beside the first one, the quota is %d", made.Load(), room)
	}
	one := both[0]
	create := func(name string, bytes uint64, members uint32) error {
		_, err := one.control.CreateStream(one.context(), &api.CreateStreamRequest{Spec: &api.StreamSpec{Name: name, RingSizeBytes: bytes, Members: members}})
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
	if err := create("desk8/more", 2<<20, 0); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "at most 1048576 bytes") {
		t.Errorf("beyond the bytes: %v", err)
	}
	got, err := one.control.GetFabric(one.context(), &api.GetFabricRequest{})
	if err != nil || len(got.Tenants) != 3 || got.Tenants[0].Streams != room || got.Tenants[1].RingBytes != 2<<20 || got.Tenants[2].Quota != nil {
		t.Errorf("told %v, %v", got.GetTenants(), err)
	}
}
