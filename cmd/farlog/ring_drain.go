//go:build cgo

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/farlog/farlog/pkg/config"
	"github.com/farlog/farlog/pkg/drain"
	"github.com/farlog/farlog/pkg/store"
)

type drainOptions struct {
	keys         storeKeys
	stream       string
	segmentBytes uint64
	isFollowing  bool
}

func newRingDrainCommand(env *environment) *cobra.Command {
	options := drainOptions{segmentBytes: store.SegmentBytesDefault}
	command := &cobra.Command{
		Use:   "drain URI STORE",
		Short: "Move the records of a ring into a store, without the control plane",
		Long: `Moves what is in a ring into a store, which is made when it is not there, releases the space in the ring,
and ends when nothing is left. It does what farlogd drain does with a ring that it was assigned, in the same order: what
is released is synced in the store. A ring that is drained by somebody else is refused. A store that has less than the
ring has released is refused: drain into the one that has the rest.`,
		Example: `  farlog ring drain mem:/var/lib/farlog/orders.ring data/store
  farlog ring drain mem:rescued.ring data/store --stream desk7/orders -f`,
		Args: exactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runDrain(cmd.Context(), env, args[0], args[1], options)
		},
	}
	flags := command.Flags()
	flags.StringVar(&options.stream, "stream", "", "name in the store; default: that of the ring")
	flags.Var((*config.SizeValue)(&options.segmentBytes), "segment-size", "of new segments of the store")
	options.keys.declare(flags)
	flags.BoolVarP(&options.isFollowing, "follow", "f", false, "go on with what is appended")
	return command
}

func runDrain(ctx context.Context, env *environment, uri, dir string, options drainOptions) error {
	with, err := options.keys.options(dir, store.Options{Create: true, SegmentBytes: int64(options.segmentBytes)})
	if err != nil {
		return err
	}
	opened, err := store.Open(dir, with)
	if err == nil {
		err = opened.CheckKey()
	}
	if err != nil {
		return asUsage(err)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var last drain.Progress
	stuck, idle := "", 0
	err = drain.Run(ctx, drain.Config{
		RingURI: uri, Stream: options.stream, Store: opened, Logger: slog.New(slog.DiscardHandler),
		OnProgress: func(p drain.Progress) {
			if p.StoredLSN != last.StoredLSN || p.LagBytes > 0 || p.StoredLSN != p.HeadLSN {
				idle = 0
			}
			idle++
			if reason := cmp.Or(p.LastError, p.Suspect); reason != stuck && reason != "" {
				fmt.Fprintf(env.stderr, "drain of %s: %s\n", uri, reason)
				stuck = reason
			}
			last = p
			if !options.isFollowing && (p.Suspect != "" || p.LastError == "" && idle > drainIdleLooks) {
				stop()
			}
		},
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(env.stdout, "stream %s: %d records into %s, up to lsn %d; the ring's head is at lsn %d\n", last.Stream,
		last.Records, dir, last.StoredLSN, last.HeadLSN)
	if last.Suspect != "" {
		return errors.New("the ring is not empty: " + last.Suspect)
	}
	return nil
}

// drainIdleLooks is how often nothing must have been found in the ring, a fifth of a second apart, for it to be empty:
// what its writer has said last may be as old.
const drainIdleLooks = 2
