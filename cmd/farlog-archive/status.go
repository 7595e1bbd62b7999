package main

import (
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/farlog/farlog/pkg/archive"
	"github.com/farlog/farlog/pkg/store"
)

const statusText = `Asks the archive and the store how far each stream is archived: which sealed segments are not yet,
how many bytes they have, and how long the oldest of them waits.`

func newStatusCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use: "status STORE", Short: "Print how far a store is archived", Long: statusText, Args: exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			opened, err := store.Open(args[0], store.Options{})
			if err != nil {
				return err
			}
			bucket, err := env.open()
			if err != nil {
				return err
			}
			list, err := archive.Status(cmd.Context(), opened, bucket)
			if err != nil {
				return err
			}
			if env.isJSON() {
				return env.writeJSON(list)
			}
			table := tabwriter.NewWriter(env.stdout, 0, 8, 2, ' ', 0)
			fmt.Fprintln(table, "STREAM\tSEALED\tARCHIVED\tLAG BYTES\tLAG")
			for _, p := range list {
				fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%s\n", p.Stream, p.Sealed, p.Archived, p.LagBytes,
					p.Lag(time.Now()).Round(time.Second))
			}
			return table.Flush()
		},
	}
}
