package fabric

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/state"
)

// RouteWith is a route with another spec; a new one when there was none.
func RouteWith(have *api.Route, spec *api.RouteSpec) *api.Route {
	route := &api.Route{Spec: spec, CreateTime: timestamppb.Now()}
	if have != nil {
		route = proto.Clone(have).(*api.Route)
		route.Spec = spec
	}
	route.Revision = 0 // etcd's to say
	return route
}

// routeWrites puts routes where a view had none or others, and takes some away. It holds only while no route has
// changed since a revision, for what is wrong with one, such as a circle, may come of another one, and while all that
// is selected is there.
func routeWrites(v *state.View, since int64, specs []*api.RouteSpec, ended []string) (guards []clientv3.Cmp,
	writes []clientv3.Op, err error,
) {
	isGuarded := map[string]bool{}
	for _, spec := range specs {
		isGuarded[etcd.KeyRoutes+spec.Name] = true
	}
	isThere := func(key string, more ...clientv3.Cmp) {
		if !isGuarded[key] {
			isGuarded[key] = true
			guards = append(append(guards, clientv3.Compare(clientv3.CreateRevision(key), ">", 0)), more...)
		}
	}
	for _, spec := range specs {
		value, err := etcd.Encode(RouteWith(v.Routes[spec.Name], spec))
		if err != nil {
			return nil, nil, err
		}
		writes = append(writes, clientv3.OpPut(etcd.KeyRoutes+spec.Name, value))
		for _, rule := range spec.Rules {
			if rule.Route != "" {
				isThere(etcd.KeyRoutes + rule.Route)
			}
			for _, leg := range rule.Legs {
				isThere(etcd.KeyStreams+leg.Stream, state.UnchangedSince(v, etcd.KeyDeletions+leg.Stream))
			}
		}
	}
	for _, name := range ended {
		isThere(etcd.KeyRoutes + name)
		writes = append(writes, clientv3.OpDelete(etcd.KeyRoutes+name))
	}
	return append(guards, state.NoRouteSince(since)), writes, nil
}

// WriteRoute makes or changes a route as a view was.
func WriteRoute(ctx context.Context, client *clientv3.Client, v *state.View, spec *api.RouteSpec) (revision int64,
	err error,
) {
	guards, writes, err := routeWrites(v, v.Revision, []*api.RouteSpec{spec}, nil)
	if err != nil {
		return 0, err
	}
	return commitRoute(ctx, client, "write", spec.Name, guards, writes)
}

// DeleteRoute takes a route away, unless one has come since that selects it.
func DeleteRoute(ctx context.Context, client *clientv3.Client, v *state.View, name string) (revision int64, err error) {
	guards, writes, err := routeWrites(v, v.Revision, nil, []string{name})
	if err != nil {
		return 0, err
	}
	return commitRoute(ctx, client, "delete", name, guards, writes)
}

func commitRoute(ctx context.Context, client *clientv3.Client, verb, name string, guards []clientv3.Cmp,
	writes []clientv3.Op,
) (int64, error) {
	return state.Commit(ctx, client, fmt.Sprintf("%s route %q", verb, name),
		fmt.Sprintf("route %q, or another route, or one of their streams,", name), guards, writes)
}

// applyRoutes writes the routes of a plan, and takes away those that are not declared: in one step as far as etcd takes
// so many, else those first that others select.
func applyRoutes(ctx context.Context, client *clientv3.Client, v *state.View, specs []*api.RouteSpec, ended []string,
) (revision int64, err error) {
	if len(specs)+len(ended) == 0 {
		return 0, nil
	}
	guards, writes, err := routeWrites(v, v.Revision, specs, ended)
	if err != nil {
		return 0, err
	}
	if len(writes) <= etcd.BatchMax && len(guards) <= etcd.BatchMax {
		return commitDeclared(ctx, client, guards, writes)
	}
	since := v.Revision
	one := func(specs []*api.RouteSpec, ended []string) error {
		guards, writes, err := routeWrites(v, since, specs, ended)
		if err == nil {
			since, err = commitDeclared(ctx, client, guards, writes)
		}
		return err
	}
	for _, spec := range selectedFirst(specs) {
		if err := one([]*api.RouteSpec{spec}, nil); err != nil {
			return 0, err
		}
	}
	for _, name := range ended {
		if err := one(nil, []string{name}); err != nil {
			return 0, err
		}
	}
	return since, nil
}

// selectedFirst orders routes so that none comes before one that it selects. None leads back to itself.
func selectedFirst(specs []*api.RouteSpec) (ordered []*api.RouteSpec) {
	byName, isPlaced := map[string]*api.RouteSpec{}, map[string]bool{}
	for _, spec := range specs {
		byName[spec.Name] = spec
	}
	var place func(spec *api.RouteSpec)
	place = func(spec *api.RouteSpec) {
		if spec == nil || isPlaced[spec.Name] {
			return
		}
		isPlaced[spec.Name] = true
		for _, rule := range spec.Rules {
			place(byName[rule.Route])
		}
		ordered = append(ordered, spec)
	}
	for _, spec := range specs {
		place(spec)
	}
	return ordered
}
