package report

import (
	"context"
	"fmt"

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
func (r *Keeper) KeepHost(ctx context.Context, state *api.HostState) error {
	r.mutex.Lock()
	r.hosts[state.Host] = state
	r.mutex.Unlock()
	now, _ := r.mirror.Load()
	before := now.Hosts[state.Host]
	isStalled := len(state.Stalled)+len(before.GetStalled()) > 0
	age := state.ReportTime.AsTime().Sub(before.GetReportTime().AsTime())
	if !isStalled && !reconcile.IsMoved(before, state) && age < hostKept {
		return nil
	}
	value, err := etcd.Encode(state)
	if err != nil {
		return refusal.InvalidArgument("", []*api.Problem{{
			Field: "state",
			Rule:  "expected texts in UTF-8: " + err.Error(),
		}})
	}
	put, err := r.client.Put(ctx, etcd.KeyHosts+state.Host, value)
	if err != nil {
		return fmt.Errorf("keep %s: %w", etcd.KeyHosts+state.Host, err)
	}
	return r.mirror.WaitRevision(ctx, put.Header.Revision)
}

// LastOfHost is the newest that is known here of a host.
func (r *Keeper) LastOfHost(now *state.View, host string) *api.HostState {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	kept, told := now.Hosts[host], r.hosts[host]
	if kept == nil || told != nil && told.ReportTime.AsTime().After(kept.ReportTime.AsTime()) {
		return told
	}
	return kept
}
