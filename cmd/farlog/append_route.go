//go:build cgo

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	apiv1 "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/record"
)

const (
	agentSocketDefault = "/run/farlog/host.sock"
	asidePause         = time.Second
	routeClosePause    = 5 * time.Second // for legs that are behind, when a route is closed
)

// routeFeed appends what the input gives to a route, in windows of one batch each.
type routeFeed struct {
	feed
	env            *environment
	watchedRoute   atomic.Pointer[farlog.Route] // route, for the goroutine that watches it
	options        appendOptions
	client         *controlClient // nil: the host agent grants
	criticalities  []uint32
	positions      []farlog.RoutePosition
	changes        *followed[apiv1.GetRouteResponse]
	opened         *apiv1.GetRouteResponse // as the route was opened
	legs           []farlog.RouteLeg       // as they were opened by grants; none: the host agent grants
	unrouted       uint64                  // records that no rule selects
	unacknowledged uint64                  // records that no required leg takes: nobody acknowledges them
	lost           uint64                  // dropped by a leg when the route was closed
	asideAt        time.Time               // when it was told last that a leg does not keep up
	beatAt         time.Time               // the next time, however busy other legs are
	retryAt        time.Time               // for new rules, when there was no grant for them
	slow           *slowReporter           // nil: the host agent grants
}

func (o *appendOptions) validateRoute() error {
	for _, flag := range []struct {
		name    string
		isGiven bool
	}{
		{"--level", o.level != ""},
		{"--policy", o.policy != ""},
		{"--standby", o.isStandby},
		{"--token-file", o.tokenFile != ""},
	} {
		if flag.isGiven {
			return usageErrorf("%s: expected without --route: its legs have their own", flag.name)
		}
	}
	if o.criticality > 255 {
		return usageErrorf("--criticality %d: expected 0 to 255", o.criticality)
	}
	return nil
}

