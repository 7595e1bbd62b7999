package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/farlog/farlog/pkg/config"
	"github.com/farlog/farlog/pkg/nvmet"
)

// nvmetOptions are the flags of the commands of the kernel's NVMe target.
type nvmetOptions struct {
	state, root string
	isDryRun    bool
}

func newTargetCommand(env *environment) *cobra.Command {
	return newGroup("target", "List and show the targets; configure this host as an NVMe target",
		newTargetListCommand(env), newTargetShowCommand(env), newNVMeTCommand(env))
}

func newNVMeTCommand(env *environment) *cobra.Command {
	options := &nvmetOptions{}
	group := &cobra.Command{
		Use:   "nvmet",
		Short: "Set up the kernel's NVMe target on this host: subsystems, namespaces, hosts and their keys, ports",
		Long: `Configures the kernel's NVMe target as a file declares, through configfs, as root. Objects that others
have created there, such as nvmetcli, are reported and stay. The command generates keys for DH-HMAC-CHAP, stores them
in --state (mode 0600), and never shows them. docs/reference/nvmet.md has the file's keys.`,
		Args: groupArgs,
		RunE: runGroup,
	}
	group.PersistentFlags().StringVar(&options.state, "state", nvmet.StateFile,
		"`file` with the keys and what was declared before")
	group.PersistentFlags().StringVar(&options.root, "configfs", nvmet.Root, "`directory` of the kernel's NVMe target")
	group.AddCommand(newNVMeTApplyCommand(env, options), newNVMeTEvictCommand(env, options),
		newNVMeTKeyCommand(env, options), newNVMeTReadmitCommand(env, options), newNVMeTRemoveCommand(env, options),
		newNVMeTRestoreCommand(env, options),
		newNVMeTRotateCommand(env, options), newNVMeTSaveCommand(env, options), newNVMeTShowCommand(env, options))
	return group
}

// open gives the kernel's target and the state, which nobody else changes until close.
func (o *nvmetOptions) open() (kernel *nvmet.Kernel, state *nvmet.State, err error) {
	if kernel, err = nvmet.Open(o.root); err != nil {
		return nil, nil, err
	}
	state, err = nvmet.OpenState(o.state)
	return kernel, state, err
}

func (o *nvmetOptions) declareDryRun(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.isDryRun, "dry-run", false, "show what differs and change nothing")
}

func newNVMeTApplyCommand(env *environment, options *nvmetOptions) *cobra.Command {
	path := ""
	cmd := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Bring the kernel's NVMe target to what a file declares",
		Long: `Shows what differs from the file, step by step in the kernel's order, and applies it; running it again
changes nothing. Objects that an earlier file declared and this one does not are removed; objects that were never
declared are reported and stay. The command checks the whole file first.

Exit code 0: applied. With --dry-run 0: nothing to change, 1: there are changes. 2: the file has mistakes.`,
		Args: exactArgs(0),
		RunE: func(*cobra.Command, []string) error {
			if path == "" {
				return usageErrorf("apply: expected -f FILE (- for standard input)")
			}
			raw, err := readWhole(env, path)
			if err != nil {
				return err
			}
			if mistake := config.Syntax(raw); mistake != nil {
				return printMistakes(env, path, fmt.Errorf("%w: expected the keys subsystems, ports and hosts in "+
					"YAML, as docs/reference/nvmet.md has them", mistake))
			}
			declared, err := nvmet.ReadDeclaration(raw)
			if err != nil {
				return printMistakes(env, path, err)
			}
			return options.change(env, func(kernel *nvmet.Kernel, state *nvmet.State) (nvmet.Change, error) {
				return nvmet.Apply(kernel, state, declared, options.isDryRun, time.Now())
			})
		},
	}
	cmd.Flags().StringVarP(&path, "file", "f", "", "YAML `file` of subsystems, ports and hosts; - for standard input")
	options.declareDryRun(cmd)
	return cmd
}

// printMistakes has a line for each.
func printMistakes(env *environment, path string, err error) error {
	lines := strings.Split(err.Error(), "\n")
	for _, line := range lines {
		fmt.Fprintf(env.stderr, "%s: %s\n", path, line)
	}
	return usageErrorf("%s: %d mistakes, nothing is changed", path, len(lines))
}

func newNVMeTRemoveCommand(env *environment, options *nvmetOptions) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "remove",
		Short: "Remove everything that was declared from the kernel's NVMe target, and the keys",
		Args:  exactArgs(0),
		RunE: func(*cobra.Command, []string) error {
			return options.change(env, func(kernel *nvmet.Kernel, state *nvmet.State) (nvmet.Change, error) {
				return nvmet.Remove(kernel, state, options.isDryRun)
			})
		},
	}
	options.declareDryRun(cmd)
	return cmd
}

