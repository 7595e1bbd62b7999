package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

// controlAddressDefault is where farlogd listens unless it is told otherwise.
const controlAddressDefault = "127.0.0.1:7070"

// environment is what every command gets instead of globals: streams, output format, where the control is.
type environment struct {
	stdin  io.Reader
	stdout io.Writer // data
	stderr io.Writer // talk

	output  string // "" = text for people, outputWide = text with more columns, outputJSON
	control string // host:port of the control plane
}

const (
	outputJSON = "json"
	outputWide = "wide"
)

func (e *environment) isJSON() bool { return e.output == outputJSON }
func (e *environment) isWide() bool { return e.output == outputWide }

func newRootCommand(env *environment) *cobra.Command {
	root := &cobra.Command{
		Use:           "farlog",
		Short:         "A persistent log in far memory: append, drain, verify, replay",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          groupArgs,
		RunE:          runGroup,
	}
	root.SetIn(env.stdin)
	root.SetOut(env.stdout)
	root.SetErr(env.stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageErrorf("%s (%s --help lists the flags)", oneLine(err), cmd.CommandPath())
	})
	flags := root.PersistentFlags()
	flags.StringVar(&env.control, "control", controlDefault(), "control plane `address`, host:port (also FARLOG_CONTROL)")
	flags.StringVarP(&env.output, "output", "o", "", "output `format`: json or wide (default: text)")
	root.PersistentPreRunE = func(*cobra.Command, []string) error { return env.validate() }

	root.AddCommand(
		// One line a command, alphabetical.
		newAppendCommand(env),
		newRingCommand(env),
		newTailCommand(env),
	)
	return root
}

// validate checks the flags that all commands share, before any command opens anything.
func (e *environment) validate() error {
	switch e.output {
	case "", outputJSON, outputWide:
	default:
		return usageErrorf("--output %q: expected json or wide", e.output)
	}
	return nil
}

func controlDefault() string {
	if address := os.Getenv("FARLOG_CONTROL"); address != "" {
		return address
	}
	return controlAddressDefault
}

// groupArgs and runGroup belong to commands that only hold others: an unknown or missing sub-command is a
// usage error that names what there is.
func groupArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	text := fmt.Sprintf("unknown command %q for %q", args[0], cmd.CommandPath())
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		text += ": did you mean " + strings.Join(near, " or ") + "?"
	}
	return &usageError{text: text}
}

func runGroup(cmd *cobra.Command, _ []string) error {
	cmd.SetOut(cmd.ErrOrStderr())
	if err := cmd.Help(); err != nil {
		return err
	}
	return &exitError{code: exitUsage}
}

// exactArgs is cobra.ExactArgs as a usage error that names the arguments of the command's Use line.
func exactArgs(count int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == count {
			return nil
		}
		return usageErrorf("%s: got %d arguments, expected: %s", cmd.CommandPath(), len(args), cmd.UseLine())
	}
}

// oneLine folds an error into one line, so that nothing a library wrote can break the "one error, one line" rule.
func oneLine(err error) string {
	return strings.Join(strings.Fields(err.Error()), " ")
}
