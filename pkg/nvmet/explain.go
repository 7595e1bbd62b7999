package nvmet

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"syscall"
)

// oneLine is an error as a report has it.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// objectOf names the subsystem, port or host that a path belongs to, with the namespace.
func objectOf(where string) string {
	parts := strings.Split(where, "/")
	if len(parts) < 2 {
		return where
	}
	name := strings.TrimSuffix(parts[0], "s") + " " + parts[1]
	if len(parts) > 3 && parts[2] == "namespaces" {
		name += " namespace " + parts[3]
	}
	return name
}

// lacking says what of the kernel's is missing for an attribute that is not there.
func lacking(step Step) string {
	switch name := path.Base(step.Path); {
	case name == "resv_enable":
		return "this kernel's NVMe target has no reservations (resv_enable, Linux 6.13 or later): a host is fenced " +
			"by ending its connections"
	case strings.HasPrefix(name, "dhchap_"):
		return "this kernel's NVMe target has no DH-HMAC-CHAP (CONFIG_NVME_TARGET_AUTH): hosts could only be " +
			"admitted by their names, auth: none"
	default:
		return fmt.Sprintf("this kernel's NVMe target has no attribute %s", name)
	}
}

// explain names the object and the attribute, has the kernel's answer, and what probably mends it. A secret is never
// part of it.
func explain(step Step, cause error) error {
	cause = bare(cause)
	what := fmt.Sprintf("%s %s", step.Op, path.Base(step.Path))
	switch {
	case step.Op == Write && step.isSecret:
		what = "write " + path.Base(step.Path)
	case step.Op == Write:
		what = fmt.Sprintf("write %s %q", path.Base(step.Path), step.Value)
	case step.Op == Link && strings.HasPrefix(step.Path, "ports/"):
		what = "open it for subsystem " + path.Base(step.Path)
	case step.Op == Link:
		what = "allow host " + path.Base(step.Path)
	}
	text := fmt.Sprintf("%s: %s", objectOf(step.Path), what)
	if hint := hintOf(step, cause); hint != "" {
		return fmt.Errorf("%s: %w: %s", text, cause, hint)
	}
	return fmt.Errorf("%s: %w", text, cause)
}

func hintOf(step Step, cause error) string {
	name := path.Base(step.Path)
	is := func(errno syscall.Errno) bool { return errors.Is(cause, errno) }
	switch {
	case is(syscall.EACCES) && strings.HasPrefix(name, "addr_"):
		return "the port is in use"
	case is(syscall.EACCES) || is(syscall.EPERM):
		return "the NVMe target is the super-user's: run this as root"
	case step.Op == Write && is(syscall.ENOENT) && name != "enable":
		return lacking(step)
	case step.Op == Link && strings.HasPrefix(step.Path, "ports/"):
		return portHint(is)
	case name == "enable" && is(syscall.ENOENT):
		return "device_path names nothing that is there"
	case name == "enable" && is(syscall.EINVAL):
		return "expected device_path to be a block device or a plain file that is not empty"
	case name == "enable" && is(syscall.EBUSY):
		return "the device is in use by something else: a file system, another target"
	case strings.HasPrefix(name, "dhchap_") && is(syscall.EINVAL):
		return "expected a form, hash or group that this kernel knows; a group needs its crypto module (modprobe " +
			"dh_generic)"
	case strings.HasPrefix(name, "attr_") && is(syscall.EINVAL):
		return "the kernel does not know the value, or does not change it any more because a host has seen the " +
			"subsystem: remove the subsystem and apply again"
	case step.Op == Rmdir && is(syscall.EBUSY):
		return "something else still names it"
	}
	return ""
}

func portHint(is func(syscall.Errno) bool) string {
	switch {
	case is(syscall.EADDRNOTAVAIL):
		return "no interface of this host has the port's address"
	case is(syscall.EADDRINUSE):
		return "something else listens at the port's address and service"
	case is(syscall.ENODEV):
		return "no RDMA device has the port's address: rdma link"
	case is(syscall.EINVAL):
		return "the transport's module is missing (modprobe nvmet-rdma, nvmet-tcp or nvme-loop), or the port's " +
			"address or service is not one of that transport"
	}
	return ""
}
