package doctor

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const namespace = "/sys/block/nvme0n1"

var errSilent = errors.New("device \"/dev/nvme0n1\": ask for its health:\nOperation not permitted")

func healthy(string) (Health, error) {
	return Health{UsedRatio: 0.03, SpareRatio: 1, ThresholdRatio: 0.1}, nil
}

// wholeNamespace are the files of a host with one namespace in order.
var wholeNamespace = map[string]string{
	namespace + "/device/model": "QEMU NVMe Ctrl", namespace + "/device/transport": "pcie",
	namespace + "/device/state":             "live",
	namespace + "/queue/logical_block_size": "512", namespace + "/queue/write_cache": "write back",
	namespace + "/queue/fua":      "1",
	"/sys/block/nvme0c0n1/hidden": "1", "/dev/nvme0n1": strings.Repeat("x", readBytes-1),
	"/usr/lib/x86_64-linux-gnu/liburing.so.2": "", "/proc/sys/kernel/io_uring_disabled": "0",
}

// namespaceFaults are changes of a namespace in order, and what the doctor says of each.
var namespaceFaults = []struct {
	name, check  string
	path, change string
	health       func(string) (Health, error)
	state        State
	want         string
}{
	{"whole", "nvme nvme0n1", "", "", healthy, OK, "QEMU NVMe Ctrl, pcie, LBA 512"},
	{"whole", "nvme nvme0n1 cache", "", "", healthy, OK, "volatile; it takes writes past it (FUA)"},
	{"whole", "nvme nvme0n1 times", "", "", healthy, OK, "the median of 21 reads of 4 KiB is"},
	{
		"whole", "nvme nvme0n1 health", "", "", healthy, OK,
		"3 % of its endurance used, 100 % of its spare capacity left (it warns below 10 %)",
	},
	{"no FUA", "nvme nvme0n1 cache", namespace + "/queue/fua", "0", healthy, OK, "volatile, and no FUA"},
	{
		"no cache", "nvme nvme0n1 cache", namespace + "/queue/write_cache", "write through", healthy, OK,
		"no volatile cache, or so it says",
	},
	{"silent", "nvme nvme0n1 cache", namespace + "/queue/write_cache", "-", healthy, Warn, "does not say"},
	{
		"a state unread", "nvme nvme0n1", namespace + "/device/state", "-", healthy, Warn,
		"LBA 512: whether it is live is not seen",
	},
	{
		"one way of two", "nvme nvme0n1", namespace + "/device/nvme1/state", "connecting", healthy, Warn,
		"LBA 512: 1 of 2 paths to it are live",
	},
	{"resetting", "nvme nvme0n1", namespace + "/device/state", "resetting", healthy, Fail, "it is resetting"},
	{"gone", "nvme nvme0n1 times", "/dev/nvme0n1", "-", healthy, Fail, "no such file"},
	{
		"untold", "nvme nvme0n1 health", "", "", func(string) (Health, error) { return Health{}, errSilent }, Warn,
		"health: Operation not permitted",
	},
	{
		"worn", "nvme nvme0n1 health", "", "", func(string) (Health, error) { return Health{UsedRatio: 0.8}, nil },
		Warn, "80 % of its endurance",
	},
	{"warning", "nvme nvme0n1 health", "", "", func(string) (Health, error) {
		return Health{CriticalWarning: 0x18},
			nil
	}, Fail, "it takes no more writes, the backup of its volatile memory has failed: 0 %"},
	{
		"no library", "io_uring library", "/usr/lib/x86_64-linux-gnu/liburing.so.2", "-", healthy, Warn,
		"liburing.so.2 is not installed",
	},
	{"root alone", "io_uring", "/proc/sys/kernel/io_uring_disabled", "1", healthy, Warn, "only for root"},
	{"forbidden", "io_uring", "/proc/sys/kernel/io_uring_disabled", "2", healthy, Warn, "forbidden"},
}

func TestNVMe_EachFaultIsFoundAndNothingElse(t *testing.T) {
	for _, test := range namespaceFaults {
		t.Run(test.name, func(t *testing.T) {
			files := map[string]string{}
			for path, content := range wholeNamespace {
				if path != test.path || test.change != "-" {
					files[path] = content
				}
			}
			if test.change != "" && test.change != "-" {
				files[test.path] = test.change
			}
			findings := tree(t, files).NVMe(test.health)
			if got := find(findings, "nvme nvme0n1 times"); strings.Contains(got.Reason, "invalid argument") {
				t.Skipf("the file system of tests has no O_DIRECT: %s", got.Reason)
			}
			if got := find(findings, test.check); got.State != test.state || !strings.Contains(got.Reason, test.want) ||
				got.State == Fail && got.Remedy == "" {
				t.Errorf("got %+v", got)
			}
			for _, one := range findings {
				if one.State != OK && one.Check != test.check || strings.Contains(one.Check, "nvme0c0n1") {
					t.Errorf("found as well: %+v", one)
				}
			}
		})
	}
	if got := tree(t, map[string]string{"/proc/sys/kernel/io_uring_disabled": "2"}).NVMe(healthy); len(got) != 0 {
		t.Errorf("without a device: %+v", got)
	}
}

// A setting that is not there, as in kernels before 6.6, says nothing; nor does one that allows what a container is
// refused.
func TestNVMe_IOUringIsTriedAndNotBelieved(t *testing.T) {
	for _, setting := range []string{"", "0"} {
		h := tree(t, map[string]string{
			"/proc/sys/kernel/io_uring_disabled":      setting,
			"/usr/lib/x86_64-linux-gnu/liburing.so.2": "",
		})
		if got := find(h.ioUring(), "io_uring"); got.State != OK {
			t.Errorf("%q: %+v", setting, got)
		}
		h.tried = func() error { return unix.ENOSYS }
		if got := find(h.ioUring(), "io_uring"); got.State != Warn ||
			!strings.Contains(got.Reason, "function not implemented") || got.Remedy == "" {
			t.Errorf("%q and refused: %+v", setting, got)
		}
	}
	if err := tryIOUring(); err != nil && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.ENOSYS) {
		t.Errorf("on this machine: %v", err)
	}
}
