//go:build cgo

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/farlog/farlog/pkg/config"
	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/record"
)

const (
	windowMax         = 65536
	openRetryInterval = 20 * time.Millisecond
	openFullInterval  = 250 * time.Millisecond // each try of a ring on another host takes a grant, and so an epoch

	acquireTimeoutDefault = 10 * time.Second
)

type appendOptions struct {
	stream, ring   string
	route          string
	spillDir       string // of --route
	criticality    uint32 // of --route
	transport      string // of --stream
	tokenFile      string // of --ring
	format, ack    string
	level, policy  string
	name           string
	window         int
	class          uint16
	keyField       int
	isFIX          bool
	isStandby      bool
	isTakeover     bool
	hungAfter      time.Duration // of --standby; 0 = never
	deadline       time.Duration
	heartbeat      time.Duration
	acquireTimeout time.Duration
	epochSeen      uint32 // in the ring, when that refused an earlier grant
}

func newAppendCommand(env *environment) *cobra.Command {
	var options appendOptions
	command := &cobra.Command{
		Use:   "append {--stream NAME | --route NAME | --ring URI} [flags] < RECORDS",
		Short: "Append records from standard input to a stream, a route or a ring",
		Long: `Reads records from standard input, a file or a pipe, and appends them in order.

Each record is a line, or a length of 4 bytes, little-endian, and as many bytes (--format length-prefixed). With
--stream the control plane grants the right to write; --ring needs no daemon. A record is acknowledged when it has
reached the requested level. With --ack text, append then prints a line for it: epoch, seq, lsn, level, and after #
its number in the input, which starts at 1. It prints a line for a record that was not appended too, such as: refused
FULL #7.

--window N puts up to N records under one flush. A window never waits for input: append commits the records that it
has read. When the ring is full, append waits for the drain (policy block) or rejects the record (policy reject). The
wait ends only at --deadline, with FULL. While it waits for space or for an acknowledgement, append prints once a
second for what.

A ring on another host is reached by verbs: or ofi:, and only with a grant: --stream gets one, --ring takes it from
the file that farlog stream grant wrote. A stream that a living writer holds is taken over only with --takeover,
which fences the former writer. Without it append waits up to --acquire-timeout for that writer to end.

With --standby append waits until the stream's writer can have no more records acknowledged: its process has ended, or
farlog stream takeover has fenced it. From a writer that hangs, or whose host is disconnected, it takes over only with
--hung-after, when the stream has had no record and no heartbeat for that time. The writer then needs a --heartbeat
well below it. A live writer that is presumed dead is fenced; no acknowledged record is lost.

With --route each record goes to the streams that the route selects by its class and --criticality, and is
acknowledged when the required ones have it. Changes of the stream (level, policy, deadline) or of the route take
effect between two records.`,
		Example: `  farlog append --ring mem:/dev/shm/orders.ring --level visible < orders.txt
  tail -F fix.log | farlog append --stream desk7/orders --fix --ack text`,
		Args: exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := options.validate(); err != nil {
				return err
			}
			if options.route != "" {
				return runRouteAppend(cmd.Context(), env, options)
			}
			return runAppend(cmd.Context(), env, options)
		},
	}
	options.declare(command.Flags())
	return command
}

func (o *appendOptions) declare(flags *pflag.FlagSet) {
	o.declarePlace(flags)
	o.declareRecords(flags)
}

// declarePlace makes the flags that say where records go, and who writes there.
func (o *appendOptions) declarePlace(flags *pflag.FlagSet) {
	flags.StringVar(&o.stream, "stream", "", "`name` of the stream; its writer is granted by the control plane")
	flags.StringVar(&o.route, "route", "", "`name` of the route; writers of its streams are granted by the "+
		"control plane, or with farlog://NAME by the host agent")
	flags.Uint32Var(&o.criticality, "criticality", 0, "with --route: `criticality` of every record, 0 to 255")
	flags.StringVar(&o.spillDir, "spill-dir", "",
		"with --route: `directory` of the rings that keep what a stream does not take")
	flags.StringVar(&o.ring, "ring", "",
		"`URI` of a ring, mem:/path, or with --token-file ofi:tcp://host:port/ring; needs no control plane")
	flags.StringVar(&o.transport, "transport", "",
		"`transport` to the ring of --stream: mem, verbs or ofi (default: mem on the target's host, else the fastest)")
	flags.BoolVar(&o.isStandby, "standby", false,
		"with --stream: wait until its writer has ended, then take over")
	flags.BoolVar(&o.isTakeover, "takeover", false,
		"with --stream or --route: fence a living writer that holds the stream, or one of the route's")
	flags.Var((*config.DurationValue)(&o.hungAfter), "hung-after", "with --standby: take over from a writer "+
		"that hangs, when the stream has had no record and no heartbeat for this `duration`; well above the writer's "+
		"--heartbeat (default: never)")
	flags.StringVar(&o.tokenFile, "token-file", "",
		"`file` with the grant of a ring on another host; farlog stream grant writes it")
}

