package nvmehost

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Kernel is where the kernel shows itself. Its methods may be called from any goroutine; two that connect the same
// subsystem at once are the caller's to avoid.
type Kernel struct {
	Root string // before /sys, /dev and /etc; "" = this host. For tests.
}

const (
	scanInterval = 20 * time.Millisecond
	scanLimit    = 5 * time.Second // from a connection to its namespace
)

// Connect connects a subsystem and returns its namespace, 0 = the only one. What is connected already stays, whoever
// did it: its warnings say what does not suit. It blocks while the kernel does: some seconds for a host that does not
// answer. Errors: *Error.
func (k Kernel) Connect(ctx context.Context, s Spec, namespace uint32) (Device, error) {
	if err := s.Check(); err != nil {
		return Device{}, err
	}
	s, err := k.WithHost(s)
	if err != nil {
		return Device{}, err
	}
	isThere, err := k.present(s)
	if err != nil {
		return Device{}, err
	}
	if !isThere {
		if err := k.connect(s); err != nil {
			return Device{}, err
		}
	}
	device, err := k.await(ctx, s, namespace)
	device.IsNew = !isThere
	return device, err
}

// present reports whether this host has its connection to the subsystem, and refuses to make a second path of what
// would be one device.
func (k Kernel) present(s Spec) (bool, error) {
	others := ""
	for _, one := range k.Controllers() {
		if one.NQN != s.NQN || strings.HasPrefix(one.State, "deleting") || one.State == "dead" {
			continue
		}
		if one.HostNQN == s.HostNQN {
			return true, nil
		}
		others = one.Name + " of host NQN " + one.HostNQN
	}
	if others != "" && k.isMultipath() {
		return false, &Error{NQN: s.NQN, Reason: ErrMultipath, text: "it is connected already, as " + others +
			": with nvme_core.multipath=Y a second connection becomes a second path of the same device: disconnect " +
			"the first, or boot with nvme_core.multipath=N"}
	}
	return false, nil
}

func (k Kernel) connect(s Spec) error {
	line := strings.Join(s.fields(), ",")
	found, err := s.readKeys()
	if err != nil {
		return &Error{NQN: s.NQN, Reason: ErrKey, text: err.Error()}
	}
	if found.host != "" {
		line += ",dhchap_secret=" + found.host
	}
	if found.ctrl != "" {
		line += ",dhchap_ctrl_secret=" + found.ctrl
	}
	file, err := os.OpenFile(filepath.Join(k.Root, "/dev/nvme-fabrics"), os.O_RDWR, 0)
	switch {
	case errors.Is(err, os.ErrPermission):
		return s.explain(syscall.EACCES, "")
	case err != nil:
		return &Error{NQN: s.NQN, Reason: ErrMissing, text: fmt.Sprintf("%v: the kernel has no NVMe over fabrics, or "+
			"has not loaded it: modprobe nvme-%s", err, s.Transport)}
	}
	defer file.Close()
	log := k.openLog()
	_, err = file.WriteString(line)
	said := log.close()
	if err == nil || errors.Is(err, syscall.EALREADY) {
		return nil
	}
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		errno = syscall.EIO
	}
	return s.explain(errno, said)
}

// await waits for the device: the kernel looks for namespaces after it has connected.
func (k Kernel) await(ctx context.Context, s Spec, namespace uint32) (Device, error) {
	ctx, cancel := context.WithTimeout(ctx, scanLimit)
	defer cancel()
	for {
		device, err := k.find(s.NQN, s.HostNQN, namespace)
		if err == nil {
			return device, nil
		}
		select {
		case <-ctx.Done():
			return Device{}, err
		case <-time.After(scanInterval):
		}
	}
}

// Find returns a namespace that is connected here, 0 = the only one of its subsystem.
func (k Kernel) Find(nqn string, namespace uint32) (Device, error) {
	if err := CheckNQN(nqn); err != nil {
		return Device{}, err
	}
	return k.find(nqn, "", namespace)
}

func (k Kernel) find(nqn, hostNQN string, namespace uint32) (Device, error) {
	var found []Device
	for _, device := range k.Devices() {
		if device.NQN == nqn && (namespace == 0 || device.Namespace == namespace) &&
			(hostNQN == "" || device.Controller.HostNQN == hostNQN) {
			found = append(found, device)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return Device{}, fmt.Errorf("subsystem %s: %s and %s fit: name the namespace, or disconnect one of two "+
			"connections", nqn, found[0].Path, found[1].Path)
	case namespace != 0:
		return Device{}, fmt.Errorf("subsystem %s: namespace %d is not connected here, or is not enabled at its target",
			nqn, namespace)
	}
	return Device{}, fmt.Errorf("subsystem %s: no namespace of it is connected here, or is enabled at its target", nqn)
}

// Disconnect ends all connections of this host to a subsystem, and returns their names. Whoever has a device of it open
// gets errors from then on.
func (k Kernel) Disconnect(nqn string) ([]string, error) {
	if err := CheckNQN(nqn); err != nil {
		return nil, err
	}
	var ended []string
	for _, one := range k.Controllers() {
		if one.NQN != nqn {
			continue
		}
		path := filepath.Join(k.Root, "/sys/class/nvme", one.Name, "delete_controller")
		if err := os.WriteFile(path, []byte("1"), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
			return ended, fmt.Errorf("disconnect subsystem %s: %w", nqn, err)
		}
		ended = append(ended, one.Name)
	}
	return ended, nil
}
