package main

import (
	"os"
	"os/exec"
	"path/filepath"

	"github.com/farlog/farlog/testbed/vm"
)

// shell gives the terminal to a guest that has everything a scenario's guests have.
func shell(image vm.Image, dir string, accel vm.Accel) error {
	wire := vm.NewWire(dir, 0)
	defer wire.Close()
	port, err := wire.Plug("shell")
	if err != nil {
		return err
	}
	o := vm.Options{
		Name: "shell", Image: image, Dir: dir, Accel: accel, CPUs: 2, MemoryMiB: 1024, Port: port, MTU: mtu,
		MAC:    macOf(addresses["host"]),
		NVDIMM: vm.Memory{Path: filepath.Join(dir, "shell.nvdimm"), SizeBytes: nvdimmLen},
		BAR:    vm.Memory{Path: filepath.Join(dir, "shell.bar"), SizeBytes: barLen},
	}
	arguments, err := o.Interactive()
	if err != nil {
		return err
	}
	say("a shell in a guest; try dax-up, rxe-up 10.7.0.1/24, bar, farlog. exit ends it, or Ctrl-A X")
	cmd := exec.Command("qemu-system-x86_64", arguments...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd.Run()
}
