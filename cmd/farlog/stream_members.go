package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	api "github.com/farlog/farlog/pkg/api/v1"
)

func newStreamMembersCommand(env *environment) *cobra.Command {
	return newGroup("members", "Replace a member of a stream, or accept the loss of its records",
		newMembersReplaceCommand(env), newMembersAcceptLossCommand(env))
}

// replaceOptions are the flags of stream members replace.
type replaceOptions struct {
	member, with, reason string
	isDryRun             bool
}

func newMembersReplaceCommand(env *environment) *cobra.Command {
	var options replaceOptions
	cmd := &cobra.Command{
		Use:   "replace NAME --member TARGET [--with TARGET] --reason TEXT",
		Short: "Put a new ring in the place of a member's that is gone for good",
		Long: `Replaces a member's ring by a new one on another target, or on the same target where the ring was lost.
A running writer continues with the other members. A writer that was opened by farlog append --stream or by farlog://
learns of the new ring and copies to it all records that are not stored; then the member counts. Without such a
writer, the next writer does so when it opens the stream. One member at a time: replace the next one when the new ring
counts (farlog status). The former ring is never used again, even when its target returns. It needs the role admin and
is recorded with its reason.`,
		Args: exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return replaceMember(cmd.Context(), env, args[0], options)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&options.member, "member", "", "the `target` whose ring is replaced, or its host; required")
	flags.StringVar(&options.with, "with", "", "the `target` that creates the new ring, or its host (default: the "+
		"target with the lowest load in a failure domain of its own)")
	flags.StringVar(&options.reason, "reason", "", "`reason`, for the audit stream; required")
	flags.BoolVar(&options.isDryRun, "dry-run", false, "print what would be done; change nothing")
	return cmd
}

func replaceMember(ctx context.Context, env *environment, name string, options replaceOptions) error {
	if options.member == "" || strings.TrimSpace(options.reason) == "" {
		return usageErrorf("stream members replace: expected --member TARGET and --reason TEXT, which is recorded")
	}
	done, err := ask(ctx, env, name, &api.ReplaceMemberRequest{
		Stream: name, Member: options.member,
		With: options.with, Reason: options.reason, DryRun: options.isDryRun,
	}, (*controlClient).ReplaceMember)
	if err != nil {
		return err
	}
	if env.isJSON() {
		return env.writeProto(done)
	}
	verb := "is replaced"
	if options.isDryRun {
		verb = "would be replaced"
	}
	fmt.Fprintf(env.stdout, "stream %s: the ring of target %s %s by one of target %s\n", name,
		done.Ring.Replacement.FormerTarget, verb, done.Ring.Target)
	switch {
	case done.AcceptLossRequired:
		fmt.Fprintf(env.stdout, "the other members do not know all that was acknowledged: farlog stream members "+
			"accept-loss %s --dry-run says what may be lost\n", name)
	case done.WriterHeld:
		fmt.Fprintf(env.stdout, "its writer goes on with the other members, and adds the new ring when it learns "+
			"of it from the control plane or its host agent; farlog status %s says \"new\" until it counts. A "+
			"writer that was opened by a grant file does not learn of it: restart it\n", name)
	default:
		fmt.Fprintln(env.stdout, "it counts when a writer opens the stream")
	}
	return nil
}

func newMembersAcceptLossCommand(env *environment) *cobra.Command {
	reason, isDryRun := "", false
	cmd := &cobra.Command{
		Use:   "accept-loss NAME --reason TEXT",
		Short: "Let a stream be opened again although records may be lost with a member that was replaced",
		Long: `A stream cannot be opened while too few of its members know what was acknowledged: with one member
needed, a replaced ring may have had the only copy. This command declares such records as lost, so that the stream
continues with the records of the other members. A member that missed the stream's first opening and never received an
epoch holds no record, and nothing is lost with it: where such members are enough, the command only makes them count.
--dry-run prints what may be lost, as far as it is known, and changes nothing. It needs the role admin and is recorded
with its reason and output.`,
		Args: exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return acceptLoss(cmd.Context(), env, args[0], reason, isDryRun)
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "`reason`, for the audit stream; required unless --dry-run")
	cmd.Flags().BoolVar(&isDryRun, "dry-run", false, "print what may be lost; change nothing")
	return cmd
}

func acceptLoss(ctx context.Context, env *environment, name, reason string, isDryRun bool) error {
	if isDryRun && reason == "" {
		reason = "dry run"
	}
	if strings.TrimSpace(reason) == "" {
		return usageErrorf("stream members accept-loss: expected --reason TEXT: it is recorded")
	}
	done, err := ask(ctx, env, name, &api.AcceptLossRequest{Stream: name, Reason: reason, DryRun: isDryRun},
		(*controlClient).AcceptLoss)
	if err != nil {
		return err
	}
	if env.isJSON() {
		return env.writeProto(done)
	}
	verb := "loss accepted"
	if isDryRun {
		verb = "loss would be accepted"
	}
	fmt.Fprintf(env.stdout, "stream %s: %s; the ring of target %s counts as it is\n", name, verb,
		strings.Join(done.Members, ", "))
	for _, loss := range done.Losses {
		fmt.Fprintln(env.stdout, loss)
	}
	return nil
}
