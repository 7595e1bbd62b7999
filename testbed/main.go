// Command testbed boots virtual machines with SoftRoCE, persistent memory and PCI memory, joins them by a wire, and
// runs farlog's own programs in them through kills, cuts, loss and fencing: what cannot be proved in one process on one
// machine. `make testbed` makes what it needs and runs it; README.md tells how to run one scenario and how to get a
// shell in a guest.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/farlog/farlog/testbed/vm"
)

type options struct {
	rootDir  string
	programs string
	result   string
	failed   string
	accel    string
	seed     uint64
	room     int
	isList   bool
	isShell  bool
}

func main() {
	var o options
	flag.StringVar(&o.rootDir, "root", "", "`folder` that testbed/root.sh made")
	flag.StringVar(&o.programs, "programs", "", "`image` that testbed/programs.sh made")
	flag.StringVar(&o.result, "result", "build/testbed.json", "`file` for the results, one line a scenario")
	flag.StringVar(&o.failed, "failed", "build/testbed/failed", "`folder` for the consoles and logs of what failed")
	flag.StringVar(&o.accel, "accel", "", "tcg or kvm (default: kvm where a probe guest boots)")
	flag.Uint64Var(&o.seed, "seed", 0, "seed of everything random (default: a new one, printed)")
	flag.IntVar(&o.room, "room", max(2*runtime.NumCPU(), guestsMost),
		"`guests` that may run at a time: scenarios run side by side as far as that goes")
	flag.BoolVar(&o.isList, "list", false, "print the scenarios and end")
	flag.BoolVar(&o.isShell, "shell", false, "boot a guest and give a shell in it")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o, flag.Args())
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "testbed: %v\n", err)
		os.Exit(1)
	}
}

func say(format string, args ...any) {
	fmt.Printf("testbed: "+format+"\n", args...)
}

func run(ctx context.Context, o options, names []string) error {
	if o.isList {
		for _, s := range scenarios {
			fmt.Printf("%-24s %s\n", s.name, s.what)
		}
		for _, s := range namedScenarios {
			fmt.Printf("%-24s %s (only when it is named)\n", s.name, s.what)
		}
		return nil
	}
	chosen, err := choose(names)
	if err != nil {
		return err
	}
	image := vm.Image{
		Kernel: filepath.Join(o.rootDir, "vmlinuz"), Initrd: filepath.Join(o.rootDir, "initrd"),
		Root: filepath.Join(o.rootDir, "root.img"), Programs: o.programs,
	}
	newer := image.Newer()
	for _, path := range []string{image.Kernel, image.Initrd, newer.Kernel, newer.Initrd, image.Root, image.Programs} {
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("%w; testbed/run.sh makes it", err)
		}
	}
	// Not below build/: the path of a socket has at most 107 bytes.
	dir, err := os.MkdirTemp("", "farlog-testbed-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	accel, err := chooseAccel(ctx, o.accel, image, dir)
	if err != nil {
		return err
	}
	if o.isShell {
		return shell(image, dir, accel)
	}
	if o.seed == 0 {
		o.seed = rand.Uint64N(1 << 32)
	}
	say("seed %d: -seed %d, or SEED=%d with make, draws the same", o.seed, o.seed, o.seed)
	return runAll(ctx, o, chosen, func(s scenario) (*bed, error) {
		return newBed(filepath.Join(dir, s.name), s.name, image, accel, o.seed)
	})
}

func choose(names []string) ([]scenario, error) {
	if len(names) == 0 {
		return scenarios, nil
	}
	var chosen []scenario
	all := slices.Concat(scenarios, namedScenarios)
	for _, name := range names {
		at := slices.IndexFunc(all, func(s scenario) bool { return s.name == name })
		if at < 0 {
			var known []string
			for _, s := range all {
				known = append(known, s.name)
			}
			return nil, fmt.Errorf("unknown scenario %q; expected %s", name, strings.Join(known, ", "))
		}
		chosen = append(chosen, all[at])
	}
	return chosen, nil
}

func chooseAccel(ctx context.Context, asked string, image vm.Image, dir string) (vm.Accel, error) {
	switch vm.Accel(asked) {
	case vm.TCG, vm.KVM:
		return vm.Accel(asked), nil
	case "":
		accel, reason := vm.Probe(ctx, image, dir)
		say("guests run by %s: %s", accel, reason)
		return accel, ctx.Err()
	default:
		return "", fmt.Errorf("-accel %q: expected tcg or kvm", asked)
	}
}
