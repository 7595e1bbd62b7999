package main

import (
	"text/tabwriter"

	"github.com/spf13/cobra"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/config"
)

func newTenantCommand(env *environment) *cobra.Command {
	return newGroup("tenant", "Show what tenants use, and their quotas", newTenantListCommand(env))
}

func newTenantListCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use: "list",
		Short: "List tenants: their streams, the bytes of their rings and the rates that they declare, each of its " +
			"quota",
		Long: `A tenant is the part of a stream's name before the first slash, or the whole name when it has none. The
file of farlog apply declares quotas (tenants); - means no quota.`,
		Args: exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			answer, err := ask(cmd.Context(), env, "", &api.GetFabricRequest{}, (*controlClient).GetFabric)
			if err != nil {
				return err
			}
			tenants := &api.GetFabricResponse{Tenants: answer.Tenants, Revision: answer.Revision}
			head := "TENANT\tSTREAMS\tOF\tRING BYTES\tOF\tRECORDS/S\tOF\tBYTES/S\tOF"
			return env.writeTable(tenants, head, "", func(table *tabwriter.Writer) {
				for _, one := range answer.Tenants {
					quota := one.GetQuota()
					tableRow(table, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", one.Name, one.Streams,
						numberText(quota.GetStreamsMax()), config.FormatSize(one.RingBytes),
						dashed(sizeOrNothing(quota.GetRingBytesMax())), numberText(one.RecordsPerSecond),
						numberText(quota.GetRecordsPerSecondMax()), dashed(sizeOrNothing(one.BytesPerSecond)),
						dashed(sizeOrNothing(quota.GetBytesPerSecondMax())))
				}
			})
		},
	}
}
