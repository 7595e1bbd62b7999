package control

import (
	"context"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/access"
	"github.com/farlog/farlog/pkg/control/check"
)

// prune makes the end of what is not declared part of a plan. A stream that may not end is a problem, so that nothing is done; and so is a file without
// any stream, which is a mistake far more often than it is meant. Streams on which the caller has not the role are none of what it declares.
func (p *fabricPlan) prune(v *view, caller access.Caller, fabric *api.Fabric) {
	if len(fabric.GetStreams()) == 0 && len(p.undeclared) > 0 {
		p.fail("streams", "", "expected at least one stream: without any, all would be deleted; farlog stream delete does that one by one")
		return
	}
	var stay []string
	left := v.routeSpecs().With(fabric.GetRoutes()) // by the end
	for _, one := range p.undeclared {
		if name, isRoute := strings.CutPrefix(one, "route "); isRoute && caller.May(api.ControlService_DeleteRoute_FullMethodName, name) == nil {
			delete(left, name)
		}
	}
	for _, one := range p.undeclared {
		kind, name, _ := strings.Cut(one, " ")
		switch {
		case kind == "route" && left[name] == nil:
			p.pruneRoute(left, name)
		case kind == "target" || kind == "drain" || kind == "tenant":
			p.dropped = append(p.dropped, declaredKeys[kind]+name)
			p.changes = append(p.changes, &api.Change{Kind: kind, Name: name, IsDeleted: true})
		case caller.May(api.ControlService_DeleteStream_FullMethodName, name) != nil:
			stay = append(stay, one)
		default:
			p.pruneStream(v, left, caller, name)
		}
	}
	p.undeclared = stay
}

func (p *fabricPlan) pruneRoute(left check.Routes, name string) {
	if by := left.WhoSelects("", name); by != "" {
		p.fail("routes", fmt.Sprintf("%q", name), "is not declared, and cannot be deleted: route %q selects it", by)
		return
	}
	p.ended = append(p.ended, name)
	p.changes = append(p.changes, &api.Change{Kind: "route", Name: name, IsDeleted: true})
}

func (p *fabricPlan) pruneStream(v *view, left check.Routes, caller access.Caller, name string) {
	if by := left.WhoSelects(name, ""); by != "" {
		p.fail("streams", fmt.Sprintf("%q", name), "is not declared, and cannot be deleted: route %q selects it", by)
		return
	}
	if reason := v.whyNotDelete(name, false); reason != "" {
		p.fail("streams", fmt.Sprintf("%q", name), "is not declared, and cannot be deleted: %s", reason)
		return
	}
	p.deletions = append(p.deletions, v.deletion(name, false, string(caller.ID)))
	p.changes = append(p.changes, &api.Change{Kind: "stream", Name: name, IsDeleted: true})
}

// declaredKeys are where it is kept what is declared of things that exist without it.
var declaredKeys = map[string]string{"target": keyTargetSpecs, "drain": keyDrainSpecs, "tenant": keyTenants}

// endPruned begins the ends of a plan, each only if its stream is still as it was looked at, and no route has changed since the plan's own did.
func endPruned(ctx context.Context, client *clientv3.Client, v *view, plan *fabricPlan, routesSince int64) (revision int64, err error) {
	for _, key := range plan.dropped {
		if revision, err = commitDeclared(ctx, client, []clientv3.Cmp{unchangedSince(v, key)}, []clientv3.Op{clientv3.OpDelete(key)}); err != nil {
			return 0, err
		}
	}
	for _, deletion := range plan.deletions {
		if revision, err = beginDeletion(ctx, client, v, routesSince, deletion); err != nil {
			return 0, err
		}
	}
	return revision, nil
}