func newNVMeTRestoreCommand(env *environment, options *nvmetOptions) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Bring the whole of the kernel's NVMe target to what nvmetcli or save has saved",
		Long: `Reads nvmetcli's JSON and configures the kernel's NVMe target exactly so. Objects that are not in the
file are removed, whoever created them. Objects that are already as in the file are not touched, so that their hosts
stay connected. An attribute that this kernel does not have is skipped with a warning, unless it restricts access.`,
		Args: exactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			raw, err := readWhole(env, args[0])
			if err != nil {
				return err
			}
			saved, err := nvmet.ReadSaved(raw)
			if err != nil {
				return printMistakes(env, args[0], err)
			}
			return options.change(env, func(kernel *nvmet.Kernel, _ *nvmet.State) (nvmet.Change, error) {
				return nvmet.Restore(kernel, saved, options.isDryRun)
			})
		},
	}
	options.declareDryRun(cmd)
	return cmd
}

func newNVMeTRotateCommand(env *environment, options *nvmetOptions) *cobra.Command {
	part := nvmet.PartBoth
	cmd := &cobra.Command{
		Use:   "rotate HOST-NQN...",
		Short: "Draw new keys for hosts and give them to the kernel",
		Long: `Existing connections stay. A host that reconnects, also after a broken connection, needs the new key:
copy it there at once (farlog target nvmet key). Without an interruption: first --part host, copy the file, write its
dhchap_key to /sys/class/nvme/nvmeN/dhchap_secret of the host's controller; then --part target, and dhchap_ctrl_key to
dhchap_ctrl_secret. Both at once end the connection.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageErrorf("got 0 arguments, expected: %s", cmd.UseLine())
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if err := config.OneOf(nvmet.PartBoth, nvmet.PartHost, nvmet.PartTarget)(part); err != nil {
				return usageErrorf("--part %q: %s", part, err)
			}
			return options.change(env, func(kernel *nvmet.Kernel, state *nvmet.State) (nvmet.Change, error) {
				return nvmet.Rotate(kernel, state, args, part, time.Now())
			})
		},
	}
	cmd.Flags().StringVar(&part, "part", part, "which `keys`: host, target or both")
	return cmd
}

func newNVMeTReadmitCommand(env *environment, options *nvmetOptions) *cobra.Command {
	subsystem := ""
	cmd := &cobra.Command{
		Use:   "readmit HOST-NQN --subsystem NQN",
		Short: "Admit an evicted host again, by the next apply",
		Long: `Run it only when that host has no connection to the subsystem (farlog host disconnect) and no writer
left: otherwise commands that it still holds would reach rings that another host writes now. The daemon (farlogd
target --nvmet-file) admits it within seconds, farlog target nvmet apply at once.`,
		Args: exactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			state, err := nvmet.OpenState(options.state)
			if err != nil {
				return err
			}
			defer state.Close()
			if err := nvmet.Readmit(state, subsystem, args[0]); err != nil {
				return err
			}
			fmt.Fprintf(env.stderr, "host %s may have subsystem %s again: farlog target nvmet apply admits it\n",
				args[0], subsystem)
			return nil
		},
	}
	cmd.Flags().StringVar(&subsystem, "subsystem", "", "`NQN` of the subsystem")
	return cmd
}

func newNVMeTKeyCommand(env *environment, options *nvmetOptions) *cobra.Command {
	isHostOnly := false
	cmd := &cobra.Command{
		Use:   "key HOST-NQN FILE",
		Short: "Write the keys of a host into a file for it (mode 0600)",
		Long: `Writes JSON with hostnqn, dhchap_key and dhchap_ctrl_key, as nvme connect takes them by
--dhchap-secret and --dhchap-ctrl-secret. Copy it to the host over a secure channel, and delete it here.`,
		Args: exactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			state, err := nvmet.OpenState(options.state)
			if err != nil {
				return err
			}
			defer state.Close()
			raw, err := state.HostFile(args[0], !isHostOnly)
			if err != nil {
				return err
			}
			return nvmet.WriteSecret(args[1], raw)
		},
	}
	cmd.Flags().BoolVar(&isHostOnly, "host-only", false,
		"leave out the key by which the target proves itself, where auth is host")
	return cmd
}

func newNVMeTSaveCommand(env *environment, options *nvmetOptions) *cobra.Command {
	return &cobra.Command{
		Use: "save FILE",
		Short: "Save the complete configuration of the kernel's NVMe target as nvmetcli does, with the keys (mode " +
			"0600)",
		Args: exactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			kernel, err := nvmet.Open(options.root)
			if err != nil {
				return err
			}
			there, err := kernel.Read()
			if err != nil {
				return err
			}
			raw, err := there.Saved()
			if err != nil {
				return err
			}
			if args[0] == "-" {
				_, err = env.stdout.Write(raw)
				return err
			}
			return nvmet.WriteSecret(args[0], raw)
		},
	}
}

// change does something to the kernel's target and tells it.
func (o *nvmetOptions) change(env *environment, do func(*nvmet.Kernel, *nvmet.State) (nvmet.Change, error)) error {
	kernel, state, err := o.open()
	if err != nil {
		return err
	}
	defer state.Close()
	change, err := do(kernel, state)
	if showErr := o.showChange(env, change, err != nil); showErr != nil {
		return errors.Join(err, showErr)
	}
	if err == nil && o.isDryRun && len(change.Steps) > 0 {
		return &exitError{code: exitFailure}
	}
	return err
}

func (o *nvmetOptions) showChange(env *environment, change nvmet.Change, isBroken bool) error {
	steps := make([]string, 0, len(change.Steps))
	for _, step := range change.Steps {
		steps = append(steps, step.String())
	}
	if env.isJSON() {
		return env.writeJSON(map[string]any{
			"steps": steps, "keys_drawn": orEmpty(change.Drawn),
			"foreign": orEmpty(change.Foreign), "notes": orEmpty(change.Notes), "dry_run": o.isDryRun,
		})
	}
	for _, step := range steps {
		fmt.Fprintln(env.stdout, step)
	}
	for _, nqn := range change.Drawn {
		if !o.isDryRun {
			fmt.Fprintf(env.stderr,
				"host %s: keys are generated: farlog target nvmet key %s FILE writes them for the host\n", nqn, nqn)
		}
	}
	for _, note := range change.Notes {
		fmt.Fprintf(env.stderr, "note: %s\n", note)
	}
	if len(change.Foreign) > 0 {
		fmt.Fprintf(env.stderr, "not declared, stays as it is: %s\n", strings.Join(change.Foreign, ", "))
	}
	switch {
	case isBroken:
		fmt.Fprintf(env.stderr, "%d steps were done; run it again to resume\n", len(steps))
	case len(steps) == 0:
		fmt.Fprintln(env.stderr, "it is so already")
	case o.isDryRun:
		fmt.Fprintf(env.stderr, "%d steps; nothing is changed\n", len(steps))
	default:
		fmt.Fprintf(env.stderr, "%d steps done\n", len(steps))
	}
	return nil
}

func orEmpty(list []string) []string { return append([]string{}, list...) }

func newNVMeTShowCommand(env *environment, options *nvmetOptions) *cobra.Command {
	return &cobra.Command{
		Use:   "show",
		Short: "Show the kernel's NVMe target, without keys",
		Args:  exactArgs(0),
		RunE: func(*cobra.Command, []string) error {
			kernel, err := nvmet.Open(options.root)
			if err != nil {
				return err
			}
			there, err := kernel.Read()
			if err != nil {
				return err
			}
			if env.isJSON() {
				return env.writeJSON(there.WithoutKeys())
			}
			return showNVMeT(env.stdout, there.WithoutKeys())
		},
	}
}

func showNVMeT(out io.Writer, config *nvmet.Config) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "SUBSYSTEM\tNSID\tDEVICE\tENABLED\tRESERVATIONS\tHOSTS")
	for _, subsystem := range config.Subsystems {
		hosts := strings.Join(subsystem.AllowedHosts, ", ")
		if subsystem.Attr["allow_any_host"] == "1" {
			hosts = "ANY"
		}
		for _, one := range subsystem.Namespaces {
			tableRow(table, "%s\t%d\t%s\t%s\t%s\t%s\n", subsystem.NQN, one.NSID, one.Device["path"],
				yesNo(one.Enable == 1), reservationText(one), orDash(hosts))
		}
		if len(subsystem.Namespaces) == 0 {
			tableRow(table, "%s\t-\t-\t-\t-\t%s\n", subsystem.NQN, orDash(hosts))
		}
	}
	fmt.Fprintln(table, "\nPORT\tTRANSPORT\tADDRESS\tSERVICE\tSUBSYSTEMS")
	for _, port := range config.Ports {
		tableRow(table, "%s\t%s\t%s\t%s\t%s\n", strconv.Itoa(port.PortID), orDash(port.Addr["trtype"]),
			orDash(port.Addr["traddr"]), orDash(port.Addr["trsvcid"]), orDash(strings.Join(port.Subsystems, ", ")))
	}
	fmt.Fprintln(table, "\nHOST\tKEY\tTARGET KEY\tHASH\tGROUP")
	for _, host := range config.Hosts {
		tableRow(table, "%s\t%s\t%s\t%s\t%s\n", host.NQN, yesNo(host.DHCHAP["key"] != ""),
			yesNo(host.DHCHAP["ctrl_key"] != ""), orDash(host.DHCHAP["hash"]), orDash(host.DHCHAP["dhgroup"]))
	}
	return table.Flush()
}

func reservationText(one nvmet.Namespace) string {
	switch one.Resv["enable"] {
	case "1":
		return "yes"
	case "0":
		return "no"
	}
	return "not in this kernel"
}

func yesNo(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}
