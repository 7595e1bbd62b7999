package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	api "github.com/farlog/farlog/pkg/api/v1"
)

func newEpochCommand(env *environment) *cobra.Command {
	group := &cobra.Command{Use: "epoch", Short: "See which epochs streams are at", Args: groupArgs, RunE: runGroup}
	group.AddCommand(streamListCommand("List the epochs of streams: the last that was granted, to whom, and below which writers are fenced",
		`Lists a line for each stream; --output wide has one for each of its rings, with what its target reports: the epoch of its writer and since when, whether that one has the ring now, and which fence
and which writer the target has confirmed.`,
		func(ctx context.Context, stream string) error { return listEpochs(ctx, env, stream) }))
	return group
}

func listEpochs(ctx context.Context, env *environment, stream string) error {
	request, all := &api.ListEpochsRequest{Stream: stream}, new(api.ListEpochsResponse)
	err := env.everyPage(ctx, func(ctx context.Context, client api.FabricServiceClient, token string) (string, error) {
		request.PageToken = token
		page, err := client.ListEpochs(ctx, request)
		all.Epochs, all.Revision = append(all.Epochs, page.GetEpochs()...), page.GetRevision()
		return page.GetNextPageToken(), err
	})
	if err == nil && len(all.Epochs) == 0 {
		err = env.mayBeEmpty(ctx, stream)
	}
	if err != nil {
		return err
	}
	if env.isJSON() {
		return env.writeProto(all)
	}
	table := env.newTable()
	head := "STREAM\tGRANTED\tFENCED BELOW\tHOLDER\tSINCE"
	if env.isWide() {
		head += "\tMEMBER\tTARGET\tWRITER\tLAST\tOPENED\tHELD\tTARGET FENCES BELOW\tTARGET ADMITS"
	}
	fmt.Fprintln(table, head)
	for _, one := range all.Epochs {
		stem := fmt.Sprintf("%s\t%s\t%s\t%s\t%s", one.Stream, numberText(uint64(one.Granted)), numberText(uint64(one.Fenced)), orDash(holderText(one.Holder)), stampText(one.HolderGranted))
		if !env.isWide() || len(one.Members) == 0 {
			fmt.Fprintln(table, stem)
			continue
		}
		for _, member := range one.Members {
			fmt.Fprintf(table, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", stem, member.Member, member.Target, numberText(uint64(member.WriterEpoch)), numberText(uint64(member.LastEpoch)),
				stampText(member.Opened), yesNo(member.IsWriterHeld), numberText(uint64(member.EpochFenced)), numberText(uint64(member.EpochAdmitted)))
		}
	}
	return table.Flush()
}
