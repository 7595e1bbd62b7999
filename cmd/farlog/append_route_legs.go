//go:build cgo

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apiv1 "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/farlog"
)

// resolve finds out about records of which not all required legs are known to have all.
func (f *routeFeed) resolve(positions []farlog.RoutePosition, before int) error {
	for i := range positions {
		err := f.route.Resolve(&positions[i], resolveDeadline)
		fenced := 0
		for until := time.Now().Add(resolveTimeout); errors.Is(err, farlog.ErrUnknown) && fenced < fencedResolves &&
			time.Now().Before(until); {
			f.count.unknown++
			if err = f.route.Resolve(&positions[i], resolveDeadline); errors.Is(f.route.Heartbeat(time.Millisecond),
				farlog.ErrFenced) {
				fenced++
			}
		}
		switch number := f.number() + uint64(before+i); {
		case errors.Is(err, farlog.ErrNotFound):
			return fmt.Errorf("input record %d is in some required legs of route %q and never will be in others: %s",
				number, f.options.route, f.legTexts(positions[i]))
		case fenced >= fencedResolves && errors.Is(err, farlog.ErrUnknown):
			return fmt.Errorf("input record %d may or may not be in each required leg of route %q: this writer%s, is "+
				"fenced, and a target does not say any more "+
				"where its log ended: %s", number, f.options.route, f.epochsText(), f.legTexts(positions[i]))
		case err != nil:
			return fmt.Errorf("input record %d may be in some required legs of route %q: %w: %s", number,
				f.options.route, err, f.legTexts(positions[i]))
		}
	}
	return nil
}

// legTexts says of each leg how it stands, as far as something is wrong.
func (f *routeFeed) legTexts(position farlog.RoutePosition) string {
	var texts []string
	for i, leg := range f.route.Stats() {
		text := leg.Text
		if err := position.Legs[i].Err; errors.Is(err, farlog.ErrFenced) {
			text = strings.TrimPrefix(text+", "+f.fencedText(i, position.Legs[i].Position.Epoch), ", ")
		} else if err != nil {
			text = strings.TrimPrefix(text+", "+err.Error(), ", ")
		}
		if text != "" {
			texts = append(texts, fmt.Sprintf("leg %s (%s): %s", leg.Name, leg.State, text))
		}
	}
	return cmp.Or(strings.Join(texts, "; "), "no leg says why")
}

// fencedText is what ends a leg's writer. The epoch of one that the host agent was granted is not known here.
func (f *routeFeed) fencedText(leg int, demanded uint32) string {
	return fmt.Sprintf("this writer%s, is fenced: at least epoch %d is demanded", f.epochText(leg), demanded)
}

func (f *routeFeed) epochText(leg int) string {
	if leg >= len(f.legs) || f.legs[leg].Options.Epoch == 0 {
		return ""
	}
	return fmt.Sprintf(", epoch %d", f.legs[leg].Options.Epoch)
}

// epochsText names the epochs of all legs that were opened by grants.
func (f *routeFeed) epochsText() string {
	var texts []string
	for i, leg := range f.legs {
		if text := strings.TrimPrefix(f.epochText(i), ", "); text != "" {
			texts = append(texts, text+" of "+leg.Name)
		}
	}
	return strings.TrimSuffix(", "+strings.Join(texts, ", "), ", ")
}

// legOfAgent names a leg that the host agent grants.
func legOfAgent(stream string, options appendOptions) string {
	if options.isTakeover {
		return agentScheme + stream + "?takeover=yes"
	}
	return agentScheme + stream
}

// awaitLegsFree waits for the end of writers that live, as append --stream does, where the route cannot go on without a
// leg.
func (f *routeFeed) awaitLegsFree(ctx context.Context) error {
	if f.options.isTakeover {
		return nil
	}
	for _, rule := range f.opened.GetResolved() {
		for _, leg := range rule.Legs {
			if leg.Optional || leg.Policy != apiv1.LegPolicy_LEG_POLICY_FAIL {
				continue
			}
			options := f.options
			options.stream = leg.Stream
			if err := waitStreamFree(ctx, f.env, options, f.talk); err != nil {
				return err
			}
		}
	}
	return nil
}

// mayOpenAgain reports whether what kept the route from opening may be gone a moment later. With --takeover a writer
// that holds a leg's ring on this host is fenced: targets fence those on others.
func (f *routeFeed) mayOpenAgain(legs []farlog.RouteLeg, err error) bool {
	if !f.options.isTakeover || !errors.Is(err, farlog.ErrHeld) {
		return isPassing(err) || errors.Is(err, farlog.ErrFenced)
	}
	for _, leg := range legs {
		if leg.Options.Epoch == 0 {
			continue
		}
		if err := fenceHere(writerPlace{uri: leg.URI, options: leg.Options}); err != nil {
			f.talk.printf("leg %s: %s", leg.Name, oneLine(err))
			return false
		}
	}
	return true
}