// declareRecords makes the flags that say how records are read and appended.
func (o *appendOptions) declareRecords(flags *pflag.FlagSet) {
	flags.StringVar(&o.format, "format", formatLines, "how records are separated: lines or length-prefixed")
	flags.StringVar(&o.ack, "ack", ackNone, "print each acknowledgement: none, text or json")
	flags.IntVar(&o.window, "window", 1, "records under one flush, at most")
	flags.StringVar(&o.level, "level", "", "durability `level`: posted, visible or persistent (default: the "+
		"stream's; of --ring, unless it is farlog://: persistent)")
	flags.StringVar(&o.policy, "policy", "",
		"when the ring is full: block or reject (default: the stream's; of --ring: block)")
	flags.Var((*config.DurationValue)(&o.deadline), "deadline", "longest wait of one append; a ring that is "+
		"full for that time ends the command with FULL (default: the stream's or the region's deadline for each "+
		"attempt; append waits for a full ring without limit)")
	flags.Var((*config.DurationValue)(&o.heartbeat), "heartbeat", "append a heartbeat when there was no input "+
		"for this `duration`, so that merges do not wait for this stream; well below --merge-late of the drain "+
		"(default: none)")
	flags.Uint16Var(&o.class, "class", 0, "class of every record")
	flags.BoolVar(&o.isFIX, "fix", false,
		"records are FIX messages: class from MsgType, key from ClOrdID (lists: ListID)")
	flags.IntVar(&o.keyField, "key-field", 0,
		"key of a record: its field with this `number`, from 1, separated by spaces; with --fix: the tag")
	flags.StringVar(&o.name, "name", "farlog append", "`name` of this writer, shown to others")
	o.acquireTimeout = acquireTimeoutDefault
	flags.Var((*config.DurationValue)(&o.acquireTimeout), "acquire-timeout",
		"longest wait for the control plane's grant")
}

func (o *appendOptions) validate() error {
	given := 0
	for _, place := range []string{o.stream, o.route, o.ring} {
		if place != "" {
			given++
		}
	}
	if given != 1 {
		return usageErrorf("append: expected one of --stream NAME, --route NAME and --ring URI")
	}
	if o.route != "" {
		if err := o.validateRoute(); err != nil {
			return err
		}
	} else if o.criticality != 0 || o.spillDir != "" {
		return usageErrorf("--criticality, --spill-dir: expected only with --route")
	}
	if err := o.validatePlace(); err != nil {
		return err
	}
	for _, choice := range []struct{ flag, value, expected string }{
		{"format", o.format, "lines length-prefixed"},
		{"ack", o.ack, "none text json"},
		{"level", o.level, " posted visible persistent"},
		{"policy", o.policy, " block reject"},
		{"transport", o.transport, " mem verbs ofi"},
	} {
		if !isOneOf(choice.value, strings.Split(choice.expected, " ")) {
			return usageErrorf("--%s %q: expected %s", choice.flag, choice.value,
				strings.Join(strings.Fields(choice.expected), ", "))
		}
	}
	switch {
	case o.isStandby && o.stream == "":
		return usageErrorf("--standby: expected with --stream: the control plane says who writes")
	case o.isTakeover && (o.ring != "" || o.isStandby):
		return usageErrorf("--takeover: expected with --stream or --route, and without --standby, which waits for " +
			"its writer's end")
	case o.hungAfter != 0 && !o.isStandby:
		return usageErrorf("--hung-after: expected with --standby")
	case o.hungAfter < 0 || o.hungAfter > 0 && o.hungAfter < hungAfterMin:
		return usageErrorf("--hung-after %s: expected %s or more: a target reports its rings once a second",
			o.hungAfter, hungAfterMin)
	case o.window < 1 || o.window > windowMax:
		return usageErrorf("--window %d: expected 1 to %d", o.window, windowMax)
	case o.keyField < 0:
		return usageErrorf("--key-field %d: expected 1 or more", o.keyField)
	case o.isFIX && o.class != 0:
		return usageErrorf("--class %d: with --fix the class comes from MsgType; leave one of the two out", o.class)
	case o.heartbeat < 0 || o.heartbeat > 0 && o.heartbeat < time.Millisecond:
		return usageErrorf("--heartbeat %s: expected 1ms or more", o.heartbeat)
	case o.acquireTimeout <= 0:
		return usageErrorf("--acquire-timeout %s: expected more than 0", o.acquireTimeout)
	}
	return nil
}

func isOneOf(value string, choices []string) bool {
	return slices.Contains(choices, value)
}

