//go:build cgo

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apiv1 "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/farlog"
)

// farRecordLenMax is taken for the longest record of a ring on another host of which nothing else is known; the ring
// itself refuses longer ones.
const farRecordLenMax = 1 << 20

// writerPlace is which ring to open and how: from a grant, or from the command line alone.
type writerPlace struct {
	uri          string
	options      farlog.WriterOptions
	recordLenMax uint32
	granted      apiv1.Level // the stream's, whatever is asked for
}

// countedBy is the ring under which the writer's counters are; nil: it is not known.
func (p *writerPlace) countedBy() *[16]byte {
	if len(p.options.Members) > 0 {
		return &p.options.Members[0].RingUUID
	}
	return p.options.RingUUID
}

// isRemoteURI tells a ring on another host, or several of which one is.
func isRemoteURI(uri string) bool {
	_, uris := farlog.MemberURIs(uri)
	return slices.ContainsFunc(uris, isRemoteRing)
}

// hasMembers tells several rings.
func hasMembers(uri string) bool {
	_, uris := farlog.MemberURIs(uri)
	return len(uris) > 1
}

// agentScheme begins the URI of a stream of which the host agent says where its ring is.
const agentScheme = "farlog://"

func isAgentURI(uri string) bool { return strings.HasPrefix(uri, agentScheme) }

// isOutOfSight tells a ring that cannot be looked at before it is opened.
func isOutOfSight(uri string) bool { return isRemoteURI(uri) || isAgentURI(uri) || hasMembers(uri) }

func (o *appendOptions) validatePlace() error {
	switch {
	case o.transport != "" && o.ring != "":
		return usageErrorf("--transport %q: the URI of --ring says it; expected only with --stream or --route",
			o.transport)
	case o.tokenFile != "" && !isRemoteURI(o.ring):
		return usageErrorf("--token-file %q: expected only with --ring and a URI that begins with ofi: or verbs:, or "+
			"has members that do", o.tokenFile)
	case isRemoteURI(o.ring) && o.tokenFile == "":
		return usageErrorf("--ring %q is on another host, which lets in nobody without a grant: give --token-file "+
			"(farlog stream grant writes one), or --stream", o.ring)
	}
	return nil
}

// inspectRing finds out what a record may be, and which ring it is. A ring on another host is only known from its
// grant.
func (p *writerPlace) inspectRing() error {
	if isOutOfSight(p.uri) {
		p.recordLenMax = cmp.Or(p.recordLenMax, farRecordLenMax)
		return nil
	}
	status, err := farlog.Inspect(p.uri)
	if err != nil {
		return err
	}
	p.recordLenMax = status.RecordLenMax
	if p.options.RingUUID == nil {
		p.options.RingUUID = &status.RingUUID
	}
	return nil
}

// checkByAgent reports whether there is a stream that the host agent is to open: as a reader, who takes nobody's place.
// One who may only write is refused that, of a stream that is there.
func (p *writerPlace) checkByAgent() error {
	if !isAgentURI(p.uri) {
		return nil
	}
	reader, err := farlog.OpenReader(p.uri, farlog.ReaderOptions{})
	if err == nil {
		_ = reader.Close()
	}
	return err
}

// openWriter opens the ring. One that has seen a higher epoch than was granted was written by its URI alone, or by
// somebody granted later: a new grant above that is asked for. A grant of a ring on another host is good for one
// opening; whatever passes there (a target that is just starting, a writer that is just being torn down) is tried again
// with a new one.
func openWriter(ctx context.Context, env *environment, options appendOptions, place writerPlace, talk *appendTalk,
) (*farlog.Writer, writerPlace, error) {
	full := fullRing{most: options.deadline, talk: talk}
	for until := time.Now().Add(options.acquireTimeout); ; {
		writer, err := openWhenThereIsSpace(ctx, place, &full)
		isFar := isOutOfSight(place.uri)
		isFull := isFar && errors.Is(err, farlog.ErrFull) && place.options.Policy != farlog.PolicyReject
		if isFull {
			if fullErr := full.wait(ctx, openFullInterval); fullErr != nil {
				return nil, place, fullErr
			}
			until = time.Now().Add(options.acquireTimeout)
		}
		isTaken := options.isTakeover && errors.Is(err, farlog.ErrHeld)
		if isTaken {
			if err := fenceHere(place); err != nil {
				return nil, place, err
			}
			if pause(ctx, openRetryInterval) && time.Now().Before(until) {
				continue
			}
		}
		isPassing := errors.Is(err, farlog.ErrFenced) || isFull || isFar && isPassing(err)
		if !isPassing || options.stream == "" || ctx.Err() != nil || time.Now().After(until) {
			return writer, place, err
		}
		if options.isStandby && errors.Is(err, farlog.ErrFenced) { // another one that stood by was faster
			if err := standBy(ctx, env, options, talk); err != nil {
				return nil, place, err
			}
			until = time.Now().Add(options.acquireTimeout)
		}
		if !isFar {
			status, inspectErr := farlog.Inspect(place.uri)
			if inspectErr != nil {
				return nil, place, inspectErr
			}
			options.epochSeen = max(status.WriterEpoch, status.EpochMin)
		} else if !errors.Is(err, farlog.ErrFenced) && !isFull {
			if talk.isDue() {
				talk.printf("stream %s: trying to open it again, at most until %s from now: %s", options.stream,
					time.Until(until).Round(time.Second), oneLine(err))
			}
			pause(ctx, openRetryInterval)
		}
		if place, err = locateWriter(ctx, env, options); err == nil {
			err = place.inspectRing()
		}
		if err != nil {
			return nil, place, err
		}
	}
}

