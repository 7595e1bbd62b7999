package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/config"
)

const takeoverTimeoutDefault = 10 * time.Second

func newStreamTakeoverCommand(env *environment) *cobra.Command {
	reason, timeout := "", takeoverTimeoutDefault
	cmd := &cobra.Command{
		Use:   "takeover NAME --reason TEXT",
		Short: "Fence a stream's writer, whatever it does, so that another one may come",
		Long: `Fences every writer of a stream, at enough of its members that no writer can have another record
acknowledged, and prints since when. It needs the role admin and is recorded with its reason. It admits no new writer:
the next one asks for a grant (farlog append --stream NAME), and a standby (--standby) does so by itself. A running
writer notices the fence at its next append; farlog append --stream notices it within seconds also without an append.`,
		Args: exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return takeOverStream(cmd.Context(), env, args[0], reason, timeout)
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "`reason`, for the audit stream; required")
	cmd.Flags().Var((*config.DurationValue)(&timeout), "timeout", "longest wait for the targets to confirm")
	return cmd
}

func takeOverStream(ctx context.Context, env *environment, name, reason string, timeout time.Duration) error {
	if strings.TrimSpace(reason) == "" {
		return usageErrorf("stream takeover: expected --reason TEXT: it is recorded")
	}
	client, err := env.dialControl()
	if err != nil {
		return err
	}
	defer client.Close()
	call, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	began := time.Now()
	done, err := client.TakeOverStream(call, &api.TakeOverStreamRequest{Stream: name, Reason: reason})
	isUnsent := status.Code(err) == codes.Unavailable // at the end of its time: nobody took it
	if err != nil && errors.Is(call.Err(), context.DeadlineExceeded) && !isUnsent {
		return fmt.Errorf("stream %s: within %s nobody said that enough of its targets have confirmed: its writers "+
			"may be fenced already; look with farlog status %s, and try again with a longer --timeout", name, timeout,
			name)
	}
	if err != nil {
		return client.explain(call, name, err)
	}
	if env.isJSON() {
		return env.writeProto(done)
	}
	former := "there was no grant before"
	if holder := done.Former; holder != nil {
		former = strings.TrimSpace(fmt.Sprintf("the last grant was that of host %s pid %d %s", holder.Host, holder.Pid,
			holder.Name))
	}
	fmt.Fprintf(env.stdout, "stream %s: writers below epoch %d are fenced since %s (%s) at target %s; %s\n", name,
		done.Epoch,
		done.ConfirmTime.AsTime().Format("2006-01-02T15:04:05.000Z"), time.Since(began).Round(time.Millisecond),
		strings.Join(done.Fenced, ", "), former)
	if len(done.Unreached) > 0 {
		fmt.Fprintf(env.stdout, "not at target %s, which has not confirmed it: it finds the fence when it is back\n",
			strings.Join(done.Unreached, ", "))
	}
	return nil
}
