//go:build cgo

package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	apiv1 "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/config"
	"github.com/farlog/farlog/pkg/consume"
	"github.com/farlog/farlog/pkg/farlog"
)

const (
	tailPollInterval   = 5 * time.Millisecond
	tailCommitInterval = time.Second
	tailAwayPause      = 200 * time.Millisecond
	tailWaitDefault    = 10 * time.Second
	formatJSON         = "json"
	formatRaw          = "raw"
	fromHead           = "head"
	fromEnd            = "end"
	fromOldest         = "oldest"
)

type tailOptions struct {
	stream, ring, tokenFile string
	store                   string
	format, from            string
	classes                 []uint
	keys                    []string
	name, state             string
	transport               string // to the ring of a stream
	isFollowing             bool
	decrypt                 decryptOptions
	wait                    time.Duration

	start consume.Start
	since time.Time
}

func newTailCommand(env *environment) *cobra.Command {
	options := tailOptions{wait: tailWaitDefault}
	command := &cobra.Command{
		Use: "tail {NAME | farlog://NAME | --ring URI} [flags]",
		Short: "Print the records of a stream: what lies in its ring, what is in a store before that, and what is " +
			"appended",
		Long: `Prints the records in the ring: those that were appended and not yet drained. With --store it begins in
the store, at --from, and continues in the ring without a gap and without a duplicate. With -f it follows new records.

A line is: time, seq, class, key, payload; the FIX separator is shown as |. --format raw writes payloads alone, each
with a newline. --class and --key select records; farlog's own records are not printed then.

tail delays neither writer nor drain. When the drain releases records before they were printed, tail names them on
stderr and reads them from the store; without --store it skips them and says so. With --name it saves its position and
resumes there the next time: after a kill it prints the records of the last second again.

The ring of a stream that is on another host is read by a reader's grant, which the control plane gives to the role
replay and renews while tail runs; when the control plane gives no new grant, tail says so and reads on until the
grant expires. The ring of --ring is read by a grant in --token-file. farlog://NAME asks the host agent (farlogd host)
for it, and needs no certificate. Readers take no lock.`,
		Example: `  farlog tail desk7/orders -f
  farlog tail desk7/orders --store data/store --from oldest --class 2 --key ORD-17
  farlog tail farlog://desk7/orders -f
  farlog tail --ring mem:/dev/shm/orders --store data/store --name desk-risk -f`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usageErrorf("tail: unexpected argument %q: expected one stream", args[1])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				if options.stream != "" {
					return usageErrorf("tail: %q and --stream %q: expected one of them", args[0], options.stream)
				}
				options.stream = args[0]
			}
			if isAgentURI(options.stream) {
				options.ring, options.stream = options.stream, ""
			}
			if err := options.validate(env); err != nil {
				return err
			}
			return runTail(cmd.Context(), env, options)
		},
	}
	flags := options.decrypt.register(command)
	flags.StringVar(&options.stream, "stream", "",
		"`name` of the stream, the same as NAME; the control plane knows its ring")
	flags.StringVar(&options.ring, "ring", "", "`URI` of a ring, mem:/path; needs no control plane. Or farlog://NAME")
	flags.StringVar(&options.tokenFile, "token-file", "", "`file` with a reader's grant of a ring on another host")
	flags.StringVar(&options.store, "store", "",
		"`directory` of the store that the stream is drained into; records that the ring no longer has are read from "+
			"it")
	flags.StringVar(&options.format, "format", formatLines, "lines, json or raw")
	flags.StringVar(&options.from, "from", fromHead, "where to begin: head (the oldest undrained record), end, "+
		"oldest (in the store), or a `time`: RFC 3339, or -15m for a quarter of an hour ago")
	flags.UintSliceVar(&options.classes, "class", nil, "only records of this class; may be repeated")
	flags.StringSliceVar(&options.keys, "key", nil, "only records with this key; may be repeated")
	flags.StringVar(&options.name, "name", "",
		"`name` under which the position is saved, such as desk-risk; overrides --from")
	flags.StringVar(&options.transport, "transport", "", "`transport` to the ring of a stream: verbs or ofi (default: "+
		"the ring itself where it is on this host, else the fastest)")
	flags.StringVar(&options.state, "state-dir", "",
		"`directory` of saved positions (default: farlog in XDG_STATE_HOME, or in ~/.local/state)")
	flags.Var((*config.DurationValue)(&options.wait), "wait",
		"longest wait for the stream's rings, and for the first writer of a stream with several (0: do not wait)")
	flags.BoolVarP(&options.isFollowing, "follow", "f", false, "follow new records")
	return command
}