// isPassing tells why a ring on another host may not be opened now and yet be a moment later: nobody answers, a token
// that the target has not learned of yet or that an opening which failed has used up, a role that is still taken.
func isPassing(err error) bool {
	return errors.Is(err, farlog.ErrIO) || errors.Is(err, farlog.ErrNotFound) || errors.Is(err, farlog.ErrHeld) ||
		errors.Is(err, farlog.ErrInvalid)
}

// openWhenThereIsSpace opens the ring. A ring that is full to the last line cannot take the record of a new epoch until
// the drain makes space; that is waited for, unless the policy is to reject.
func openWhenThereIsSpace(ctx context.Context, place writerPlace, full *fullRing) (*farlog.Writer, error) {
	for {
		writer, err := farlog.OpenWriter(place.uri, place.options)
		if !errors.Is(err, farlog.ErrFull) || place.options.Policy == farlog.PolicyReject || isOutOfSight(place.uri) {
			return writer, err
		}
		if err := full.wait(ctx, openRetryInterval); err != nil {
			return nil, err
		}
	}
}

// fullRing is an opening that waits for the drain, at most for as long as --deadline says.
type fullRing struct {
	most  time.Duration // 0: as long as it takes
	since time.Time
	talk  *appendTalk
}

// wait is one pause. It fails when the wait is over.
func (f *fullRing) wait(ctx context.Context, length time.Duration) error {
	if f.since.IsZero() {
		f.since = time.Now()
	}
	if f.most > 0 && time.Since(f.since) >= f.most {
		return fmt.Errorf("no record was appended: FULL: the ring has no free space for a new epoch, and none "+
			"became free within --deadline %s; is its drain running?", f.most)
	}
	if f.talk.isDue() {
		f.talk.printf("ring is full, no free space for a new epoch: waiting for the drain%s", boundText(f.most))
	}
	if f.most > 0 {
		length = min(length, f.most)
	}
	if !pause(ctx, length) {
		return fmt.Errorf("stopped while the ring was full, before its new epoch: no record was appended: %w",
			context.Cause(ctx))
	}
	return nil
}

// pause is false when ctx ended it.
func pause(ctx context.Context, length time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(length):
		return true
	}
}

// locateWriter turns the command line, and with --stream the control plane's grant, into a ring and the options to open
// it.
func locateWriter(ctx context.Context, env *environment, options appendOptions) (writerPlace, error) {
	place := writerPlace{uri: options.ring, options: farlog.WriterOptions{
		Level: farlog.LevelPersistent,
		Name:  options.name,
	}}
	if isAgentURI(options.ring) {
		place.options.Level = 0 // the stream's own, which the agent tells
	}
	var err error
	switch {
	case options.stream != "":
		place, err = acquireWriter(ctx, env, options)
	case options.tokenFile != "":
		err = place.readToken(options.tokenFile)
	}
	if err != nil {
		return place, err
	}
	if options.level != "" {
		level, err := farlog.ParseLevel(options.level)
		if err != nil {
			return place, &usageError{text: err.Error()}
		}
		place.options.Level = level
	}
	if options.policy != "" {
		policy, err := farlog.ParsePolicy(options.policy)
		if err != nil {
			return place, &usageError{text: err.Error()}
		}
		place.options.Policy = policy
	}
	if options.deadline != 0 {
		place.options.Deadline = options.deadline
	}
	return place, nil
}
