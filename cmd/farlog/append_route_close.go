//go:build cgo

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/farlog/farlog/pkg/farlog"
)

func (f *routeFeed) close() {
	before := f.route.Stats()
	err := f.route.Close(routeClosePause)
	if errors.Is(err, farlog.ErrClosed) {
		return // by a change of its rules, and not opened again
	}
	isBehind := false
	f.reportLegsClosed()
	for i, leg := range f.route.Stats() {
		f.talk.printf("leg %s: %s, offered %d, acknowledged %d, spilled %d, carried %d, dropped %d, GAP records %d",
			leg.Name, leg.State, leg.Offered, leg.Acked, leg.Spilled, leg.Carried, leg.Dropped, leg.Gaps)
		isBehind = isBehind || leg.Behind > 0
		if lost := leg.Dropped - before[i].Dropped; lost > 0 {
			f.lost += lost
			f.talk.printf("leg %s: %s only in memory when the route was closed: dropped%s", leg.Name,
				counted(lost, "record was", "records were"), strings.TrimSuffix(": "+leg.Text, ": "))
		}
	}
	if err != nil && isBehind {
		f.talk.printf("route %s: legs were behind when it was closed: what is in a spill is carried when the route "+
			"is opened again", f.options.route)
	}
}

// reportLegsClosed says of each leg that was opened by a grant that its writer has ended by itself. Legs by farlog://
// are the host agent's to tell of.
func (f *routeFeed) reportLegsClosed() {
	for _, leg := range f.legs {
		if leg.Options.Epoch == 0 {
			continue
		}
		options := f.options
		options.stream = leg.Name
		if err := reportClosed(context.Background(), f.env, f.client, options, leg.Options.Epoch); err != nil {
			f.talk.printf("the control plane was not informed that writer %s has closed: %s", leg.Name, oneLine(err))
		}
	}
	f.legs = nil
}

// finish tells what was done, also when the feed failed.
func (f *routeFeed) finish(err error) error {
	err = errors.Join(err, f.output.flush())
	f.close()
	f.talk.printf("acknowledged %d records (%d bytes) in %s: %.0f/s, level %s; waited for space %d times, resolved "+
		"%d unknown, %d selected by no rule", f.count.acknowledged, f.count.bytes,
		time.Since(f.talk.started).Round(time.Millisecond), f.talk.rate(&f.count), f.count.level, f.count.full,
		f.count.unknown, f.unrouted)
	if f.unacknowledged > 0 {
		f.talk.printf("%s to optional legs alone, which acknowledge nothing",
			counted(f.unacknowledged, "record went", "records went"))
	}
	if err == nil && f.unrouted > 0 {
		err = fmt.Errorf("%s nowhere: no rule of route %q selects their class and criticality",
			counted(f.unrouted, "record went", "records went"), f.options.route)
	}
	if err == nil && f.unacknowledged > 0 && f.lost > 0 {
		err = fmt.Errorf("%s to optional legs of route %q alone, and %s dropped: not all of them are in a stream",
			counted(f.unacknowledged, "record went", "records went"), f.options.route,
			counted(f.lost, "record was", "records were"))
	}
	return err
}
