package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	readBytes    = 4096
	wearSoon     = 0.8 // of a device's endurance: time to order another one
	writeThrough = "write through"
)

// Health is what an NVMe device says of itself in its health page (SMART, 02h). Ratios are of 1.
type Health struct {
	UsedRatio, SpareRatio, ThresholdRatio float64
	CriticalWarning                       uint32
}

// criticalWarnings are the bits of the page's first byte: NVM Express Base Specification 2.0, figure 207.
var criticalWarnings = []string{
	"its spare capacity is below its threshold", "its temperature is out of bounds",
	"its reliability is degraded", "it takes no more writes",
	"the backup of its volatile memory has failed", "its persistent memory region is read-only or unreliable",
}

// NVMe looks at the NVMe namespaces of this host, local ones and those of fabrics: cache, times, and what health tells
// of each. It reads from them, and has them flush.
func (h Host) NVMe(health func(device string) (Health, error)) (findings []Finding) {
	for _, block := range h.glob("/sys/block/nvme*n*") {
		if h.read(block+"/hidden") == "1" { // a path of a device that is shown
			continue
		}
		findings = append(findings, h.namespace(block)...)
		findings = append(findings, healthFinding(path.Base(block), health))
	}
	if len(findings) > 0 {
		findings = append(findings, h.ioUring()...)
	}
	return findings
}

func (h Host) namespace(block string) []Finding {
	name := "nvme " + path.Base(block)
	words := []string{
		h.read(block + "/device/model"), h.read(block + "/device/transport"),
		"LBA " + h.read(block+"/queue/logical_block_size"),
	}
	text := strings.Join(compact(words), ", ")
	const remedy = "farlog host show, or nvme list -v"
	live, states := h.paths(block)
	whole := Finding{name, OK, text, ""}
	switch {
	case len(states) == 0:
		whole = Finding{name, Warn, text + ": whether it is live is not seen", remedy}
	case live == 0:
		return []Finding{{name, Fail, text + ": it is " + strings.Join(states, ", "), remedy}}
	case live < len(states):
		whole = Finding{name, Warn, fmt.Sprintf("%s: %d of %d paths to it are live", text, live, len(states)), remedy}
	}
	return []Finding{whole, h.namespaceCache(name, block), h.times(name, "/dev/"+path.Base(block))}
}

// paths tells how the controllers of a namespace are: its own, or of one with several ways those of its subsystem.
func (h Host) paths(block string) (live int, states []string) {
	for _, place := range append([]string{block + "/device/state"}, h.glob(block+"/device/nvme*/state")...) {
		switch state := h.read(place); state {
		case "":
		case "live":
			live++
			fallthrough
		default:
			states = append(states, state)
		}
	}
	return live, states
}

func (h Host) namespaceCache(name, block string) Finding {
	mode, fua := h.read(block+"/queue/write_cache"), h.read(block+"/queue/fua")
	switch {
	case mode == "":
		return Finding{
			name + " cache", Warn, "the device does not say whether it has a volatile cache",
			"nvme id-ctrl: vwc",
		}
	case mode == writeThrough:
		return Finding{name + " cache", OK, "no volatile cache, or so it says", ""}
	case fua == "1":
		return Finding{name + " cache", OK, "volatile; it takes writes past it (FUA), as a ring there does", ""}
	}
	return Finding{name + " cache", OK, "volatile, and no FUA: a ring there has it flushed at each append", ""}
}

// times measures what destroys nothing. An append is a write past the cache, which nobody but the owner of the device
// may try.
func (h Host) times(name, device string) Finding {
	name += " times"
	read, flush, err := measureDevice(h.path(device))
	switch {
	case errors.Is(err, fs.ErrPermission):
		return Finding{
			name, Warn, "this user may not open it, nor a ring on it",
			"run it as root, or as a member of the device's group",
		}
	case err != nil:
		return Finding{name, Fail, err.Error(), "look at dmesg, and at nvme smart-log " + device}
	}
	finding := Finding{name, OK, fmt.Sprintf("the median of %d reads of 4 KiB is %s, of as many flushes %s",
		syncSamples, read.Round(time.Microsecond), flush.Round(time.Microsecond)), ""}
	if max(read, flush) > syncSlow {
		finding.State, finding.Remedy = Warn, "check what else uses it, and its temperature: nvme smart-log "+device
	}
	return finding
}

