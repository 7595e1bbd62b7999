package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	api "github.com/farlog/farlog/pkg/api/v1"
)

func newGrantCommand(env *environment) *cobra.Command {
	request, role := new(api.ListGrantsRequest), ""
	list := streamListCommand("List who may write, drain and read streams; it shows no secret",
		`Lists the last writer's grant of each stream, its drain, and the clients of other hosts that its rings admit.
STATE of a writer is active (it holds one of the rings, as last reported), granted (it has not opened the rings, or
has closed them) or fenced (another writer took the stream over). EXPIRES is until when the holder may connect; an
open connection stays.`,
		func(ctx context.Context, stream string) error {
			value, isKnown := api.GrantRole_value["GRANT_ROLE_"+upper(role)]
			if role != "" && (!isKnown || value == 0) {
				return usageErrorf("--role %q: expected writer, drain or reader", role)
			}
			request.Stream, request.Role = stream, api.GrantRole(value)
			return listGrants(ctx, env, request)
		})
	list.Example = "  farlog grant list 'desk7/**' --role writer --host trading3"
	flags := list.Flags()
	flags.StringVar(&role, "role", "", "only grants of this `role`: writer, drain or reader")
	flags.StringVar(&request.Host, "host", "", "only grants whose holder is on this `host`")
	return newGroup("grant", "List grants: who may write, drain and read streams", list)
}

func listGrants(ctx context.Context, env *environment, request *api.ListGrantsRequest) error {
	all, err := listAll(ctx, env, request, (*controlClient).ListGrants)
	if err == nil && len(all.Grants) == 0 {
		err = env.mayBeEmpty(ctx, request.Stream)
	}
	if err != nil {
		return err
	}
	return env.writeTable(all, "STREAM\tROLE\tEPOCH\tGENERATION\tHOLDER\tSTATE\tGRANTED\tEXPIRES",
		"\tFAR\tTARGETS\tADDRESSES", func(table *tabwriter.Writer) {
			for _, one := range all.Grants {
				tableRow(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s", one.Stream,
					shortName(strings.TrimPrefix(one.Role.String(), "GRANT_")), numberText(uint64(one.Epoch)),
					numberText(one.Generation), orDash(textOr(one.Drain, holderText(one.Holder))), grantState(one),
					stampText(one.GrantTime), stampText(one.ExpireTime))
				if env.isWide() {
					tableRow(table, "\t%s\t%s\t%s", yesNo(one.Remote), listText(one.Targets),
						textOr(strings.Join(one.Addresses, ", "), "any"))
				}
				fmt.Fprintln(table)
			}
		})
}

// holderText names a writer: its host, its process and the name that it gave itself.
func holderText(holder *api.Holder) string {
	if holder == nil {
		return ""
	}
	return strings.TrimSpace(fmt.Sprintf("%s pid %d %s", holder.Host, holder.Pid, holder.Name))
}

// grantState is how a writer's grant is; of others the list does not tell.
func grantState(one *api.GrantInfo) string {
	switch {
	case one.Role != api.GrantRole_GRANT_ROLE_WRITER:
		return "-"
	case one.Fenced:
		return "fenced"
	case one.Active:
		return "active"
	}
	return "granted"
}
