//go:build !cgo

package main

import (
	"errors"

	"github.com/spf13/cobra"
)

var errCoreMissing = errors.New("this farlog was built without the C core: build it with CGO_ENABLED=1 and a C " +
	"compiler to append, tail or format")

// newCoreMissingCommand stands for a command that needs the C core, in a binary that has none.
func newCoreMissingCommand(name, short string) *cobra.Command {
	return &cobra.Command{
		Use:                name,
		Short:              short + " (needs the C core)",
		DisableFlagParsing: true,
		RunE:               func(*cobra.Command, []string) error { return errCoreMissing },
	}
}

func newAppendCommand(*environment) *cobra.Command {
	return newCoreMissingCommand("append", "Append records from standard input to a stream or a ring")
}

func newStreamGrantCommand(*environment) *cobra.Command {
	return newCoreMissingCommand("grant",
		"Get the right to write a stream from another host, for a writer that cannot ask for it")
}

func newNVMeTEvictCommand(*environment, *nvmetOptions) *cobra.Command {
	return newCoreMissingCommand("evict",
		"Take a host out of a subsystem for sure, so that another one may take its rings over")
}

func newTailCommand(*environment) *cobra.Command {
	return newCoreMissingCommand("tail", "Print the undrained records of a ring, and follow it")
}

func newRingCommand(*environment) *cobra.Command {
	return newCoreMissingCommand("ring", "Format, show and fence one ring, without the control plane")
}
