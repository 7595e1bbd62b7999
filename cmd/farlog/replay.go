package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/farlog/farlog/pkg/query"
	"github.com/farlog/farlog/pkg/store"
)

const (
	replayLines          = "lines"
	replayLengthPrefixed = "length-prefixed"
	replayJSON           = "json"
	// A wait shorter than this is not worth the sleep: the record goes out at once.
	replayWaitMin = 100 * time.Microsecond
)

type replayOptions struct {
	stream   string
	from, to string
	speed    string
	format   string
	isMerged bool
	decrypt  decryptOptions
	records  recordFilter

	factor float64       // 0 = as fast as possible
	wanted query.Request // of the records of the streams
}

func newReplayCommand(env *environment) *cobra.Command {
	var options replayOptions
	command := &cobra.Command{
		Use:   "replay STORE {--stream NAME | --merged} [flags]",
		Short: "Write the payloads of a stream, or of all in one order, to standard output, at their original pace",
		Long: `Writes the payloads of the application's records between two times to standard output, in order, each
at the time after the first one that its timestamp says, divided by the speed. It needs no daemon.

T is an RFC 3339 time, nanoseconds since 1970, or relative: -15m is a quarter of an hour ago, +15m a quarter of an
hour after the first record of the stream. --from is included, --to is not. Where the clock was set back in between,
all records of that time are written, in the order of the stream.

With --format lines each payload is followed by a newline; length-prefixed puts 4 bytes of little-endian length in
front of each, for payloads that hold newlines. Both are what farlog append reads.

--merged replays all streams in the one order that farlog merge has made; times are those of the order. --format json
adds to each record its origin (stream, generation, epoch, lsn, seq), its position in the order, and whether it was
late. That records of the time asked for were removed by retention is said on standard error, in every
format.

--class, --key and --filter leave out other records, as farlog query does; the records that are left keep their pace.
A record for which the expression cannot be evaluated is a failure, as it is there.` + archivePathText,
		Example: `  farlog replay data/store --stream desk7/orders --speed 10x
  farlog replay data/store --stream desk7/orders --from 2026-11-20T14:30:00Z --to 2026-11-20T14:31:00Z --speed max`,
		Args: exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := options.validate(); err != nil {
				return err
			}
			return runReplay(cmd.Context(), env, args[0], options)
		},
	}
	flags := options.decrypt.register(command)
	flags.StringVar(&options.stream, "stream", "", "`name` of the stream")
	flags.StringVar(&options.from, "from", "", "`time` of the first record (default: the stream's first)")
	flags.StringVar(&options.to, "to", "", "`time` to stop before (default: the stream's end)")
	flags.StringVar(&options.speed, "speed", "1x", "`pace`: 1x, 10x, 0.5x, or max")
	flags.StringVar(&options.format, "format", replayLines, "`form` of the output: lines, length-prefixed, or json")
	flags.BoolVar(&options.isMerged, "merged", false, "all streams, in the order of farlog merge")
	options.records.declare(flags)
	return command
}

func (o *replayOptions) validate() error {
	if (o.stream == "") != o.isMerged {
		return usageErrorf("replay: --stream %q: expected the name of a stream, or --merged for all", o.stream)
	}
	if !slices.Contains([]string{replayLines, replayLengthPrefixed, replayJSON}, o.format) {
		return usageErrorf("--format %q: expected %s, %s or %s", o.format, replayLines, replayLengthPrefixed,
			replayJSON)
	}
	for _, bound := range []struct{ flag, text string }{{"--from", o.from}, {"--to", o.to}} {
		if _, err := parseReplayTime(bound.text, time.Time{}, time.Time{}); err != nil {
			return usageErrorf("%s %q: %s", bound.flag, bound.text, err)
		}
	}
	if err := o.records.complete(&o.wanted); err != nil {
		return err
	}
	if o.speed == "max" {
		o.factor = 0
		return nil
	}
	number, isFactor := strings.CutSuffix(o.speed, "x")
	factor, err := strconv.ParseFloat(number, 64)
	if !isFactor || err != nil || !(factor >= 1e-6 && factor <= 1e9) {
		return usageErrorf("--speed %q: expected max or a positive factor such as 1x or 10x", o.speed)
	}
	o.factor = factor
	return nil
}

var errReplayTime = errors.New("expected an RFC 3339 time, nanoseconds since 1970, or a duration such as -15m or +15m")

// parseReplayTime reads a bound; "" is none and gives the zero time.
func parseReplayTime(text string, now, first time.Time) (time.Time, error) {
	switch {
	case text == "":
		return time.Time{}, nil
	case text[0] == '-' || text[0] == '+':
		offset, err := time.ParseDuration(text)
		if err != nil {
			return time.Time{}, errReplayTime
		}
		if text[0] == '-' {
			return now.Add(offset), nil
		}
		return first.Add(offset), nil
	}
	if ns, err := strconv.ParseInt(text, 10, 64); err == nil {
		return time.Unix(0, ns), nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return time.Time{}, errReplayTime
	}
	return t, nil
}

