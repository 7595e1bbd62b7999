package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/farlog/farlog/cmd/internal/reference"
	"github.com/farlog/farlog/cmd/internal/version"
)

func newRootCommand(stdout, stderr io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:           "farlogd",
		Version:       version.Of(),
		Short:         "The daemon of farlog: control plane, target, drain, host agent and replica",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return &usageError{fmt.Sprintf("unknown role %q: expected dev, control, target, drain, host or replica",
				args[0])}
		},
		RunE: func(*cobra.Command, []string) error {
			return &usageError{"no role was given: expected dev, control, target, drain, host or replica (--help " +
				"says more)"}
		},
	}
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.InitDefaultVersionFlag()
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &usageError{oneLine(err) + " (" + cmd.CommandPath() + " --help lists the flags)"}
	})
	root.AddCommand(
		newRoleCommand("control", "Say who may write where; keep that in etcd", controlMetricsDefault, stdout, stderr),
		newRoleCommand("target", "Own the regions of this host and provide rings in them", targetMetricsDefault, stdout,
			stderr),
		newRoleCommand("drain", "Move records from rings into the store", drainMetricsDefault, stdout, stderr),
		newRoleCommand("host", "Get grants for the programs of a trading host", hostMetricsDefault, stdout, stderr),
		newRoleCommand("replica", "Keep a second store of the same records at another site", replicaMetricsDefault,
			stdout, stderr),
		newRoleCommand("dev", "All roles in one process, on files in one directory", controlMetricsDefault, stdout,
			stderr),
		reference.NewCommand(stdout),
	)
	return root
}

// newRoleCommand makes the command of one role, or of "dev", whose roles are a setting.
func newRoleCommand(role, short, metricsDefault string, stdout, stderr io.Writer) *cobra.Command {
	cmd := &cobra.Command{
		Use:   role,
		Short: short,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return &usageError{fmt.Sprintf("%s: unexpected argument %q: it takes flags only", cmd.CommandPath(),
					args[0])}
			}
			return nil
		},
	}
	s, set, file := declareSettings(cmd.Flags(), role, metricsDefault)
	isCheck := cmd.Flags().Bool("check", false, "only check the settings: report all mistakes, open nothing")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := set.Load(*file, os.LookupEnv); err != nil {
			return err
		}
		if err := s.complete(); err != nil {
			return err
		}
		if *isCheck {
			fmt.Fprintf(stderr, "farlogd: settings of %s are valid\n", role)
			return nil
		}
		return newDaemon(s, stdout, stderr).run(cmd.Context())
	}
	return cmd
}

func joinAnd(words []string) string { return strings.Join(words, ", ") }