func measureDevice(device string) (read, flush time.Duration, err error) {
	file, err := os.OpenFile(device, os.O_RDONLY|unix.O_DIRECT, 0) // the kernel lets a reader flush, too
	if err != nil {
		return 0, 0, err
	}
	defer file.Close()
	// The kernel reads into whole pages only.
	page, err := unix.Mmap(-1, 0, readBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return 0, 0, err
	}
	defer unix.Munmap(page)
	read, err = medianOf(func() error { _, err := file.ReadAt(page, 0); return err })
	if err == nil {
		flush, err = medianOf(func() error { return unix.Fdatasync(int(file.Fd())) })
	}
	return read, flush, err
}

func healthFinding(block string, health func(device string) (Health, error)) Finding {
	name, device := "nvme "+block+" health", "/dev/"+block
	said, err := health(device)
	if err != nil {
		return Finding{
			name, Warn, strings.Join(strings.Fields(err.Error()), " "),
			"run it as root; nvme smart-log " + device,
		}
	}
	var warnings []string
	for bit, text := range criticalWarnings {
		if said.CriticalWarning>>bit&1 != 0 {
			warnings = append(warnings, text)
		}
	}
	text := fmt.Sprintf("%.0f %% of its endurance used, %.0f %% of its spare capacity left (it warns below %.0f %%)",
		100*said.UsedRatio, 100*said.SpareRatio, 100*said.ThresholdRatio)
	const remedy = "bring its rings to another device, and replace it"
	switch {
	case len(warnings) > 0:
		return Finding{name, Fail, strings.Join(warnings, ", ") + ": " + text, remedy}
	case said.UsedRatio >= wearSoon:
		return Finding{name, Warn, text, remedy}
	}
	return Finding{name, OK, text, ""}
}

// ioUring is what rings in namespaces are written by.
func (h Host) ioUring() (findings []Finding) {
	if !h.hasLibrary("liburing.so.2") {
		findings = append(findings, Finding{
			"io_uring library", Warn, "liburing.so.2 is not installed: nvme: needs it",
			"apt-get install liburing2",
		})
	}
	const remedy = "sysctl kernel.io_uring_disabled=0"
	switch h.read("/proc/sys/kernel/io_uring_disabled") {
	case "1":
		return append(findings, Finding{
			"io_uring", Warn,
			"only for root and the group kernel.io_uring_group: nvme: needs it", remedy,
		})
	case "2":
		return append(findings, Finding{"io_uring", Warn, "forbidden on this host: nvme: does not work", remedy})
	}
	tried := h.tried
	if tried == nil {
		tried = tryIOUring
	}
	if err := tried(); err != nil {
		return append(findings, Finding{
			"io_uring", Warn,
			"this process was refused it: " + err.Error() + ": nvme: needs it",
			"a kernel with CONFIG_IO_URING; a container's seccomp profile that allows io_uring_setup",
		})
	}
	return append(findings, Finding{"io_uring", OK, "allowed", ""})
}

// tryIOUring asks the kernel for nothing: it looks at what it was given only when the caller may have a ring at all.
// The setting alone does not tell, kernels before 6.6 have none, and a container may be refused beside it.
func tryIOUring() error {
	_, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 0, 0, 0)
	if errno == unix.EFAULT || errno == unix.EINVAL {
		return nil
	}
	return errno
}

func compact(words []string) (kept []string) {
	for _, word := range words {
		if word != "" {
			kept = append(kept, word)
		}
	}
	return kept
}
