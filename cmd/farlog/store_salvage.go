package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/farlog/farlog/pkg/config"
	"github.com/farlog/farlog/pkg/store"
)

func newStoreSalvageCommand(env *environment) *cobra.Command {
	var how store.SalvageOptions
	var keys storeKeys
	segmentBytes := uint64(store.SegmentBytesDefault)
	command := &cobra.Command{
		Use:   "salvage STORE NEW --who WHO --why WHY",
		Short: "Copy what is sound of a damaged store into a new one",
		Long: `Copies all records of a damaged store that can be read into a new store, also those behind the damage. In
the place of each record that cannot be read it writes a GAP record of the same lsn and seq, with the place of the
damage, the cause, WHO and WHY; a missing segment gives as many GAP records as it had records. The new store is whole:
farlog verify passes, and a drain goes on in it (--store-dir NEW). No byte of the damaged store is changed: keep it.
Stop the drain of the store first.

The new store is made as NEW.salvage and gets its name when it is complete and verified; after an interruption run the
command again. It has a UUID and a key of its own: bind each stream to it with farlog stream rebind. NEW/salvage.json
says, signed, where it came from and what is missing. The merged order and the rules of retention are not copied.

Behind the last mark of a stream records are copied up to the first damage only: the ring may have them all still.
--with-tail copies those behind it too, where a drain has said that the new store has less than the ring has released.

Exit code 1: not all is proved to be what the store held; the text says why, and NEW/salvage.json too. A sealed segment
with a damaged record is such a case: its other records were copied by their CRC-32C, and its SHA-256 is not checked. If
the end of a stream could not be copied, a drain refuses the new store when the ring has released more.`,
		Example: `  farlog store salvage data/store data/store-new --who 'J. Doe' --why 'disk error of 2026-11-28'`,
		Args:    exactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if how.By == "" || how.Why == "" {
				return usageErrorf("store salvage: --who %q, --why %q: expected both: they come into the GAP records",
					how.By, how.Why)
			}
			damaged, err := openStore(args[0])
			if err != nil {
				return err
			}
			options, err := keys.options(args[1], store.Options{SegmentBytes: int64(segmentBytes)})
			if err != nil {
				return err
			}
			reports, err := damaged.Salvage(cmd.Context(), args[1], options, how)
			if err != nil {
				return err
			}
			return printSalvage(env, reports)
		},
	}
	flags := command.Flags()
	flags.StringVar(&how.By, "who", "", "`name` of who orders it")
	flags.StringVar(&how.Why, "why", "", "`reason`")
	flags.BoolVar(&how.WithTail, "with-tail", false, "copy what lies behind damage at the end of a stream, beyond its "+
		"last mark, as well")
	flags.Var((*config.SizeValue)(&segmentBytes), "segment-size", "of the segments of the new store")
	keys.declare(flags)
	return command
}

func printSalvage(env *environment, reports []store.SalvageReport) error {
	var failures []string
	for _, one := range reports {
		if one.Failure != "" {
			failures = append(failures, one.Stream+": "+one.Failure)
		}
	}
	if env.isJSON() {
		if err := env.writeJSON(reports); err != nil {
			return err
		}
	} else {
		for _, one := range reports {
			fmt.Fprintf(env.stdout, "%s: %d records copied\n", one.Stream, one.Records)
			for _, gap := range one.Gaps {
				fmt.Fprintf(env.stdout, "%s: %d records missing, lsn %d to %d: %s, offset %d: %s\n", one.Stream,
					gap.Records, gap.LSN, gap.NextLSN, gap.Segment, gap.Offset, gap.Cause)
			}
			for _, note := range one.Notes {
				fmt.Fprintf(env.stdout, "%s: %s\n", one.Stream, note)
			}
		}
	}
	if len(failures) > 0 {
		return errors.New("not all could be copied: " + strings.Join(failures, "; "))
	}
	return nil
}
