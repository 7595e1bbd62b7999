package main

import (
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/config"
	"github.com/farlog/farlog/pkg/control/pattern"
)

func newTargetListCommand(env *environment) *cobra.Command {
	request, state := new(api.ListTargetsRequest), ""
	command := &cobra.Command{
		Use:   "list",
		Short: "List the hosts of targets: those that are declared, and those whose daemons have reported",
		Long: `Prints a line for each target of each host; a declared host whose target has never reported has a line
with - for the target. RINGS is the number of rings placed on the host, BYTES their total size, both on the host's
first line. CAPACITY, CLOSED, RACK and SITE are as declared (farlog apply, targets). WORN is the most worn device
below its rings. A target that has ended and holds no ring is listed for a day after its last report; a declared host
stays.`,
		Example: `  farlog target list --site ld4 --state gone`,
		Args:    exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			presence, isKnown := api.Presence_value["PRESENCE_"+upper(state)]
			switch {
			case state != "" && (!isKnown || presence == 0):
				return usageErrorf("--state %q: expected alive or gone", state)
			case request.Host != "" && pattern.Check(request.Host) != nil:
				return usageErrorf("--host %q: expected a host or a pattern such as storage*", request.Host)
			}
			request.Presence = api.Presence(presence)
			return listTargets(cmd.Context(), env, request)
		},
	}
	flags := command.Flags()
	flags.StringVar(&request.Host, "host", "", "only this `host`, or those of a pattern such as storage*")
	flags.StringVar(&request.Rack, "rack", "", "only hosts whose declared rack is this `rack`")
	flags.StringVar(&request.Site, "site", "", "only hosts whose declared site is this `site`")
	flags.StringVar(&state, "state", "", "only hosts that are alive (at least one target reports) or gone")
	return command
}

func listTargets(ctx context.Context, env *environment, request *api.ListTargetsRequest) error {
	all, err := listAll(ctx, env, request, (*controlClient).ListTargets)
	if err != nil {
		return err
	}
	return env.writeTable(all, "TARGET\tHOST\tSTATE\tRINGS\tBYTES\tCAPACITY\tCLOSED\tRACK\tSITE\tWORN",
		"\tPID\tMETRICS\tREPORTED\tDOORS", func(table *tabwriter.Writer) {
			for _, target := range all.Targets {
				for i, agent := range agentsOf(target) {
					rings, bytes := "-", "-"
					if i == 0 {
						rings, bytes = fmt.Sprint(target.RingCount), config.FormatSize(target.RingSizeBytes)
					}
					spec := target.Spec
					tableRow(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s", orDash(agent.GetAgent().GetId()),
						target.Host, aliveText(agent.GetAlive()), rings, bytes,
						textOr(sizeOrNothing(spec.GetCapacityBytes()), "any"), yesNo(spec.GetClosed()),
						orDash(spec.GetRack()), orDash(spec.GetSite()), wornText(agent.GetMedia()))
					if env.isWide() {
						tableRow(table, "\t%s\t%s\t%s\t%s", numberText(uint64(agent.GetAgent().GetPid())),
							orDash(agent.GetAgent().GetMetricsAddress()), stampText(agent.GetReportTime()),
							listText(agent.GetAgent().GetListeners()))
					}
					fmt.Fprintln(table)
				}
			}
		})
}

// agentsOf are a host's targets; one that is nil stands for a host that has none.
func agentsOf(target *api.Target) []*api.TargetAgent {
	if len(target.Agents) == 0 {
		return []*api.TargetAgent{nil}
	}
	return target.Agents
}

// wornText is how far the most worn device is.
func wornText(media []*api.MediaHealth) string {
	if len(media) == 0 {
		return "-"
	}
	worst := 0.0
	for _, one := range media {
		worst = max(worst, one.UsedRatio)
	}
	return fmt.Sprintf("%.0f%%", 100*worst)
}
