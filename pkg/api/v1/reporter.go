package apiv1

import "context"

// Reporter makes the reports of an agent: with all of its state S, or without where nothing but figures differs from
// the one before and the control plane has no need of figures yet. IsSame and Send are required. Used by one goroutine.
type Reporter[S interface{ GetAgent() *Agent }] struct {
	// IsSame tells that nothing differs that is not a figure which may wait.
	IsSame func(told, now S) bool
	// Send calls the control plane, with the state or in place of it with unchanged.
	Send func(ctx context.Context, state S, unchanged *Unchanged) (ReportAnswer, error)

	told  S      // was answered last
	named uint64 // by which name; 0: none, as by an older control plane
	each  uint32 // as the answer said it
	since uint32 // reports without the state
}

// ReportAnswer is what the control plane says to a report.
type ReportAnswer interface {
	GetFiguresEach() uint32
	GetReport() uint64
	GetStateRequested() bool
}

// Report tells the control plane how the agent is, in one call or in two. It blocks as long as ctx lets it.
func (r *Reporter[S]) Report(ctx context.Context, state S) error {
	if unchanged := r.unchanged(state); unchanged != nil {
		var none S
		if answer, err := r.Send(ctx, none, unchanged); err == nil && !answer.GetStateRequested() {
			return nil
		}
		// It does not know the report: it is another instance, or an older one that has never learned of such, or
		// something was restored.
	}
	r.named = 0
	answer, err := r.Send(ctx, state, nil)
	if err != nil {
		return err
	}
	r.told, r.named, r.each, r.since = state, answer.GetReport(), answer.GetFiguresEach(), 0
	return nil
}

// unchanged is what stands for a state; nil: nothing does.
func (r *Reporter[S]) unchanged(state S) *Unchanged {
	if r.since++; r.named == 0 || r.since >= r.each || !r.IsSame(r.told, state) {
		return nil
	}
	return &Unchanged{Agent: state.GetAgent(), Report: r.named}
}
