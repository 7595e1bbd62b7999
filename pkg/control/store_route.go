package control

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// routeWith is a route with another spec; a new one when there was none.
func routeWith(have *api.Route, spec *api.RouteSpec) *api.Route {
	route := &api.Route{Spec: spec, Created: timestamppb.Now()}
	if have != nil {
		route = proto.Clone(have).(*api.Route)
		route.Spec = spec
	}
	route.Revision = 0 // etcd's to say
	return route
}

// routeWrites puts routes where a view had none or others, and takes some away. It holds only while no route has changed since a revision, for what is wrong with one, such as
// a circle, may come of another one, and while all that is selected is there.
func routeWrites(v *view, since int64, specs []*api.RouteSpec, ended []string) (guards []clientv3.Cmp, writes []clientv3.Op, err error) {
	isGuarded := map[string]bool{}
	for _, spec := range specs {
		isGuarded[keyRoutes+spec.Name] = true
	}
	isThere := func(key string, more ...clientv3.Cmp) {
		if !isGuarded[key] {
			isGuarded[key] = true
			guards = append(append(guards, clientv3.Compare(clientv3.CreateRevision(key), ">", 0)), more...)
		}
	}
	for _, spec := range specs {
		value, err := encode(routeWith(v.routes[spec.Name], spec))
		if err != nil {
			return nil, nil, err
		}
		writes = append(writes, clientv3.OpPut(keyRoutes+spec.Name, value))
		for _, rule := range spec.Rules {
			if rule.Route != "" {
				isThere(keyRoutes + rule.Route)
			}
			for _, leg := range rule.Legs {
				isThere(keyStreams+leg.Stream, unchangedSince(v, keyDeletions+leg.Stream))
			}
		}
	}
	for _, name := range ended {
		isThere(keyRoutes + name)
		writes = append(writes, clientv3.OpDelete(keyRoutes+name))
	}
	return append(guards, noRouteSince(since)), writes, nil
}

// noRouteSince is the condition that no route was made or changed after a revision.
func noRouteSince(revision int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(keyRoutes), "<", revision+1).WithPrefix()
}

// writeRoute makes or changes a route as a view was.
func writeRoute(ctx context.Context, client *clientv3.Client, v *view, spec *api.RouteSpec) (revision int64, err error) {
	guards, writes, err := routeWrites(v, v.revision, []*api.RouteSpec{spec}, nil)
	if err != nil {
		return 0, err
	}
	return commitRoute(ctx, client, "write", spec.Name, guards, writes)
}

// deleteRoute takes a route away, unless one has come since that selects it.
func deleteRoute(ctx context.Context, client *clientv3.Client, v *view, name string) (revision int64, err error) {
	guards, writes, err := routeWrites(v, v.revision, nil, []string{name})
	if err != nil {
		return 0, err
	}
	return commitRoute(ctx, client, "delete", name, guards, writes)
}

func commitRoute(ctx context.Context, client *clientv3.Client, verb, name string, guards []clientv3.Cmp, writes []clientv3.Op) (int64, error) {
	put, err := client.Txn(ctx).If(guards...).Then(writes...).Commit()
	if err != nil {
		return 0, fmt.Errorf("%s route %q: %w", verb, name, err)
	}
	if !put.Succeeded {
		return 0, changedMeanwhile(fmt.Sprintf("route %q, or another route, or one of their streams,", name))
	}
	return put.Header.Revision, nil
}

// applyRoutes writes the routes of a plan, and takes away those that are not declared: in one step as far as etcd takes so many, else those first that others select.
func applyRoutes(ctx context.Context, client *clientv3.Client, v *view, specs []*api.RouteSpec, ended []string) (revision int64, err error) {
	if len(specs)+len(ended) == 0 {
		return 0, nil
	}
	guards, writes, err := routeWrites(v, v.revision, specs, ended)
	if err != nil {
		return 0, err
	}
	if len(writes) <= applyBatch && len(guards) <= applyBatch {
		return commitDeclared(ctx, client, guards, writes)
	}
	since := v.revision
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
