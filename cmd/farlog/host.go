package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/farlog/farlog/pkg/config"
	"github.com/farlog/farlog/pkg/nvmehost"
)

func newHostCommand(env *environment) *cobra.Command {
	return newGroup("host",
		"List the trading hosts; connect namespaces of NVMe over fabrics to this host, for rings on them",
		newHostConnectCommand(env), newHostDisconnectCommand(env), newHostShowCommand(env), newHostListCommand(env))
}

func newHostConnectCommand(env *environment) *cobra.Command {
	spec := nvmehost.Spec{Transport: "tcp", Times: nvmehost.TimesDefault}
	var namespace uint32
	var isPrinted, isKept bool
	command := &cobra.Command{
		Use:   "connect NQN",
		Short: "Connect a subsystem, and say which device its namespace is",
		Long: `Connects a subsystem through the kernel, as root, with timeouts that suit a log: when the connection
breaks, the kernel removes the device (--ctrl-loss 0s), and programs that have it open get errors at once. With the
kernel's defaults, commands would wait for 600 s. An existing connection is not changed; the command names settings of
it that do not suit. Keys are read from files of mode 0600 and are never shown.`,
		Example: `  farlog host connect nqn.2026-01.com.example:desk7 --transport rdma --address 10.0.0.7 \
      --key-file /etc/farlog/nvme.key
  farlog host connect nqn.2026-01.com.example:desk7 --address 10.0.0.7 --print`,
		Args: exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			spec.NQN = args[0]
			if err := spec.Check(); err != nil {
				return usageErrorf("%s", err)
			}
			var kernel nvmehost.Kernel
			if isPrinted {
				filled, err := kernel.WithHost(spec)
				if err != nil {
					return err
				}
				fmt.Fprintln(env.stdout, filled.Command())
				return nil
			}
			if isKept {
				return env.keepDevice(cmd.Context(), kernel, spec, namespace)
			}
			device, err := kernel.Connect(cmd.Context(), spec, namespace)
			if err != nil {
				return err
			}
			return env.showDevices([]nvmehost.Device{device})
		},
	}
	flags := command.Flags()
	declareConnection(flags, &spec)
	flags.Uint32Var(&namespace, "namespace", 0, "`number` of the namespace to wait for; 0 = the only one")
	flags.BoolVar(&isKept, "keep", false,
		"keep running, and reconnect whenever the kernel has removed the device; its number changes each time")
	flags.BoolVar(&isPrinted, "print", false, "print the command of nvme-cli that does the same, and do nothing")
	return command
}

// declareConnection makes the flags of a connection to a subsystem.
func declareConnection(flags *pflag.FlagSet, spec *nvmehost.Spec) {
	flags.StringVar(&spec.Transport, "transport", spec.Transport, "`name`: "+strings.Join(nvmehost.Transports, ", "))
	flags.StringVar(&spec.Address, "address", "", "the target's IP `address`")
	flags.IntVar(&spec.Port, "port", 0, fmt.Sprintf("the target's `port` (default %d)", nvmehost.PortDefault))
	flags.StringVar(&spec.HostNQN, "host-nqn", "",
		"this host's `NQN` (default: of /etc/nvme, else made of the machine's id)")
	flags.StringVar(&spec.HostID, "host-id", "", "this host's `UUID`, with --host-nqn: it owns reservations")
	flags.StringVar(&spec.HostInterface, "host-interface", "", "network `device` to connect from (default: as routed)")
	flags.StringVar(&spec.KeyFile, "key-file", "",
		"`file` with this host's key (DH-HMAC-CHAP), or as farlog target nvmet key writes it")
	flags.StringVar(&spec.CtrlKeyFile, "ctrl-key-file", "",
		"`file` with the target's key, to authenticate the target too")
	flags.IntVar(&spec.Queues, "io-queues", 0, "`number` of queues; 0 = one for each processor")
	flags.IntVar(&spec.PollQueues, "poll-queues", 0, "`number` of additional queues that are polled")
	for _, one := range []struct {
		target *time.Duration
		name   string
		usage  string
	}{
		{&spec.Times.CtrlLoss, "ctrl-loss", "how long the kernel tries to reconnect; 0s: removes the device at once"},
		{&spec.Times.FastIOFail, "fast-io-fail", "how long commands wait while the kernel reconnects"},
		{&spec.Times.ReconnectDelay, "reconnect-delay", "time between two attempts to reconnect"},
		{&spec.Times.KeepAlive, "keep-alive", "interval of keep-alives; about two without answer end the connection"},
	} {
		flags.Var((*config.DurationValue)(one.target), one.name, one.usage)
	}
}

