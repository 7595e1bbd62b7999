//go:build cgo

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/farlog/farlog/pkg/config"
	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/store"
)

func newRingSalvageCommand(env *environment) *cobra.Command {
	var how store.SalvageOptions
	var keys storeKeys
	segmentBytes := uint64(store.SegmentBytesDefault)
	command := &cobra.Command{
		Use:   "salvage URI STORE --who WHO --why WHY",
		Short: "Copy what is sound of a damaged ring into a store",
		Long: `Copies all records of a damaged ring that can be read into the stream's store, also those behind the
damage, behind what the store has already; a store is made when none is there. In the place of each acknowledged
record that cannot be read it writes a GAP record of the same lsn and seq, with the cause, WHO and WHY. No byte of the
ring is changed. Stop the writer and the drain of the ring first; a ring that either holds is refused, and so is a
store that has less than the ring has released.

Behind the last record that is known to be durable the ring is copied up to the first damage only: a crash of the
writer leaves torn records there. --with-tail copies what is whole behind those as well.

Exit code 0: everything up to the end of the log is in the store, or a GAP record in its place, and the ring may be
formatted again (farlog ring format URI --force, with the same --stream): writer and drain go on in it. A stream of a
control plane is created again, with its store.

Exit code 1: it is not proved that the log ends where the copy does; the text says why. Do not format the ring: it may
have acknowledged records that the store has not.`,
		Example: `  farlog ring salvage mem:/var/lib/farlog/orders.ring data/store --who 'J. Doe' --why 'bad cell'
  farlog ring format mem:/var/lib/farlog/orders.ring --stream desk7/orders --force`,
		Args: exactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if how.By == "" || how.Why == "" {
				return usageErrorf("ring salvage: --who %q, --why %q: expected both: they come into the GAP records",
					how.By, how.Why)
			}
			options, err := keys.options(args[1], store.Options{Create: true, SegmentBytes: int64(segmentBytes)})
			if err != nil {
				return err
			}
			report, err := salvageRing(cmd.Context(), args[0], args[1], options, how)
			if err != nil {
				return asUsage(err)
			}
			return printSalvage(env, []store.SalvageReport{report})
		},
	}
	flags := command.Flags()
	flags.StringVar(&how.By, "who", "", "`name` of who orders it")
	flags.StringVar(&how.Why, "why", "", "`reason`")
	flags.BoolVar(&how.WithTail, "with-tail", false, "copy what is whole behind torn records at the end as well")
	flags.Var((*config.SizeValue)(&segmentBytes), "segment-size", "of new segments of the store")
	keys.declare(flags)
	return command
}

// salvageRing holds the ring's drain lock while the ring is read.
func salvageRing(ctx context.Context, uri, dir string, options store.Options, how store.SalvageOptions) (
	report store.SalvageReport, err error,
) {
	path, isFile := strings.CutPrefix(uri, "mem:")
	if !isFile || strings.Contains(path, "?") {
		return report, usageErrorf("ring salvage %s: expected mem:PATH, a file with one ring", uri)
	}
	status, err := farlog.Inspect(uri)
	if err != nil {
		return report, err
	}
	if status.WriterHeld {
		return report, fmt.Errorf("ring %s: a writer holds it: stop it first", uri)
	}
	drain, err := farlog.OpenReader(uri, farlog.ReaderOptions{Drain: true})
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, drain.Close()) }()
	image, file, err := openImage(path)
	if err != nil {
		return report, err
	}
	defer file.Close()
	into, err := store.Open(dir, options)
	if err != nil {
		return report, err
	}
	if err := into.CheckKey(); err != nil {
		return report, err
	}
	return into.SalvageRing(ctx, image, how)
}
