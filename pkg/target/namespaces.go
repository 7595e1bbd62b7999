package target

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/nvmet"
)

// namespaceLenMin is the least size of a device with a directory of rings and one ring in it.
const namespaceLenMin = 1 << 20

// hasDeclaration reports whether a message has what is declared of this host: those of older control planes and files
// do not say so.
func hasDeclaration(message *api.WatchRingsResponse) bool {
	return message.GetNamespacesDeclared() || len(message.GetNamespaces()) > 0
}

// carryNamespaces keeps what was declared before in a message without a declaration: a control plane that has lost its
// state knows of no target. Only what is declared ends an export.
func (t *Target) carryNamespaces(message *api.WatchRingsResponse) {
	if before := t.declared; !hasDeclaration(message) && before != nil {
		message.Namespaces, message.Ports, message.NamespacesDeclared = before.Namespaces, before.Ports, true
	}
}

// declareNamespaces hands what the fabric declares of this host to whoever keeps the kernel's NVMe target.
func (t *Target) declareNamespaces(message *api.WatchRingsResponse) {
	if !hasDeclaration(message) {
		return
	}
	t.declared = message
	exported := make(map[string]*api.Namespace, len(message.Namespaces))
	for _, one := range message.Namespaces {
		exported[one.Subsystem] = one
	}
	t.mutex.Lock()
	t.exported = exported
	t.mutex.Unlock()
	t.requestProbe()
	if t.config.Exports == nil {
		return
	}
	namespaces := make([]nvmet.FabricNamespace, len(message.Namespaces))
	for i, one := range message.Namespaces {
		namespaces[i] = nvmet.FabricNamespace{
			Name: one.Name, Device: one.Device, NQN: one.Subsystem, IsEvicting: one.Evict,
		}
		for _, host := range one.Hosts {
			namespaces[i].Hosts = append(namespaces[i].Hosts, nvmet.DeclaredHost{NQN: host.Nqn, Auth: auths[host.Auth]})
		}
	}
	ports := make([]nvmet.FabricPort, len(message.Ports))
	for i, port := range message.Ports {
		ports[i] = nvmet.FabricPort{Transport: port.Transport, Address: port.Address, Service: int(port.Service)}
	}
	t.config.Exports.Declare(namespaces, ports)
}

// auths are the words of nvmet; one that is not specified has its default.
var auths = map[api.Authentication]string{
	api.Authentication_AUTHENTICATION_BOTH: "both", api.Authentication_AUTHENTICATION_HOST: "host",
	api.Authentication_AUTHENTICATION_NONE: "none",
}

// namespaces are those that the fabric declares of this host, as they are now.
func (t *Target) namespaces() (states []*api.NamespaceState) {
	if t.config.Exports == nil {
		return nil
	}
	seen := t.config.Exports.Namespaces()
	t.mutex.Lock()
	defer t.mutex.Unlock()
	for _, one := range seen {
		space := t.spaces[one.Device]
		states = append(states, &api.NamespaceState{
			Name: one.Name, Subsystem: one.NQN, Device: one.Device, SizeBytes: one.SizeBytes,
			Exported: one.IsExported, Reservations: one.HasReservations, Error: one.Error,
			Level: space.level, FreeBytes: space.free, RingError: space.failure,
		})
	}
	return states
}

// Usable refuses a device that is in use, too small, or holds what is not farlog's. It is asked before the kernel
// exports the device.
func (Rings) Usable(device string) error {
	size, err := lenOfFree(device)
	if err != nil {
		return fmt.Errorf("device %s: %w", device, err)
	}
	if size < namespaceLenMin {
		return fmt.Errorf("device %s has %d bytes: expected at least %d", device, size, namespaceLenMin)
	}
	_, err = farlog.ListRegion("nvme:" + device)
	if err == nil || errors.Is(err, farlog.ErrExists) {
		return nil // rings of farlog, or one
	}
	if !errors.Is(err, farlog.ErrNotARing) && !errors.Is(err, farlog.ErrNotFound) {
		return fmt.Errorf("device %s: %w", device, err)
	}
	holds, err := farlog.DeviceContents(device)
	switch {
	case err != nil:
		return err
	case holds != "":
		return fmt.Errorf("device %s holds %s: expected one that is empty or has rings of farlog: declare another "+
			"device, or erase it: wipefs -a %s", device, holds, device)
	}
	return nil
}

// lenOfFree is the size of a plain file, or of a block device that nothing uses.
func lenOfFree(device string) (int64, error) {
	info, err := os.Stat(device)
	if err != nil {
		return 0, errors.Unwrap(err)
	}
	flags := os.O_RDONLY
	switch mode := info.Mode(); {
	case mode.IsRegular():
	case mode&os.ModeDevice != 0 && mode&os.ModeCharDevice == 0:
		flags |= os.O_EXCL // refused while it is mounted, or part of another device
	default:
		return 0, errors.New("expected a block device or a plain file")
	}
	file, err := os.OpenFile(device, flags, 0)
	if errors.Is(err, unix.EBUSY) {
		return 0, errors.New("it is in use: mounted, used for swap, or part of another device: free it first, or " +
			"declare another device")
	}
	if err != nil {
		return 0, errors.Unwrap(err)
	}
	defer file.Close()
	return file.Seek(0, 2)
}