func (o *tailOptions) validate(env *environment) error {
	if o.stream == "" && o.ring == "" {
		return usageErrorf("tail: expected the name of a stream or --ring URI")
	}
	if o.transport != "" && o.ring != "" {
		return usageErrorf("--transport %q: the URI of --ring says it; expected only with a stream", o.transport)
	}
	if !isOneOf(o.transport, []string{"", "verbs", "ofi"}) {
		return usageErrorf("--transport %q: expected verbs or ofi", o.transport)
	}
	if env.isJSON() {
		o.format = formatJSON
	}
	if !isOneOf(o.format, []string{formatLines, formatJSON, formatRaw}) {
		return usageErrorf("--format %q: expected lines, json or raw", o.format)
	}
	for _, class := range o.classes {
		if class > 0xFFFF {
			return usageErrorf("--class %d: expected 0 to 65535", class)
		}
	}
	return o.parseFrom()
}

func (o *tailOptions) parseFrom() error {
	switch o.from {
	case fromHead:
		o.start = consume.StartHead
		return nil
	case fromEnd:
		o.start = consume.StartEnd
		return nil
	case fromOldest:
		o.start = consume.StartOldest
	default:
		since, err := parseReplayTime(o.from, time.Now(), time.Time{})
		if err != nil || o.from == "" || o.from[0] == '+' {
			return usageErrorf("--from %q: expected head, end, oldest, an RFC 3339 time, or a duration such as -15m",
				o.from)
		}
		o.start, o.since = consume.StartTime, since
	}
	if o.store == "" {
		return usageErrorf("--from %s: expected --store as well: what is drained is there", o.from)
	}
	return nil
}

// explainMissing tells that the ring of a stream is on the target's host.
func explainMissing(err error, stream string) error {
	if stream != "" && errors.Is(err, farlog.ErrNotFound) {
		return fmt.Errorf("%w: the ring of stream %q is on its target's host: run farlog tail there; what was "+
			"drained is in the store (farlog dump, farlog replay)", err, stream)
	}
	return err
}

// tailer prints what a consumer gives.
type tailer struct {
	env       *environment
	consumer  *consume.Consumer
	printer   recordPrinter
	committed time.Time
	isAway    bool
	renewal   *tailRenewal // of a grant of the control plane; nil: there is none to be renewed
	slow      *slowReporter
	options   tailOptions
	until     time.Time // it waits for a log to be there
}

