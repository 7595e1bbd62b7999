package fabric

import (
	"context"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/access"
	"github.com/farlog/farlog/pkg/control/check"
	"github.com/farlog/farlog/pkg/control/deletion"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/state"
)

// prune makes the end of what is not declared part of a plan. A stream that may not end is a problem, so that nothing
// is done; and so is a file without any stream, which is a mistake far more often than it is meant. Streams on which
// the caller has not the role are none of what it declares.
func (p *Plan) prune(v *state.View, caller access.Caller, fabric *api.Fabric) {
	if len(fabric.GetStreams()) == 0 && len(p.Undeclared) > 0 {
		p.fail("streams", "", "expected at least one stream: without any, all would be deleted; farlog stream "+
			"delete deletes them one by one")
		return
	}
	var stay []string
	left := v.RouteSpecs().With(fabric.GetRoutes()) // by the end
	for _, one := range p.Undeclared {
		if name, isRoute := strings.CutPrefix(one, "route "); isRoute &&
			caller.May(api.ControlService_DeleteRoute_FullMethodName, name) == nil {
			delete(left, name)
		}
	}
	for _, one := range p.Undeclared {
		kind, name, _ := strings.Cut(one, " ")
		switch {
		case kind == "route" && left[name] == nil:
			p.pruneRoute(left, name)
		case kind == "target" && len(check.NamespacesInUse(v.Rings, v.TargetSpecs[name], nil, "")) > 0:
			p.fail("targets", fmt.Sprintf("%q", name), "is not declared, and cannot be deleted: %s",
				check.NamespacesInUse(v.Rings, v.TargetSpecs[name], nil, "")[0].Rule)
		case kind == "target" || kind == "drain" || kind == "tenant":
			p.dropped = append(p.dropped, declaredKeys[kind]+name)
			p.Changes = append(p.Changes, &api.Change{Kind: kind, Name: name, Deleted: true})
		case caller.May(api.ControlService_DeleteStream_FullMethodName, name) != nil:
			stay = append(stay, one)
		default:
			p.pruneStream(v, left, caller, name)
		}
	}
	p.Undeclared = stay
}

func (p *Plan) pruneRoute(left check.Routes, name string) {
	if by := left.WhoSelects("", name); by != "" {
		p.fail("routes", fmt.Sprintf("%q", name), "is not declared, and cannot be deleted: route %q selects it", by)
		return
	}
	p.ended = append(p.ended, name)
	p.Changes = append(p.Changes, &api.Change{Kind: "route", Name: name, Deleted: true})
}

func (p *Plan) pruneStream(v *state.View, left check.Routes, caller access.Caller, name string) {
	if by := left.WhoSelects(name, ""); by != "" {
		p.fail("streams", fmt.Sprintf("%q", name), "is not declared, and cannot be deleted: route %q selects it", by)
		return
	}
	if reason := deletion.WhyNot(v, name, false); reason != "" {
		p.fail("streams", fmt.Sprintf("%q", name), "is not declared, and cannot be deleted: %s", reason)
		return
	}
	p.deletions = append(p.deletions, deletion.New(v, name, false, string(caller.ID)))
	p.Changes = append(p.Changes, &api.Change{Kind: "stream", Name: name, Deleted: true})
}

// declaredKeys are where it is kept what is declared of things that exist without it.
var declaredKeys = map[string]string{
	"target": etcd.KeyTargetSpecs, "drain": etcd.KeyDrainSpecs,
	"tenant": etcd.KeyTenants,
}

// endPruned begins the ends of a plan, each only if its stream is still as it was looked at, and no route has changed
// since the plan's own did.
func endPruned(ctx context.Context, client *clientv3.Client, v *state.View, plan *Plan, routesSince int64,
) (revision int64, err error) {
	for _, key := range plan.dropped {
		if revision, err = commitDeclared(ctx, client, []clientv3.Cmp{state.UnchangedSince(v, key)},
			[]clientv3.Op{clientv3.OpDelete(key)}); err != nil {
			return 0, err
		}
	}
	for _, ending := range plan.deletions {
		if revision, err = deletion.Begin(ctx, client, v, routesSince, ending); err != nil {
			return 0, err
		}
	}
	return revision, nil
}