// keepDevice tells each device on stdout, and why there is none on stderr, until the program is to end. What is
// connected then stays.
func (e *environment) keepDevice(ctx context.Context, kernel nvmehost.Kernel, spec nvmehost.Spec, namespace uint32,
) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	var failure error
	kernel.Keep(ctx, []nvmehost.Spec{spec}, namespace, func(event nvmehost.Event) {
		switch {
		case event.IsLost:
			fmt.Fprintf(e.stderr, "farlog: the device has gone: %v\n", oneLine(event.Err))
		case event.Err != nil:
			fmt.Fprintf(e.stderr, "farlog: %v\n", oneLine(event.Err))
		default:
			failure = errors.Join(failure, e.showDevices([]nvmehost.Device{event.Device}))
		}
	})
	return failure
}

func newHostDisconnectCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:   "disconnect NQN",
		Short: "End this host's connections to a subsystem; programs that have its device open get errors",
		Args:  exactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := nvmehost.CheckNQN(args[0]); err != nil {
				return usageErrorf("%s", err)
			}
			ended, err := nvmehost.Kernel{}.Disconnect(args[0])
			for _, name := range ended {
				fmt.Fprintf(env.stdout, "%s: disconnected\n", name)
			}
			if err == nil && len(ended) == 0 {
				fmt.Fprintf(env.stderr, "subsystem %s is not connected here\n", args[0])
			}
			return err
		},
	}
}

func newHostShowCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use: "show [NQN]",
		Short: "Show the namespaces that are connected to this host, and settings of their connections that do not " +
			"suit a ring",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usageErrorf("got %d arguments, expected: %s", len(args), cmd.UseLine())
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			var list []nvmehost.Device
			for _, device := range (nvmehost.Kernel{}).Devices() {
				if len(args) == 0 || device.NQN == args[0] {
					list = append(list, device)
				}
			}
			if len(args) == 1 && len(list) == 0 {
				return errors.New("subsystem " + args[0] + ": no namespace of it is connected here")
			}
			return env.showDevices(list)
		},
	}
}

func (e *environment) showDevices(list []nvmehost.Device) error {
	if e.isJSON() {
		return e.encodeDevices(list)
	}
	table := tabwriter.NewWriter(e.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "DEVICE\tURI\tTRANSPORT\tSTATE\tADDRESS")
	for _, one := range list {
		tableRow(table, "%s\tnvme:%s/%d\t%s\t%s\t%s\n", one.Path, one.NQN, one.Namespace, one.Controller.Transport,
			one.Controller.State, orDash(one.Controller.Address))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, one := range list {
		for _, warning := range one.Warnings {
			fmt.Fprintf(e.stderr, "warning: %s: %s\n", one.Path, warning)
		}
	}
	return nil
}

func (e *environment) encodeDevices(list []nvmehost.Device) error {
	encoder := json.NewEncoder(e.stdout)
	for _, one := range list {
		warnings := one.Warnings
		if warnings == nil {
			warnings = []string{}
		}
		if err := encoder.Encode(map[string]any{
			"device": one.Path, "nqn": one.NQN, "namespace": one.Namespace, "controller": one.Controller.Name,
			"transport": one.Controller.Transport,
			"state":     one.Controller.State, "address": one.Controller.Address, "host_nqn": one.Controller.HostNQN,
			"created": one.IsNew, "warnings": warnings,
		}); err != nil {
			return err
		}
	}
	return nil
}
