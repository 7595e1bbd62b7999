package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/farlog/farlog/cmd/internal/reference"
	"github.com/farlog/farlog/cmd/internal/version"
	"github.com/farlog/farlog/pkg/config"
	"github.com/farlog/farlog/pkg/identity"
)

// controlAddressDefault is where farlogd listens unless it is told otherwise.
const controlAddressDefault = "127.0.0.1:7070"

// environment is what every command gets instead of globals: streams, output format, where the control is.
type environment struct {
	stdin  io.Reader
	stdout io.Writer // data
	stderr io.Writer // talk

	output    string        // "" = text for people, outputWide = text with more columns, outputJSON
	control   string        // host:port of the control plane
	timeout   time.Duration // of one question to it; 0 = callTimeoutDefault
	addresses []string      // of this host, as they were given

	isInsecure                                    bool // speak without TLS
	tlsDir, tlsAuthority, tlsCert, tlsKey, tlsCRL string
	given                                         func(names ...string) []string // where settings are from
	// of certificate, the one that is shown first; nil: an administrator's or a host's
	kinds []identity.Kind
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
		Version:       version.Of(),
		Short:         "A persistent log in remote memory: append, drain, verify, replay",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          groupArgs,
		RunE:          runGroup,
	}
	root.SetIn(env.stdin)
	root.SetOut(env.stdout)
	root.SetErr(env.stderr)
	root.InitDefaultVersionFlag()
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageErrorf("%s (%s --help lists the flags)", flagErrorText(err), cmd.CommandPath())
	})
	settings := config.New(root.PersistentFlags())
	settings.String(&env.control, "control", controlAddressDefault,
		"`address` of the control plane, host:port; of several, host:port,host:port", config.Addresses)
	settings.Duration(&env.timeout, "timeout", callTimeoutDefault,
		"longest wait for an answer of the control plane, with retries", aboveZero)
	settings.Strings(&env.addresses, "host.addresses", nil, identity.AddressesUsage, identity.CheckAddresses)
	env.declareSecurity(settings)
	root.PersistentFlags().StringVarP(&env.output, "output", "o", "", "output `format`: json or wide (default: text)")
	root.PersistentPreRunE = func(*cobra.Command, []string) error {
		if err := env.checkOutput(); err != nil {
			return err
		}
		if err := settings.Load("", os.LookupEnv); err != nil {
			return err
		}
		return env.checkSecurity()
	}

	root.AddCommand(newCommands(env)...)
	return root
}

// newCommands makes one line a command, alphabetical.
func newCommands(env *environment) []*cobra.Command {
	return []*cobra.Command{
		newAppendCommand(env),
		newApplyCommand(env),
		newArchiveCommand(env),
		newCACommand(env),
		newControlCommand(env),
		newDoctorCommand(env),
		newDrainCommand(env),
		newDumpCommand(env),
		newEpochCommand(env),
		newExportCommand(env),
		newGrantCommand(env),
		newHostCommand(env),
		newInitCommand(env),
		newMergeCommand(env),
		newAuditCommand(env),
		newOrderCommand(env),
		newPlanCommand(env),
		newQueryCommand(env),
		reference.NewCommand(env.stdout),
		newRegionCommand(env),
		newReplayCommand(env),
		newRingCommand(env),
		newRouteCommand(env),
		newStatusCommand(env),
		newStoreCommand(env),
		newStreamCommand(env),
		newTailCommand(env),
		newTargetCommand(env),
		newTenantCommand(env),
		newTopCommand(env),
		newVerifyCommand(env),
	}
}

func aboveZero(timeout time.Duration) error {
	if timeout <= 0 {
		return fmt.Errorf("%s: expected more than 0", timeout)
	}
	return nil
}

// flagErrorText says what a number may be instead of how its parser failed.
func flagErrorText(err error) string {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return oneLine(err)
	}
	expected, ok := map[string]string{
		"int": "a whole number", "uint16": "a whole number from 0 to 65535",
		"uint32": "a whole number from 0 to 4294967295",
		"uint64": "a whole number from 0 to 18446744073709551615",
	}[invalid.GetFlag().Value.Type()]
	if !ok {
		return oneLine(err)
	}
	return fmt.Sprintf("invalid argument %q for \"--%s\" flag: expected %s", invalid.GetValue(), invalid.GetFlag().Name,
		expected)
}

// checkOutput runs before any command opens anything.
func (e *environment) checkOutput() error {
	switch e.output {
	case "", outputJSON, outputWide:
		return nil
	}
	return usageErrorf("--output %q: expected json or wide", e.output)
}

// groupArgs and runGroup belong to commands that only hold others: an unknown or missing sub-command is a
// usage error that names what there is.
func groupArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	text := fmt.Sprintf("unknown command %q for %q", args[0], cmd.CommandPath())
	cmd.SuggestionsMinimumDistance = 2 // letters that may be wrong
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		text += ": did you mean " + strings.Join(near, " or ") + "?"
	} else if cmd.HasParent() {
		text += ": expected " + strings.Join(usesOf(cmd), ", or ")
	}
	return &usageError{text: text}
}

// usesOf tells the commands of a group with the names that they want.
func usesOf(group *cobra.Command) (uses []string) {
	for _, one := range group.Commands() {
		words := strings.Fields(one.Use)
		if !one.Hidden {
			uses = append(uses, strings.Join(words[:min(len(words), 2)], " "))
		}
	}
	return uses
}

func runGroup(cmd *cobra.Command, _ []string) error {
	cmd.SetOut(cmd.ErrOrStderr())
	if err := cmd.Help(); err != nil {
		return err
	}
	return &exitError{code: exitUsage}
}

// newGroup is a command that only holds others.
func newGroup(use, short string, commands ...*cobra.Command) *cobra.Command {
	group := &cobra.Command{Use: use, Short: short, Args: groupArgs, RunE: runGroup}
	group.AddCommand(commands...)
	return group
}

// exactArgs is cobra.ExactArgs as a usage error that names the arguments of the command's Use line.
func exactArgs(count int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == count {
			return nil
		}
		return usageErrorf("got %d arguments, expected: %s", len(args), cmd.UseLine())
	}
}

// oneLine folds an error into one line, so that nothing a library or another program wrote can break the "one error,
// one line" rule.
func oneLine(err error) string {
	return plain(strings.Join(strings.Fields(err.Error()), " "))
}
