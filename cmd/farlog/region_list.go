package main

import (
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/config"
)

func newRegionCommand(env *environment) *cobra.Command {
	request := new(api.ListRegionsRequest)
	list := streamListCommand("List the rings of streams: where each is wanted, and what its target sees there",
		`Lists a line for each ring of each stream. STATE is ok, error (the error is shown in place of the ring's
URI), target gone (its last report is shown), or not yet reported. MEMBER counts from 1, as metrics and alerts do; in
--output json it is the API's, which counts from 0. LAG is what is in the ring and not in a store.`,
		func(ctx context.Context, stream string) error {
			request.Stream = stream
			return listRegions(ctx, env, request)
		})
	list.Example = "  farlog region list 'desk7/*' --error"
	flags := list.Flags()
	flags.StringVar(&request.Target, "target", "", "only rings of the target with this `id`")
	flags.StringVar(&request.Host, "host", "", "only rings on this `host`")
	flags.StringVar(&request.Kind, "kind", "", "only rings in regions of this `kind`, such as devdax or file")
	flags.BoolVar(&request.InError, "error", false, "only rings whose target reports an error")
	return newGroup("region", "List the rings of streams: where they are, and their state", list)
}

func listRegions(ctx context.Context, env *environment, request *api.ListRegionsRequest) error {
	all, err := listAll(ctx, env, request, (*controlClient).ListRegions)
	if err == nil && len(all.Regions) == 0 {
		err = env.mayBeEmpty(ctx, request.Stream)
	}
	if err != nil {
		return err
	}
	return env.writeTable(all, "STREAM\tMEMBER\tHOST\tSTATE\tKIND\tLEVEL\tSIZE\tLAG\tRING",
		"\tTARGET\tUUID\tEPOCH\tHEAD\tDURABLE\tAPPENDED\tREPORTED", func(table *tabwriter.Writer) {
			for _, one := range all.Regions {
				state := one.State
				contract := state.GetContract()
				tableRow(table, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s", one.Stream, one.Member+1, orDash(one.Host),
					regionState(one), orDash(contract.GetKind()), levelText(contract.GetLevel()),
					orDash(sizeOrNothing(contract.GetSizeBytes())), config.FormatSize(state.GetLagBytes()),
					orDash(textOr(state.GetError(), state.GetUri())))
				if env.isWide() {
					tableRow(table, "\t%s\t%s\t%s\t%d\t%d\t%d\t%s", one.Target, orDash(fmt.Sprintf("%x", one.RingUuid)),
						numberText(uint64(state.GetLastEpoch())), state.GetHeadLsn(),
						state.GetDurableLsn(), state.GetAppendedLsn(), stampText(state.GetObserveTime()))
				}
				fmt.Fprintln(table)
			}
		})
}

// regionState is one word or two for how a ring is.
func regionState(one *api.RegionInfo) string {
	switch {
	case !one.TargetAlive:
		return "target gone"
	case one.State == nil:
		return "not yet reported"
	case one.State.Error != "":
		return "error"
	}
	return "ok"
}

func levelText(level api.Level) string {
	if level == api.Level_LEVEL_UNSPECIFIED {
		return "-"
	}
	return shortName(level.String())
}
