//go:build cgo

package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/farlog/farlog/pkg/nvmet"
	"github.com/farlog/farlog/pkg/target"
)

func newNVMeTEvictCommand(env *environment, options *nvmetOptions) *cobra.Command {
	subsystem := ""
	cmd := &cobra.Command{
		Use:   "evict HOST-NQN --subsystem NQN",
		Short: "Take a host out of a subsystem for sure, so that another one may take its rings over",
		Long: `Removes the host from the hosts that the subsystem allows, waits until no command of it is in flight in
its namespaces, and records that in the rings that it wrote last: from then on a writer of another host may open them.
For namespaces whose kernel has no reservations (before Linux 6.13), and for rings that share a namespace. The
subsystem is removed and re-created for it: all other hosts have to reconnect. The host stays evicted until farlog
target nvmet readmit, whatever the file declares, also after a reboot. Idempotent.`,
		Args: exactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			for _, nqn := range []string{subsystem, args[0]} {
				if err := nvmet.CheckNQN(nqn); err != nil {
					return usageErrorf("%s", err)
				}
			}
			return options.evict(env, subsystem, args[0])
		},
	}
	cmd.Flags().StringVar(&subsystem, "subsystem", "", "`NQN` of the subsystem")
	return cmd
}

func (o *nvmetOptions) evict(env *environment, subsystem, host string) error {
	kernel, state, err := o.open()
	if err != nil {
		return err
	}
	defer state.Close()
	done, err := nvmet.Evict(kernel, state, subsystem, host, target.Rings{})
	for _, step := range done.Steps {
		fmt.Fprintln(env.stdout, step)
	}
	for _, ring := range done.Rings {
		fmt.Fprintf(env.stderr, "ring %s: its former writer is out; another host may write it now\n", ring)
	}
	for _, note := range done.Notes {
		fmt.Fprintf(env.stderr, "note: %s\n", note)
	}
	if err != nil {
		return errors.Join(err, errors.New("not done: run it again to resume"))
	}
	fmt.Fprintf(env.stderr, "host %s is out of subsystem %s, confirmed: no command of it is under way; it stays out "+
		"until farlog target nvmet readmit\n", host, subsystem)
	return nil
}