func runReplay(ctx context.Context, env *environment, path string, options replayOptions) error {
	opened, err := openToRead(path)
	if err != nil {
		return err
	}
	reader, err := openReplayed(opened, options)
	if err != nil {
		return err
	}
	defer reader.Close()
	r := &replay{
		ctx: ctx, store: opened.Dir(), reader: reader, out: bufio.NewWriterSize(env.stdout, 64<<10), options: options,
		noted: map[string]uint64{},
	}
	if err := r.seek(); err != nil {
		return err
	}
	if err := r.noteRemoved(env); err != nil {
		return err
	}
	began := time.Now()
	err = r.run()
	if flushErr := r.out.Flush(); err == nil {
		err = flushErr
	}
	if noteErr := r.noteRemoved(env); err == nil { // of what was removed meanwhile, before it was read
		err = noteErr
	}
	fmt.Fprintf(env.stderr, "replayed %d records, %d bytes, spanning %s, in %s\n", r.count, r.bytes,
		r.last.Sub(r.first).Round(time.Microsecond), time.Since(began).Round(time.Millisecond))
	return err
}

// replay writes payloads at their pace.
type replay struct {
	ctx     context.Context
	store   string
	reader  replayReader
	out     *bufio.Writer
	options replayOptions

	noted       map[string]uint64 // by stream: the segment that it was said to begin at
	window      store.Window
	began       time.Time
	first, last time.Time // of the records written
	count       uint64
	bytes       uint64
}

// seek finds the bounds and goes to the first record.
func (r *replay) seek() error {
	var first time.Time
	if strings.HasPrefix(r.options.from, "+") || strings.HasPrefix(r.options.to, "+") {
		item, err := r.reader.Next()
		if err != nil && err != io.EOF {
			return err
		}
		first = item.at
		if err := r.reader.SeekStart(); err != nil {
			return err
		}
	}
	now := time.Now()
	from, err := parseReplayTime(r.options.from, now, first)
	if err != nil {
		return err
	}
	to, err := parseReplayTime(r.options.to, now, first)
	if err != nil {
		return err
	}
	r.window, err = windowOf(timeBound{r.options.from, from}, timeBound{r.options.to, to})
	if err != nil || r.window == (store.Window{}) {
		return err
	}
	return r.reader.SeekWindow(r.window)
}

// noteRemoved names the streams of which records were removed that may have been in the time asked for. Of one that it
// has named it is silent as long as no more were.
func (r *replay) noteRemoved(env *environment) error {
	bases, err := r.reader.Bases()
	if err != nil {
		return err
	}
	for _, base := range bases {
		if base.HasRemovedTime(r.window.From) && r.noted[base.Stream] != base.Segment {
			env.noteRemoved(base)
			r.noted[base.Stream] = base.Segment
		}
	}
	return nil
}

func (r *replay) run() error {
	for {
		item, err := r.reader.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		ts := item.timestamp()
		if r.options.isMerged && r.window.To != 0 && ts >= r.window.To {
			return nil // times of the order do not go back
		}
		isWanted := r.window.Has(ts)
		if isWanted {
			if isWanted, err = r.isWanted(item); err != nil {
				return err
			}
		}
		if !isWanted {
			if err := r.ctx.Err(); err != nil {
				return err
			}
			continue
		}
		if err := r.pace(item.at); err != nil {
			return err
		}
		if err := r.write(item); err != nil {
			return err
		}
	}
}

// isWanted asks the filter. A record for which it cannot be evaluated is an error, and never one that is left out.
func (r *replay) isWanted(item replayed) (bool, error) {
	row := query.Row{Store: r.store, Stream: item.stream, Item: item.Item}
	isWanted, err := r.options.wanted.Wants(r.ctx, &row)
	if err != nil {
		err = fmt.Errorf("stream %s, lsn %d: %w", item.stream, item.LSN, err)
	}
	return isWanted, err
}

// pace waits until a record is due. What is due already goes out without a wait, so that a slow reader of the output or
// a clock that was set back never makes a pause of its own.
func (r *replay) pace(at time.Time) error {
	if r.count == 0 {
		r.first, r.began = at, time.Now()
	}
	r.last = at
	if r.options.factor == 0 {
		return r.ctx.Err()
	}
	due := r.began.Add(time.Duration(float64(at.Sub(r.first)) / r.options.factor))
	wait := time.Until(due)
	if wait < replayWaitMin {
		return r.ctx.Err()
	}
	if err := r.out.Flush(); err != nil {
		return err
	}
	select {
	case <-r.ctx.Done():
		return r.ctx.Err()
	case <-time.After(wait):
		return nil
	}
}

func (r *replay) write(item replayed) error {
	payload := item.Payload
	r.count++
	r.bytes += uint64(len(payload))
	if r.options.format == replayJSON {
		return item.writeJSON(r.out)
	}
	if r.options.format == replayLengthPrefixed {
		var length [4]byte
		binary.LittleEndian.PutUint32(length[:], uint32(len(payload)))
		if _, err := r.out.Write(length[:]); err != nil {
			return err
		}
		_, err := r.out.Write(payload)
		return err
	}
	if _, err := r.out.Write(payload); err != nil {
		return err
	}
	return r.out.WriteByte('\n')
}
