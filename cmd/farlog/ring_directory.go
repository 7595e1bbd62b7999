//go:build cgo

package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/farlog/farlog/pkg/farlog"
)

func newRingListCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:   "list URI",
		Short: "List the rings of a region that holds many",
		Example: `  farlog ring list mem:/dev/dax0.0
  farlog ring list nvme:/dev/nvme2n1`,
		Args: exactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			listed, err := farlog.ListRegion(args[0])
			if err != nil {
				return asUsage(err)
			}
			if env.isJSON() {
				return json.NewEncoder(env.stdout).Encode(regionJSON(args[0], listed))
			}
			table := env.newTable()
			fmt.Fprintln(table, "RING\tOFFSET\tSIZE\tSTATE\tCREATED")
			for _, ring := range listed.Rings {
				tableRow(table, "%s\t%d\t%d\t%s\t%s\n", ring.Name, ring.OffsetBytes, ring.SizeBytes, ring.State,
					timeText(ring.Created))
			}
			if err := table.Flush(); err != nil {
				return err
			}
			fmt.Fprintf(env.stderr, "%d of %d bytes are free, the largest ring that can be made has %d\n",
				listed.FreeBytes, listed.SizeBytes, listed.LargestFreeBytes)
			return nil
		},
	}
}

func regionJSON(uri string, listed farlog.RegionStatus) map[string]any {
	rings := []map[string]any{}
	for _, ring := range listed.Rings {
		rings = append(rings, map[string]any{
			"name": ring.Name, "offset_bytes": ring.OffsetBytes,
			"size_bytes": ring.SizeBytes, "state": ring.State.String(),
			"created": timeText(ring.Created),
		})
	}
	return map[string]any{
		"uri": uri, "size_bytes": listed.SizeBytes, "free_bytes": listed.FreeBytes,
		"largest_free_bytes": listed.LargestFreeBytes, "rings": rings,
	}
}

func newRingRemoveCommand(env *environment) *cobra.Command {
	var isForced bool
	command := &cobra.Command{
		Use:   "remove URI",
		Short: "Take a ring out of its region's directory, or remove the file that it has for itself",
		Long: "Frees its space for another ring. Refused while a writer, a drain or a fence uses it, or while it " +
			"holds records that are not drained.",
		Example: `  farlog ring remove 'nvme:/dev/nvme2n1?ring=desk7/orders'`,
		Args:    exactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := farlog.RemoveRing(args[0], isForced); err != nil {
				return asUsage(err)
			}
			fmt.Fprintf(env.stdout, "ring %s is removed\n", args[0])
			return nil
		},
	}
	command.Flags().BoolVar(&isForced, "force", false, "remove it with the records that are not drained")
	return command
}
