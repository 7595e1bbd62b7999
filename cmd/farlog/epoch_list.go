package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	api "github.com/farlog/farlog/pkg/api/v1"
)

func newEpochCommand(env *environment) *cobra.Command {
	list := streamListCommand("List the epochs of streams: the last one granted, to whom, and the epoch "+
		"below which writers are fenced",
		`Prints a line for each stream; --output wide prints one for each of its rings, with what its target reports:
the epoch of its writer and since when, whether this writer holds the ring now, and which fence and which writer the
target has confirmed. For one STREAM, by its full name, up to 16 former epochs follow: the writer of each, from when
to when, and why it ended. ENDED BY is taken over (farlog stream takeover, with its reason), restarted (the same
program was granted the next epoch), replaced (another program was, such as a standby) or unused (no ring was opened
with it before the next epoch was granted: it expired, or its holder never connected).`,
		func(ctx context.Context, stream string) error { return listEpochs(ctx, env, stream) })
	return newGroup("epoch", "List the epochs of streams", list)
}

func listEpochs(ctx context.Context, env *environment, stream string) error {
	request := &api.ListEpochsRequest{Stream: stream, IncludePast: stream != "" && !isPattern(stream)}
	all, err := listAll(ctx, env, request, (*controlClient).ListEpochs)
	if err == nil && len(all.Epochs) == 0 {
		err = env.mayBeEmpty(ctx, stream)
	}
	if err != nil {
		return err
	}
	if err := printEpochs(env, all); err != nil || env.isJSON() || !request.IncludePast ||
		len(all.Epochs[0].Past) == 0 {
		return err
	}
	return printPast(env, all.Epochs[0].Past)
}

func printEpochs(env *environment, all *api.ListEpochsResponse) error {
	return env.writeTable(all, "STREAM\tGRANTED\tFENCED BELOW\tHOLDER\tSINCE",
		"\tMEMBER\tTARGET\tWRITER\tLAST\tOPENED\tHELD\tTARGET FENCES BELOW\tTARGET ADMITS",
		func(table *tabwriter.Writer) {
			for _, one := range all.Epochs {
				stem := func() {
					tableRow(table, "%s\t%s\t%s\t%s\t%s", one.Stream, numberText(uint64(one.Granted)),
						numberText(uint64(one.Fenced)), orDash(holderText(one.Holder)), stampText(one.HolderGrantTime))
				}
				if !env.isWide() || len(one.Members) == 0 {
					stem()
					fmt.Fprintln(table)
					continue
				}
				for _, member := range one.Members {
					stem()
					tableRow(table, "\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", member.Member+1, member.Target,
						numberText(uint64(member.WriterEpoch)), numberText(uint64(member.LastEpoch)),
						stampText(member.OpenTime), yesNo(member.WriterHeld), numberText(uint64(member.EpochFenced)),
						numberText(uint64(member.EpochAdmitted)))
				}
			}
		})
}

// printPast prints the epochs before the last of one stream.
func printPast(env *environment, past []*api.PastEpoch) error {
	fmt.Fprintln(env.stdout)
	table := env.newTable()
	fmt.Fprintln(table, "PAST EPOCH\tHOLDER\tSINCE\tUNTIL\tENDED BY\tWHOSE\tREASON")
	for _, one := range past {
		tableRow(table, "%d\t%s\t%s\t%s\t%s\t%s\t%s\n", one.Epoch, orDash(holderText(one.Holder)),
			stampText(one.GrantTime), stampText(one.EndTime), endText(one.End), orDash(one.By), reasonText(one.Reason))
	}
	return table.Flush()
}

// endText is why an epoch ended, in a word or two.
func endText(end api.EpochEnd) string {
	return strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(end.String(), "EPOCH_END_"), "_", " "))
}

// reasonText is what an operator gave as a reason, as one line, whatever is in it.
func reasonText(reason string) string {
	if reason == "" {
		return "-"
	}
	return strconv.Quote(reason)
}
