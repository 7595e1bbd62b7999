package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/farlog/farlog/pkg/merge"
	"github.com/farlog/farlog/pkg/store"
)

type mergeOptions struct {
	keys                         storeKeys
	late, ahead                  time.Duration
	isFollowing, isFinal, isAnew bool
}

func newMergeCommand(env *environment) *cobra.Command {
	var options mergeOptions
	command := &cobra.Command{
		Use:   "merge STORE [flags]",
		Short: "Put the streams of a store into one order, the same on every rerun",
		Long: `Puts the records of all streams into one order, by (time, stream, seq), beside the store's segments in
STORE/merged, and prints up to where. farlog replay --merged reads it, farlog verify checks it.

A record goes into the order when every stream has delivered a later one. The merge stops waiting for a stream that
delivers nothing for --late. When such a stream then delivers a record of an earlier time, the merge puts the record
at the end of the order and marks it late. It stores these decisions, so that every rebuild of the order is the same,
byte for byte. A run resumes where the last one ended, killed or not.

Without a flag it merges what can be merged now and ends; it does not wait for a stream that has no record yet.
--final declares that every stream is complete, such as after the close of a day. With -f it follows the store, as
farlogd drain --merge-late does. --rebuild builds a damaged order again from the records and the decisions, beside the
present one, which stays when it has more entries; with -f it waits until the new one has as many, and then follows
the store.`,
		Example: `  farlog merge data/store
  farlog merge data/store --final
  farlog replay data/store --merged --speed max`,
		Args: exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if options.isFinal && options.isFollowing {
				return usageErrorf("merge: --final and -f: expected one of them")
			}
			if options.late <= 0 || options.ahead <= 0 {
				return usageErrorf("merge: --late %s, --ahead %s: expected positive durations", options.late,
					options.ahead)
			}
			return runMerge(cmd.Context(), env, args[0], options)
		},
	}
	flags := command.Flags()
	flags.DurationVar(&options.late, "late", merge.LateLimitDefault,
		"`duration` to wait for a stream that has no new record")
	flags.DurationVar(&options.ahead, "ahead", merge.AheadLimitDefault, "how far ahead of this host's clock a "+
		"record's time may be; a record that is further ahead is marked early, and its time is not used")
	options.keys.declare(flags)
	flags.BoolVarP(&options.isFollowing, "follow", "f", false, "follow the store")
	flags.BoolVar(&options.isFinal, "final", false, "merge all records: every stream is complete")
	flags.BoolVar(&options.isAnew, "rebuild", false,
		"build the order again from the records and the decisions, and replace the present one")
	return command
}

// mergeResult is what --output json prints.
type mergeResult struct {
	Streams   int       `json:"streams"`
	Entries   uint64    `json:"entries"`
	NextIndex uint64    `json:"next_index"`
	Late      uint64    `json:"late"`
	Early     uint64    `json:"early"`
	OrderTime time.Time `json:"order_time"`
	WaitsFor  string    `json:"waits_for,omitempty"`
}

func runMerge(ctx context.Context, env *environment, path string, options mergeOptions) error {
	opened, err := openSigningStore(path, &options.keys)
	if err != nil {
		return err
	}
	limits := merge.Options{LateLimit: options.late, AheadLimit: options.ahead}
	if options.isAnew {
		progress, err := merge.Rebuild(ctx, opened, limits, options.until())
		if errors.Is(err, context.Canceled) {
			return fmt.Errorf("interrupted: the order that is there stays as it is")
		}
		if err != nil {
			return explainMerge(err)
		}
		if !options.isFollowing {
			return printMerge(env, progress)
		}
	}
	merger, err := merge.Open(opened, limits)
	if err != nil {
		return explainMerge(err)
	}
	switch {
	case options.isFollowing:
		err = merger.Run(ctx, nil)
	case options.isFinal:
		err = merger.Finish(ctx)
	default:
		err = merger.Now(ctx)
	}
	if errors.Is(err, context.Canceled) {
		err = nil // interrupted: what is done is done
	}
	progress := merger.Progress()
	if closeErr := merger.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return explainMerge(err)
	}
	return printMerge(env, progress)
}

func (o mergeOptions) until() merge.Until {
	switch {
	case o.isFollowing:
		return merge.UntilAsFar
	case o.isFinal:
		return merge.UntilEnd
	}
	return merge.UntilNow
}

func explainMerge(err error) error {
	if errors.Is(err, merge.ErrShort) {
		return fmt.Errorf("%w; it stays as it is: --rebuild --final merges all that is stored, --rebuild -f waits "+
			"for more records", err)
	}
	if errors.Is(err, store.ErrCorrupt) {
		return fmt.Errorf("%w; when farlog verify finds the streams whole, farlog merge --rebuild builds the order "+
			"again",
			err)
	}
	return err
}

func printMerge(env *environment, p merge.Progress) error {
	result := mergeResult{p.Streams, p.Entries, p.NextIndex, p.Late, p.Early, p.OrderTime, p.WaitsFor}
	if env.isJSON() {
		return writeJSON(env.stdout, result)
	}
	return result.writeTable(env.stdout)
}

func (m mergeResult) writeTable(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "STREAMS\tADDED\tIN ORDER\tLATE\tEARLY\tUP TO\tWAITS FOR")
	tableRow(table, "%d\t%d\t%d\t%d\t%d\t%s\t%s\n", m.Streams, m.Entries, m.NextIndex, m.Late, m.Early,
		recordTimeText(m.OrderTime), orDash(m.WaitsFor))
	return table.Flush()
}
