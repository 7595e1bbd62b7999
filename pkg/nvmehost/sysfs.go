package nvmehost

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Controller is one connection of this host to a subsystem, whoever made it.
type Controller struct {
	Name, NQN, Transport, Address, State, HostNQN, HostID string

	CtrlLoss, FastIOFail, ReconnectDelay string // seconds, or "off"
	KeepAlive                            string
}

// Device is a namespace that is connected here.
type Device struct {
	Path       string // /dev/nvme1n1
	Name       string
	NQN        string
	Namespace  uint32
	Controller Controller
	IsNew      bool     // Connect has made the connection
	Warnings   []string // what of the connection does not suit a log that somebody waits for
}

func (k Kernel) readLine(path string) string {
	raw, err := os.ReadFile(filepath.Join(k.Root, path))
	if err != nil || len(raw) > 4096 {
		return ""
	}
	line, _, _ := strings.Cut(string(raw), "\n")
	return strings.TrimSpace(line)
}

// Controllers lists the connections of fabrics. Local devices are none.
func (k Kernel) Controllers() []Controller {
	entries, err := os.ReadDir(filepath.Join(k.Root, "/sys/class/nvme"))
	if err != nil {
		return nil
	}
	var list []Controller
	for _, entry := range entries {
		if one := k.controller(entry.Name()); one.Transport != "" && one.Transport != "pcie" {
			list = append(list, one)
		}
	}
	return list
}

func (k Kernel) controller(name string) Controller {
	read := func(attribute string) string { return k.readLine("/sys/class/nvme/" + name + "/" + attribute) }
	return Controller{
		Name: name, NQN: read("subsysnqn"), Transport: read("transport"), Address: read("address"),
		State:   read("state"),
		HostNQN: read("hostnqn"), HostID: read("hostid"), CtrlLoss: read("ctrl_loss_tmo"),
		FastIOFail:     read("fast_io_fail_tmo"),
		ReconnectDelay: read("reconnect_delay"), KeepAlive: read("kato"),
	}
}

// Devices lists the namespaces of fabrics that are block devices here. With native multipathing a device is the
// subsystem's and has one of its controllers.
func (k Kernel) Devices() []Device {
	entries, err := os.ReadDir(filepath.Join(k.Root, "/sys/block"))
	if err != nil {
		return nil
	}
	controllers := k.Controllers()
	var list []Device
	for _, entry := range entries {
		name := entry.Name()
		// nvme0c0n1 are the hidden paths of nvme0n1.
		if !strings.HasPrefix(name, "nvme") || k.readLine("/sys/block/"+name+"/hidden") == "1" {
			continue
		}
		nsid, err := strconv.ParseUint(k.readLine("/sys/block/"+name+"/nsid"), 10, 32)
		nqn := k.readLine("/sys/block/" + name + "/device/subsysnqn")
		i := k.controllerOf(name, nqn, controllers)
		if err != nil || i < 0 {
			continue
		}
		device := Device{
			Path: "/dev/" + name, Name: name, NQN: nqn, Namespace: uint32(nsid),
			Controller: controllers[i],
		}
		device.Warnings = k.warnings(device)
		list = append(list, device)
	}
	return list
}

// controllerOf is the index of the one that a device stands on: by name without multipathing, else by subsystem.
func (k Kernel) controllerOf(device, nqn string, controllers []Controller) int {
	if target, err := os.Readlink(filepath.Join(k.Root, "/sys/block", device, "device")); err == nil {
		if i := slices.IndexFunc(controllers,
			func(c Controller) bool { return c.Name == filepath.Base(target) }); i >= 0 {
			return i
		}
	}
	return slices.IndexFunc(controllers, func(c Controller) bool { return c.NQN == nqn })
}

func (k Kernel) isMultipath() bool {
	return k.readLine("/sys/module/nvme_core/parameters/multipath") == "Y"
}

// warnings are one line each, with the remedy: the kernel lets most of these be changed while the connection lives.
func (k Kernel) warnings(d Device) []string {
	var list []string
	sys := "/sys/class/nvme/" + d.Controller.Name + "/"
	if loss := d.Controller.CtrlLoss; loss != "0" && loss != "" && d.Controller.Transport != "loop" {
		list = append(list, "ctrl_loss_tmo is "+loss+": a connection that breaks comes back as the same device, with "+
			"old commands, also to a target that was started again and has forgotten its reservations: echo 0 "+
			">"+sys+"ctrl_loss_tmo")
		if fail := d.Controller.FastIOFail; fail == "off" || isAbove(fail, 5) {
			list = append(
				list,
				"fast_io_fail_tmo is "+fail+": commands wait for a broken connection as long: echo 1 "+
					">"+sys+"fast_io_fail_tmo",
			)
		}
	}
	if alive := d.Controller.KeepAlive; alive == "0" || isAbove(alive, 10) {
		list = append(list,
			"keep_alive_tmo is "+alive+" s: a silent target is noticed late: disconnect and connect it again")
	}
	if removal := k.readLine("/sys/block/" + d.Name + "/delayed_removal_secs"); removal != "" && removal != "0" {
		list = append(
			list,
			"delayed_removal_secs is "+removal+": commands wait without a path: echo 0 "+
				">/sys/block/"+d.Name+"/delayed_removal_secs",
		)
	}
	if paths := k.pathsOf(d.NQN); k.isMultipath() && paths > 1 {
		list = append(list, "the subsystem has "+strconv.Itoa(paths)+" paths: a command may be sent a second time, "+
			"late, by another one: disconnect all but one")
	}
	return list
}

func (k Kernel) pathsOf(nqn string) int {
	count := 0
	for _, one := range k.Controllers() {
		if one.NQN == nqn {
			count++
		}
	}
	return count
}

func isAbove(seconds string, most int) bool {
	number, err := strconv.Atoi(seconds)
	return err == nil && number > most
}
