package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/config"
)

const deleteWaitDefault = 30 * time.Second

// deleteOptions are the flags of stream delete.
type deleteOptions struct {
	isDryRun, isRingLost bool
	revision             int64
	wait                 time.Duration
}

func newStreamDeleteCommand(env *environment) *cobra.Command {
	options := deleteOptions{wait: deleteWaitDefault}
	cmd := &cobra.Command{
		Use:   "delete NAME",
		Short: "Delete a stream that nobody writes and whose records are all stored; the store keeps them",
		Long: `Delete a stream: the control plane fences writers, the drain stores the remaining records, the targets
remove the rings, and the name is free. Refused while a writer has the stream or records are not stored. The store
keeps its records: a new stream of the same name is another stream, whose records follow in a generation of their own.
Idempotent: run the command again to continue waiting.`,
		Args: exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return deleteStream(cmd.Context(), env, args[0], options)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&options.isDryRun, "dry-run", false, "say whether it could be deleted; change nothing")
	flags.Int64Var(&options.revision, "revision", 0, "only if the stream is still at this `revision` (0: whichever)")
	flags.BoolVar(&options.isRingLost, "ring-lost", false,
		"its ring is lost for good, with the records in it that were not stored: do not wait for them")
	flags.Var((*config.DurationValue)(&options.wait), "wait", "how long to wait until it is gone; 0 = do not wait")
	return cmd
}

func deleteStream(ctx context.Context, env *environment, name string, options deleteOptions) error {
	client, err := env.dialControl()
	if err != nil {
		return err
	}
	defer client.Close()
	call, cancel := context.WithTimeout(ctx, client.timeout)
	defer cancel()
	response, err := client.DeleteStream(call, &api.DeleteStreamRequest{
		Name: name, Revision: options.revision,
		DryRun: options.isDryRun, RingLost: options.isRingLost,
	})
	if err != nil {
		return client.explain(call, name, err)
	}
	isGone := false
	if !options.isDryRun && options.wait > 0 {
		if isGone, err = waitGone(ctx, client, response.Deletion, options.wait); err != nil {
			return err
		}
	}
	if env.isJSON() {
		return env.writeProto(response)
	}
	verb := "is being deleted"
	switch {
	case options.isDryRun:
		verb = "could be deleted"
	case isGone:
		verb = "deleted"
	}
	fmt.Fprintf(env.stdout, "stream %s %s: id %d%s\n", name, verb, response.Deletion.StreamId,
		keptText(response.Deletion))
	return nil
}

// keptText says where the records are.
func keptText(deletion *api.Deletion) string {
	if deletion.StoreDir == "" {
		return ""
	}
	return fmt.Sprintf(", its records stay in store %s", deletion.StoreDir)
}

// waitGone asks until the stream of that id is gone.
func waitGone(ctx context.Context, client *controlClient, deletion *api.Deletion, wait time.Duration) (bool, error) {
	for began := time.Now(); ; {
		call, cancel := context.WithTimeout(ctx, client.timeout)
		response, err := client.GetStream(call, &api.GetStreamRequest{Name: deletion.Name})
		cancel()
		if status.Code(err) == codes.NotFound || err == nil && response.Stream.Stream.StreamId != deletion.StreamId {
			return true, nil
		}
		if time.Since(began) >= wait {
			if err != nil {
				return false, client.explain(ctx, deletion.Name, err)
			}
			return false, fmt.Errorf("stream %q is not gone after %s: %s; the same command waits on", deletion.Name,
				wait, response.Stream.Reason)
		}
		select {
		case <-time.After(ringPollPause):
		case <-ctx.Done():
			return false, errors.New("interrupted")
		}
	}
}