func runTail(ctx context.Context, env *environment, options tailOptions) error {
	t := &tailer{
		env: env, options: options, until: time.Now().Add(options.wait),
		printer: recordPrinter{format: options.format, writer: bufio.NewWriterSize(env.stdout, 64<<10)},
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // with it what renews the grant ends
	config, err := t.configure(ctx, options)
	if err != nil {
		if errors.Is(ctx.Err(), context.Canceled) { // somebody ended it: as later, that is no failure
			return nil
		}
		return err
	}
	if config.Position != nil {
		defer config.Position.Close()
	}
	if t.consumer, err = t.open(ctx, config); err != nil {
		if errors.Is(ctx.Err(), context.Canceled) {
			return nil
		}
		return explainMissing(asUsage(err), options.stream)
	}
	defer t.consumer.Close()
	for ctx.Err() == nil {
		if err := t.renewal.applyRenewal(t); err != nil {
			return errors.Join(err, t.commit())
		}
		isMore, err := t.step()
		if err != nil {
			return errors.Join(err, t.commit())
		}
		if isMore {
			continue
		}
		if err := t.commit(); err != nil || !options.isFollowing {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(tailPollInterval):
		}
	}
	return t.commit()
}

// configure finds ring, store and position.
func (t *tailer) configure(ctx context.Context, options tailOptions) (consume.Config, error) {
	config := consume.Config{
		RingURI: options.ring, Stream: options.stream, Start: options.start, Time: options.since,
		OnNotice: t.notice,
	}
	var err error
	if config.Decrypter, err = options.decrypt.openStream(); err != nil {
		return config, err
	}
	if config.RingURI == "" {
		place, err := t.locate(ctx, options)
		if err != nil {
			return config, err
		}
		config.RingURI, config.Token, config.Members = place.uri, place.options.Token, place.options.Members
		t.renewal = startRenewing(ctx, t.env, options, place)
		t.slow = newSlowReporter(ctx, t.env, nil, options.stream)
	}
	var place writerPlace
	switch {
	case !isRemoteURI(config.RingURI), config.Token != nil, config.Members != nil:
	case options.tokenFile == "":
		return config, usageErrorf("--ring %q is on another host: expected --token-file with a reader's grant, or "+
			"farlog tail on the target's host; what was drained is in the store (farlog dump, farlog replay)",
			config.RingURI)
	default:
		if err := place.readToken(options.tokenFile); err != nil {
			return config, err
		}
		config.Token, config.Members = place.options.Token, place.options.Members
	}
	if isAgentURI(config.RingURI) {
		config.Stream, _, _ = strings.Cut(strings.TrimPrefix(config.RingURI, agentScheme), "?")
	}
	if config.Stream == "" {
		status, err := inspectAny(config.RingURI)
		if err != nil {
			return config, asUsage(err)
		}
		config.Stream = status.StreamName
	}
	config.Filter = consume.Filter{Keys: options.keys, IsControl: len(options.keys) == 0 && len(options.classes) == 0}
	for _, class := range options.classes {
		config.Filter.Classes = append(config.Filter.Classes, uint16(class))
	}
	return config, openTailFiles(&config, options)
}

// inspectAny looks at a ring, or of several members at the first that can be looked at: all of them tell the stream's
// name.
func inspectAny(uri string) (status farlog.Status, err error) {
	_, uris := farlog.MemberURIs(uri)
	if len(uris) < 2 {
		return farlog.Inspect(uri)
	}
	for _, one := range uris {
		if status, err = farlog.Inspect(one); err == nil {
			return status, nil
		}
	}
	return status, err
}

// openTailFiles opens the store and takes the position.
func openTailFiles(config *consume.Config, options tailOptions) (err error) {
	if options.store != "" {
		if config.Store, err = openStore(options.store); err != nil {
			return err
		}
	}
	if options.name == "" {
		return nil
	}
	dir := options.state
	if dir == "" {
		if dir = os.Getenv("XDG_STATE_HOME"); dir == "" {
			home, err := os.UserHomeDir()
			if err != nil {
				return fmt.Errorf("--state-dir: %w", err)
			}
			dir = filepath.Join(home, ".local", "state")
		}
		dir = filepath.Join(dir, "farlog")
	}
	config.Position, err = consume.OpenPosition(dir, options.name, config.Stream)
	return asUsage(err)
}

// notice says on stderr what happened to the tail's place. What was printed before is flushed first.
func (t *tailer) notice(n consume.Notice) {
	_ = t.printer.writer.Flush() // says its error again at the next one
	text := n.String()
	if n.Kind == consume.NoticeLost {
		text += "; --store DIR would have them"
	}
	fmt.Fprintln(t.env.stderr, text)
	if n.Kind == consume.NoticeRewound {
		return
	}
	stats, holder := t.consumer.Stats(), t.env.holder(cmp.Or(t.options.name, "farlog tail"))
	t.slow.offer(&apiv1.SlowConsumer{
		Stream: t.options.stream, Holder: holder, LagBytes: stats.LagBytes,
		LostBytes: stats.Lost, Reason: n.String(),
	})
}

// step prints one record. False: there is nothing new.
func (t *tailer) step() (bool, error) {
	item, err := t.consumer.Next()
	switch {
	case errors.Is(err, farlog.ErrNotYet):
		return false, nil
	case errors.Is(err, farlog.ErrIO), t.renewal != nil && errors.Is(err, farlog.ErrInvalid):
		// the second: the grant has ended, and another one is not to be had yet
		if !t.isAway {
			fmt.Fprintf(t.env.stderr, "%v; trying on\n", err)
		}
		t.isAway = true
		time.Sleep(tailAwayPause)
		return false, nil
	case err != nil:
		return false, err
	}
	t.isAway = false
	if err := t.printer.print(item.Header, item.Key, item.Payload); err != nil {
		return false, err
	}
	if now := time.Now(); now.Sub(t.committed) >= tailCommitInterval {
		return true, t.commit()
	}
	return true, nil
}

// commit remembers the position behind what is out of this program.
func (t *tailer) commit() error {
	t.committed = time.Now()
	if err := t.printer.writer.Flush(); err != nil {
		return err
	}
	return t.consumer.Commit()
}
