package report

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/reconcile"
	"github.com/farlog/farlog/pkg/control/refusal"
	"github.com/farlog/farlog/pkg/control/state"
)

// hostKept is how old a host's measurements in etcd become while they do not move: placement goes by them for
// reconcile.MeasuredMax.
const hostKept = reconcile.MeasuredMax / 3

// KeepHost shows what a host measured to those who ask this instance. What is in etcd, by which every instance places,
// is what it was while it differs by little: so a way that drifts slowly is compared with what is decided by, and not
// with the report before.
func (r *Keeper) KeepHost(ctx context.Context, told *api.HostState) error {
	r.mirror.Show(func(now, next *state.View) bool {
		next.HostsTold = maps.Clone(now.HostsTold)
		next.HostsTold[told.Host] = told
		return true
	})
	now, _ := r.mirror.Load()
	if !r.isHostDue(now.Hosts[told.Host], told) {
		return nil
	}
	value, err := etcd.Encode(told)
	if err != nil {
		return refusal.InvalidArgument("", []*api.Problem{{
			Field: "state",
			Rule:  "expected texts in UTF-8: " + err.Error(),
		}})
	}
	put, err := r.client.Put(ctx, etcd.KeyHosts+told.Host, value)
	if err != nil {
		return fmt.Errorf("keep %s: %w", etcd.KeyHosts+told.Host, err)
	}
	return r.mirror.WaitRevision(ctx, put.Header.Revision)
}

// isHostDue reports whether a report has to be in etcd: a stall, and its end, at once; figures of writers, as those of
// rings, now and then.
func (r *Keeper) isHostDue(kept, told *api.HostState) bool {
	age := told.ReportTime.AsTime().Sub(kept.GetReportTime().AsTime())
	switch {
	case told.ClockJump != kept.GetClockJump(),
		hasStalled(told) || hasStalled(kept),
		reconcile.IsMoved(kept, told),
		!slices.EqualFunc(kept.GetNamespaces(), told.Namespaces, func(a, b *api.NamespaceConnection) bool {
			return proto.Equal(a, b)
		}),
		age >= hostKept:
		return true
	case age < r.every:
		return false
	}
	return !slices.EqualFunc(kept.GetWriters(), told.Writers, func(a, b *api.HostWriter) bool {
		return proto.Equal(a, b)
	})
}

func hasStalled(told *api.HostState) bool {
	return slices.ContainsFunc(told.GetWriters(), func(one *api.HostWriter) bool { return one.StalledFor != nil })
}
