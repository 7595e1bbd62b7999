//go:build cgo

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/farlog/farlog/pkg/farlog"
)

func newRingCutCommand(env *environment) *cobra.Command {
	var lsn uint64
	command := &cobra.Command{
		Use:   "cut URI --at LSN",
		Short: "Accept that a ring has lost acknowledged records",
		Long: `For a ring that cannot be opened because an acknowledged record in it is unreadable. Begins a new epoch
at that record: it and all records behind it are lost. LSN is the LSN in the error message of the failed opening. At
another LSN, and in a ring without an unreadable record, the command changes nothing. First print what is readable:
farlog dump.`,
		Example: `  farlog ring cut mem:/var/lib/farlog/orders.ring --at 73728`,
		Args:    exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("at") {
				return usageErrorf("ring cut: expected --at LSN, as the refused opening names it")
			}
			if err := farlog.Cut(args[0], lsn); err != nil {
				return asUsage(err)
			}
			fmt.Fprintf(env.stdout, "ring %s: cut at lsn %d; what lay from there on is dropped\n", args[0], lsn)
			return nil
		},
	}
	command.Flags().Uint64Var(&lsn, "at", 0, "`lsn` of the unreadable record")
	return command
}