func runRouteAppend(ctx context.Context, env *environment, options appendOptions) error {
	f := &routeFeed{env: env, options: options, criticalities: slices.Repeat([]uint32{options.criticality},
		options.window), positions: make([]farlog.RoutePosition, options.window)}
	f.feed = feed{
		input:  newRecordInput(env.stdin, options.format, farRecordLenMax-record.OverheadLen),
		output: newAcknowledgements(options.ack, env.stdout), talk: newAppendTalk(env.stderr),
		window: options.window, deadline: options.deadline,
		classify: classifier(options.isFIX, options.class, options.keyField),
		fullMax:  options.deadline, stall: newStall(),
	}
	if err := f.checkRoute(ctx); err != nil {
		return asUsage(err)
	}
	if isMore, err := f.fill(ctx); err != nil || !isMore {
		if err == nil {
			f.talk.printf("no record was read: nothing was appended, and the route was not opened")
		}
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err := f.begin(ctx)
	if f.client != nil {
		defer f.client.Close()
	}
	if err != nil {
		return asUsage(err)
	}
	f.beat = options.heartbeat
	return f.finish(f.run(ctx))
}

// checkRoute finds out whether there is such a route, before a record is waited for.
func (f *routeFeed) checkRoute(ctx context.Context) error {
	if isAgentURI(f.options.route) {
		return farlog.CheckRouteName(f.options.route)
	}
	err := withControl(ctx, f.env, f.options.acquireTimeout,
		func(ctx context.Context, client apiv1.ControlServiceClient) error {
			var err error
			f.opened, err = client.GetRoute(ctx, &apiv1.GetRouteRequest{Name: f.options.route})
			return err
		})
	if err != nil {
		return fmt.Errorf("acquire route %q: %w", f.options.route, err)
	}
	return nil
}

// begin opens the route: by the host agent, or with grants of the control plane, which also tells of changes.
func (f *routeFeed) begin(ctx context.Context) (err error) {
	if isAgentURI(f.options.route) {
		if f.route, err = farlog.OpenRouteName(f.options.route,
			farlog.RouteOptions{SpillDir: f.options.spillDir, Name: f.options.name}); err == nil {
			f.watchedRoute.Store(f.route)
			f.talk.printf("route %s: %s", f.options.route, counted(uint64(len(f.route.Stats())), "leg", "legs"))
		}
		return err
	}
	if f.client, err = f.env.dialControlOnce(); err != nil {
		return err
	}
	if err := f.awaitLegsFree(ctx); err != nil {
		return err
	}
	f.changes = followRoute(ctx, f.client, f.options.route)
	answer, err := f.acquire(ctx)
	if err != nil {
		return err
	}
	return f.open(ctx, answer)
}

// open opens the route with grants for all legs. A grant of a far ring is good for one opening: what passes there is
// tried again with a new one.
func (f *routeFeed) open(ctx context.Context, answer *apiv1.AcquireRouteResponse) (err error) {
	for until := time.Now().Add(f.options.acquireTimeout); ; {
		f.opened = &apiv1.GetRouteResponse{Route: answer.Route, Resolved: answer.Resolved}
		legs, err := routeLegs(answer, f.options)
		if err == nil {
			f.route, err = farlog.OpenRoute(f.options.route, legs)
		}
		if err == nil {
			f.watchedRoute.Store(f.route)
			f.legs = legs
			f.talk.printf("route %s: %s", f.options.route, counted(uint64(len(legs)), "leg", "legs"))
			f.followLegs(ctx, legs)
			f.reportSlow(ctx, legs)
			return nil
		}
		if !f.mayOpenAgain(legs, err) || time.Now().After(until) || !pause(ctx, openRetryInterval) {
			return err
		}
		if answer, err = f.acquire(ctx); err != nil {
			return err
		}
	}
}

// followLegs tells the route of rings that are put in the place of others, of legs with several that were opened by a
// grant: others ask the host agent by themselves.
func (f *routeFeed) followLegs(ctx context.Context, legs []farlog.RouteLeg) {
	for i, leg := range legs {
		if hasMembers(leg.URI) {
			options := f.options
			options.stream = leg.Name
			go followMembers(ctx, f.env, f.client, options, legWriter{f.route, i}, leg.Options.Epoch)
		}
	}
}

func (f *routeFeed) acquire(ctx context.Context) (answer *apiv1.AcquireRouteResponse, err error) {
	err = withControl(ctx, f.env, f.options.acquireTimeout,
		func(ctx context.Context, client apiv1.ControlServiceClient) error {
			answer, err = client.AcquireRoute(ctx, &apiv1.AcquireRouteRequest{
				Route: f.options.route, Transport: f.options.transport, Holder: f.env.holder(f.options.name),
				NoTakeover: !f.options.isTakeover,
			})
			return err
		})
	if err != nil {
		return nil, fmt.Errorf("acquire route %q: %w", f.options.route, err)
	}
	return answer, nil
}

// routeLegs makes the legs of a route of its rules and grants.
func routeLegs(answer *apiv1.AcquireRouteResponse, options appendOptions) (legs []farlog.RouteLeg, err error) {
	grants := map[string]*apiv1.LegGrant{}
	for _, granted := range answer.Legs {
		grants[granted.Stream] = granted
	}
	for _, rule := range answer.Resolved {
		var classes []farlog.ClassRange
		for _, one := range rule.Classes {
			classes = append(classes, farlog.ClassRange{First: uint16(one.First), Last: uint16(one.Last)})
		}
		for _, leg := range rule.Legs {
			made, err := routeLeg(leg, grants[leg.Stream], options)
			if err != nil {
				return nil, fmt.Errorf("route %q: %w", answer.Route.GetSpec().GetName(), err)
			}
			made.Classes, made.CriticalityMin = classes, rule.CriticalityMin
			legs = append(legs, made)
		}
	}
	return legs, nil
}

// routeLeg is one of them. A leg that carries by itself opens its ring again when that was away, for which a grant does
// not suffice: where there is a host agent it is asked.
func routeLeg(leg *apiv1.RouteLeg, granted *apiv1.LegGrant, options appendOptions) (farlog.RouteLeg, error) {
	made := farlog.RouteLeg{
		Name: leg.Stream, Required: !leg.Optional,
		Policy: farlog.RoutePolicy(leg.Policy - apiv1.LegPolicy_LEG_POLICY_FAIL), BufferBytes: leg.BufferSizeBytes,
	}
	isCarried := leg.Policy != apiv1.LegPolicy_LEG_POLICY_FAIL
	switch {
	case isCarried && hasAgent():
		made.URI = legOfAgent(leg.Stream, options)
		made.Options = farlog.WriterOptions{Name: options.name}
	case granted.GetError() == "":
		place, err := placeOf(granted.GetGrant())
		if err != nil {
			return made, err
		}
		made.URI, made.Options = place.uri, place.options
	case isCarried:
		made.URI = legOfAgent(leg.Stream, options) // of an agent that may come
	default:
		return made, fmt.Errorf("leg %q: %s", leg.Stream, granted.GetError())
	}
	if leg.Level != apiv1.Level_LEVEL_UNSPECIFIED {
		made.Options.Level = farlog.Level(leg.Level)
	}
	made.Options.Deadline = cmp.Or(leg.Deadline.AsDuration(), made.Options.Deadline)
	if leg.Policy == apiv1.LegPolicy_LEG_POLICY_SPILL {
		dir, err := spillDir(options)
		if err != nil {
			return made, err
		}
		made.SpillURI = "mem:" + filepath.Join(dir,
			url.PathEscape(options.route)+"+"+url.PathEscape(leg.Stream)+".spill")
	}
	return made, nil
}

// spillDir is where the spills of this host's routes are.
func spillDir(options appendOptions) (string, error) {
	dir := options.spillDir
	if dir == "" {
		return "", usageErrorf("route %q spills: expected --spill-dir DIR, on a medium that outlives what the route "+
			"is to outlive", options.route)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", usageErrorf("--spill-dir %q: %s", dir, errors.Unwrap(err))
	}
	return filepath.Abs(dir)
}

// hasAgent reports whether a host agent has a socket here.
func hasAgent() bool {
	_, err := os.Stat(cmp.Or(os.Getenv("FARLOG_AGENT"), agentSocketDefault))
	return err == nil
}

// run ends with the input, with ctx, or with an error that concerns all that would follow.
func (f *routeFeed) run(ctx context.Context) error {
	defer f.stall.watch(ctx, f.talk, f.whyStalled)()
	for ctx.Err() == nil {
		if isMore, err := f.fill(ctx); err != nil || !isMore {
			return err
		}
		if err := f.reconfigure(ctx); err != nil {
			return err
		}
		if err := f.commit(ctx); err != nil {
			return err
		}
		f.entries = f.entries[:0]
		if f.beat > 0 && time.Now().After(f.beatAt) {
			if err := f.heartbeat(); err != nil {
				return err
			}
			f.beatAt = time.Now().Add(f.beat)
		}
	}
	return nil
}

// reconfigure opens the route again when its rules have changed. What is in its spills is there for that.
func (f *routeFeed) reconfigure(ctx context.Context) error {
	if f.changes == nil {
		return nil
	}
	newest := f.changes.newest.Load()
	if newest == nil || isSameRules(newest.Resolved, f.opened.Resolved) || time.Now().Before(f.retryAt) {
		return nil
	}
	answer, err := f.acquire(ctx)
	if err != nil {
		f.retryAt = time.Now().Add(changeRetryPause)
		f.talk.printf("the route has changed, going on as before: %s", oneLine(err))
		return nil
	}
	f.talk.printf("route %s has changed: opening it again", f.options.route)
	f.close()
	return f.open(ctx, answer)
}

func isSameRules(a, b []*apiv1.RouteRule) bool {
	return slices.EqualFunc(a, b, func(one, other *apiv1.RouteRule) bool { return one.String() == other.String() })
}

// commit appends the window and returns when each record of it is in all required legs.
func (f *routeFeed) commit(ctx context.Context) error {
	f.stall.begin()
	defer f.stall.end()
	for entries := f.entries; len(entries) > 0; {
		positions := f.positions[:len(entries)]
		done, submitted, err := f.route.AppendBatch(entries, f.criticalities[:len(entries)], f.deadline, positions)
		if errors.Is(err, farlog.ErrUnknown) {
			if err := f.resolve(positions[done:submitted], done); err != nil {
				return err
			}
		}
		if err := f.acknowledgeRoute(entries[:submitted], positions[:submitted]); err != nil {
			return err
		}
		entries = entries[submitted:]
		switch {
		case err == nil, errors.Is(err, farlog.ErrUnknown):
		case !errors.Is(err, farlog.ErrFull):
			return fmt.Errorf("input record %d was not appended to route %q: %w: %s", f.number(), f.options.route, err,
				f.legTexts(positions[submitted]))
		case f.fullMax > 0 && submitted == 0:
			return fmt.Errorf("input record %d was not appended to route %q: FULL: a required leg had no free "+
				"space within --deadline %s: %s; "+
				"everything acknowledged stays valid", f.number(), f.options.route, f.fullMax, f.legTexts(positions[0]))
		default:
			if err := f.waitForSpace(ctx, positions[submitted]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *routeFeed) waitForSpace(ctx context.Context, position farlog.RoutePosition) error {
	f.count.full++
	f.stall.isFull.Store(true)
	if f.talk.isDue() {
		f.talk.printf("a required leg is full: waiting for its drain%s: %s", boundText(f.fullMax), f.legTexts(position))
	}
	if err := f.output.flush(); err != nil {
		return err
	}
	if !pause(ctx, time.Millisecond) {
		return fmt.Errorf("stopped while a leg was full: input record %d and later ones were not appended", f.number())
	}
	return nil
}

func (f *routeFeed) number() uint64 { return f.count.acknowledged + f.unrouted + f.unacknowledged + 1 }

func (f *routeFeed) acknowledgeRoute(entries []farlog.Entry, positions []farlog.RoutePosition) error {
	for n := range positions {
		position := &positions[n]
		number := f.number()
		if position.Required|position.Optional == 0 {
			f.unrouted++
			if err := f.output.reject(number, notAppendedNoRule); err != nil {
				return err
			}
			continue
		}
		if position.Required == 0 {
			f.unacknowledged++
			if position.Dropped == position.Optional {
				f.lost++
			}
			continue
		}
		if f.count.acknowledged == 0 || position.Level < f.count.level {
			f.count.level = position.Level
		}
		f.count.acknowledged++
		f.count.bytes += uint64(len(entries[n].Data))
		for i := range position.Legs {
			if position.Required>>i&1 == 0 {
				continue
			}
			if err := f.output.add(number, position.Legs[i].Position); err != nil {
				return err
			}
		}
	}
	if len(positions) > 0 {
		f.stall.progress()
	}
	f.talk.progress(&f.count)
	f.reportBehind(positions)
	return nil
}

// reportBehind says, now and then, that a required leg spills, or an optional one drops: the result of an append does
// not.
func (f *routeFeed) reportBehind(positions []farlog.RoutePosition) {
	isAside := slices.ContainsFunc(positions, func(position farlog.RoutePosition) bool {
		for i := range position.Legs {
			if position.Required>>i&1 != 0 && position.Legs[i].IsBuffered {
				return true
			}
		}
		return position.Dropped != 0
	})
	if !isAside || time.Since(f.asideAt) < asidePause {
		return
	}
	f.asideAt = time.Now()
	for _, leg := range f.route.Stats() {
		if leg.Required && leg.Behind > 0 || leg.Dropped > 0 {
			f.offerSlow(leg)
			f.talk.printf("leg %s does not keep up (%s): spilled %d, dropped %d, %d bytes behind%s", leg.Name,
				leg.State, leg.Spilled, leg.Dropped, leg.Behind, strings.TrimSuffix(": "+leg.Text, ": "))
		}
	}
}