func runAppend(ctx context.Context, env *environment, options appendOptions) error {
	talk := newAppendTalk(env.stderr)
	var err error
	switch {
	case options.isStandby:
		err = standBy(ctx, env, options, talk)
	case options.stream != "" && !options.isTakeover:
		err = waitStreamFree(ctx, env, options, talk)
	}
	if err != nil {
		return err
	}
	place, err := locateWriter(ctx, env, options)
	if err != nil {
		return err
	}
	if err := place.inspectRing(); err != nil {
		return asUsage(err)
	}
	f := &feed{
		input:    newRecordInput(env.stdin, options.format, int(place.recordLenMax)-record.OverheadLen),
		output:   newAcknowledgements(options.ack, env.stdout),
		talk:     talk,
		window:   options.window,
		deadline: place.options.Deadline,
		policy:   place.options.Policy,
		fullMax:  options.deadline,
		stall:    newStall(),
		classify: classifier(options.isFIX, options.class, options.keyField),
	}
	// The first append of a writer begins an epoch: it is opened for a record that is there and good, not for nothing.
	if isMore, err := f.fill(ctx); err != nil || !isMore {
		if err == nil {
			err = asUsage(place.checkByAgent())
		}
		if err == nil {
			talk.printf("no record was read: nothing was appended, and the ring was not opened")
		}
		return err
	}
	if f.writer, place, err = openWriter(ctx, env, options, place, talk); err != nil {
		return asUsage(err)
	}
	f.beat = options.heartbeat
	f.watchWriter(place.uri)
	talk.opened(place.uri, f.writer.Contract(), place.options.Level, f.writer.Recovery())
	stop, err := f.follow(ctx, env, options, place)
	if err != nil {
		return err
	}
	defer stop()
	err = f.run(ctx)
	return finishAppend(f, place.countedBy(), err)
}

// follow learns of changes of a stream while it is written. A ring that was named by its URI is nobody's to change.
func (f *feed) follow(ctx context.Context, env *environment, options appendOptions, place writerPlace) (stop func(),
	err error,
) {
	if options.stream == "" {
		return func() {}, nil
	}
	client, err := env.dialControlOnce()
	if err != nil {
		return nil, err
	}
	following, cancel := context.WithCancel(ctx)
	followWriter := func() {
		if hasMembers(place.uri) {
			go followMembers(following, env, client, options, f.writer, f.writer.Cursors().Epoch)
		}
	}
	followWriter()
	f.changes = &reconfiguration{
		stream: followStream(following, client, options.stream), options: options, level: place.granted, talk: f.talk,
		reopen: func() (isOpen bool, err error) {
			if isOpen, err = f.reopen(ctx, env, options); isOpen {
				followWriter()
			}
			return isOpen, err
		},
	}
	f.reportClosed = func(epoch uint32) {
		if err := reportClosed(context.WithoutCancel(ctx), env, client, options, epoch); err != nil {
			f.talk.printf("the control plane was not informed that the writer of %s has closed: %s", options.stream,
				oneLine(err))
		}
	}
	return func() { cancel(); _ = client.Close() }, nil
}

// watchWriter has the goroutine that watches for stalls see this writer.
func (f *feed) watchWriter(uri string) {
	watched := &watchedWriter{writer: f.writer, uri: uri}
	if needed, uris := farlog.MemberURIs(uri); len(uris) > 1 {
		watched.needed, watched.uris = needed, uris
	}
	f.watched.Store(watched)
}

// isOwn tells counters of this writer from those of one on this host that has taken the ring over since.
func (f *feed) isOwn(counters *farlog.Counters) bool {
	return counters.Epoch() == uint64(f.writer.Cursors().Epoch) && counters.Pid() == uint64(os.Getpid())
}

// finishAppend prints what was acknowledged also when the feed failed.
func finishAppend(f *feed, ringUUID *[16]byte, err error) error {
	err = errors.Join(err, f.output.flush())
	var counters *farlog.Counters
	if ringUUID != nil {
		counters, _ = farlog.ReadCounters("", *ringUUID) // none: the summary goes without latencies
	}
	if counters != nil && !f.isOwn(counters) {
		counters = nil
	}
	f.talk.summary(&f.count, f.writer.Contract(), counters, f.stall.longest)
	epoch, closeErr := f.writer.Cursors().Epoch, f.writer.Close()
	if closeErr == nil && f.reportClosed != nil {
		f.reportClosed(epoch)
	}
	if err == nil && closeErr != nil {
		err = fmt.Errorf("close ring: %w", closeErr)
	}
	if err == nil && f.count.refused > 0 {
		err = fmt.Errorf("%d records were refused because the ring was full (policy reject)", f.count.refused)
	}
	return err
}
