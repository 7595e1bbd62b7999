package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	api "github.com/farlog/farlog/pkg/api/v1"
)

func newStreamRebindCommand(env *environment) *cobra.Command {
	request := new(api.RebindStreamRequest)
	cmd := &cobra.Command{
		Use:   "rebind NAME --drain DRAIN --reason TEXT",
		Short: "Give a stream whose store is lost for good to a drain of another store",
		Long: `Binds a stream to the store of another drain, for when its store is lost for good. Records that are
still in its rings go to the new store. Records that were released from the rings were only in the lost store; the
answer says up to which record. Refused while a drain of the former store reports (stop it first), and while a target
with one of the rings does not. It needs the role admin and is recorded with its reason.`,
		Args: exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			request.Stream = args[0]
			return rebindStream(cmd.Context(), env, request)
		},
	}
	cmd.Flags().StringVar(&request.Drain, "drain", "", "the new `drain`, by its id or host; required")
	cmd.Flags().StringVar(&request.Reason, "reason", "", "`reason`, for the audit stream; required")
	cmd.Flags().BoolVar(&request.DryRun, "dry-run", false, "print what would be lost; change nothing")
	return cmd
}

func rebindStream(ctx context.Context, env *environment, request *api.RebindStreamRequest) error {
	if request.Drain == "" || strings.TrimSpace(request.Reason) == "" {
		return usageErrorf("stream rebind: expected --drain DRAIN and --reason TEXT, which is recorded")
	}
	done, err := ask(ctx, env, request.Stream, request, (*controlClient).RebindStream)
	if err != nil {
		return err
	}
	if env.isJSON() {
		return env.writeProto(done)
	}
	verb := map[bool]string{true: "would be bound", false: "is bound"}[request.DryRun]
	to := done.Assignment
	fmt.Fprintf(env.stdout, "stream %s %s to store %s (%x) of drain %s\n", request.Stream, verb, to.StoreDir,
		to.StoreUuid, to.Drain)
	fmt.Fprintf(env.stdout, "in its rings, for the new store: %d records (%d bytes)\n", done.LagRecords, done.LagBytes)
	fmt.Fprintln(env.stdout, lostText(to.LostStore))
	return nil
}

// lostText says what is lost with a store.
func lostText(lost *api.LostStore) string {
	former := fmt.Sprintf("store %s (%x)", lost.StoreDir, lost.StoreUuid)
	if lost.Lsn == 0 {
		return "nothing is lost: nothing was released to " + former
	}
	return fmt.Sprintf("lost with %s, unless a replica has it: all below lsn %d, seq %d", former, lost.Lsn, lost.Seq)
}
