//go:build cgo

package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/farlog/farlog/pkg/config"
)

func newStreamGrantCommand(env *environment) *cobra.Command {
	options := appendOptions{acquireTimeout: acquireTimeoutDefault, name: "farlog stream grant"}
	command := &cobra.Command{
		Use:   "grant NAME --token-file FILE",
		Short: "Get the right to write a stream from another host, for a writer that cannot ask for it",
		Long: `Asks the control plane for a grant and writes it to a file that only its owner can read. The command
does not fence a live writer without --takeover: it waits for the writer's end, at most --acquire-timeout. The grant
is valid for one writer, which has to connect within ten minutes: farlog append --ring URI --token-file FILE.`,
		Args: exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			options.stream = args[0]
			return grantStream(cmd.Context(), env, options)
		},
	}
	command.Flags().StringVar(&options.tokenFile, "token-file", "",
		"`file` to write the grant to; it must not exist")
	command.Flags().BoolVar(&options.isTakeover, "takeover", false, "fence a living writer that holds the stream")
	command.Flags().Var((*config.DurationValue)(&options.acquireTimeout), "acquire-timeout",
		"longest wait for the grant, and for a living writer's end")
	command.Flags().StringVar(&options.transport, "transport", "",
		"`transport` to the ring: verbs or ofi (default: the fastest that the target offers)")
	return command
}

func grantStream(ctx context.Context, env *environment, options appendOptions) error {
	if options.tokenFile == "" {
		return usageErrorf("stream grant: expected --token-file FILE")
	}
	if !isOneOf(options.transport, []string{"", "verbs", "ofi"}) {
		return usageErrorf("--transport %q: expected verbs or ofi", options.transport)
	}
	if !options.isTakeover {
		if err := waitStreamFree(ctx, env, options, newAppendTalk(env.stderr)); err != nil {
			return err
		}
	}
	place, err := acquireWriter(ctx, env, options)
	if err != nil {
		return err
	}
	if !place.hasToken() {
		return fmt.Errorf("stream %q is granted at %s on this host, which needs no token: farlog append --stream %s; "+
			"to reach it as from another host give --transport", options.stream, place.uri, options.stream)
	}
	if err := writeTokenFile(options.tokenFile, place); err != nil {
		return err
	}
	fmt.Fprintf(env.stdout, "%s\n", place.uri)
	return nil
}
