package main

import (
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/config"
)

func newTenantCommand(env *environment) *cobra.Command {
	group := &cobra.Command{
		Use: "tenant", Short: "See what tenants have, and their quotas", Args: groupArgs,
		RunE: runGroup,
	}
	group.AddCommand(newTenantListCommand(env))
	return group
}

func newTenantListCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use: "list",
		Short: "List tenants: their streams, the bytes of their rings and the rates that they declare, each of its " +
			"quota",
		Long: `A tenant is the part of a stream's name before the first slash, or the whole name where it has none. Quotas are declared in the file of farlog apply (tenants); - is no quota.`,
		Args: exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := env.dialControl()
			if err != nil {
				return err
			}
			defer client.Close()
			ctx, cancel := context.WithTimeout(cmd.Context(), client.timeout)
			defer cancel()
			answer, err := client.GetFabric(ctx, &api.GetFabricRequest{})
			if err != nil {
				return client.explain(ctx, "", err)
			}
			if env.isJSON() {
				return env.writeProto(&api.GetFabricResponse{Tenants: answer.Tenants, Revision: answer.Revision})
			}
			table := tabwriter.NewWriter(env.stdout, 0, 0, 2, ' ', 0)
			fmt.Fprintln(table, "TENANT\tSTREAMS\tOF\tRING BYTES\tOF\tRECORDS/S\tOF\tBYTES/S\tOF")
			for _, one := range answer.Tenants {
				quota := one.GetQuota()
				tableRow(table, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", one.Name, one.Streams,
					numberText(quota.GetStreamsMax()), config.FormatSize(one.RingBytes),
					dashed(sizeOrNothing(quota.GetRingBytesMax())), numberText(one.RecordsPerSecond),
					numberText(quota.GetRecordsPerSecondMax()),
					dashed(sizeOrNothing(one.BytesPerSecond)), dashed(sizeOrNothing(quota.GetBytesPerSecondMax())))
			}
			return table.Flush()
		},
	}
}
