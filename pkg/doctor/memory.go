package doctor

import (
	"fmt"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	filesLeast = 4096
	unlimited  = ^uint64(0)
)

// limits are those of this process: a daemon of systemd has its own.
func (h Host) limits() []Finding {
	return []Finding{h.memlock(), openFiles()}
}

func openFiles() Finding {
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return Finding{"open files", Warn, "not seen: " + err.Error(), "ulimit -n"}
	}
	if files.Max < filesLeast {
		return Finding{
			"open files", Warn, fmt.Sprintf("at most %d: each ring and connection is one", files.Max),
			"LimitNOFILE=65536 in the unit, ulimit -n 65536 in a shell",
		}
	}
	return Finding{"open files", OK, fmt.Sprintf("%d, at most %d", files.Cur, files.Max), ""}
}

func (h Host) memlock() Finding {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
		return Finding{"locked memory", Warn, "the limit cannot be read: " + err.Error(), "ulimit -l"}
	}
	return memlockFinding(limit.Cur, h.mayLockAll(), len(h.glob("/sys/class/infiniband/*")) > 0,
		len(h.glob("/sys/block/nvme*n*")) > 0)
}

// mayLockAll: the kernel asks a process that has CAP_IPC_LOCK for no limit when it pins memory for a device.
func (h Host) mayLockAll() bool {
	for _, line := range strings.Split(h.read("/proc/self/status"), "\n") {
		if mask, ok := strings.CutPrefix(line, "CapEff:"); ok {
			bits, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
			return err == nil && bits>>unix.CAP_IPC_LOCK&1 != 0
		}
	}
	return false
}

func memlockFinding(limit uint64, mayLockAll, hasRDMA, hasNVMe bool) Finding {
	const remedy = "LimitMEMLOCK=infinity in the unit, ulimit -l unlimited in a shell, --ulimit memlock=-1 of a " +
		"container"
	switch {
	case limit == unlimited:
		return Finding{"locked memory", OK, "unlimited", ""}
	case mayLockAll:
		return Finding{
			"locked memory", OK,
			fmt.Sprintf("%d bytes, which bind no process that has CAP_IPC_LOCK, as this one does", limit), "",
		}
	case hasRDMA:
		return Finding{
			"locked memory", Warn, fmt.Sprintf("%d bytes: an RDMA device pins rings as a whole", limit),
			remedy,
		}
	case hasNVMe:
		return Finding{"locked memory", Warn, fmt.Sprintf("%d bytes: the copy of a larger ring in a namespace is "+
			"neither locked nor registered, and each append slower", limit), remedy}
	}
	return Finding{
		"locked memory", OK,
		fmt.Sprintf("%d bytes; there is neither an RDMA nor an NVMe device, which need more", limit), "",
	}
}

// memory looks at shared, huge and persistent memory.
func (h Host) memory() []Finding {
	findings := []Finding{h.shared(), h.hugePages()}
	regions := h.glob("/sys/bus/nd/devices/region*")
	if len(regions) == 0 {
		return append(findings, Finding{
			"persistent memory", Warn,
			"none: rings on files are persistent by msync, at a disk's pace",
			"ndctl create-namespace --mode=devdax where there is an NVDIMM; else a ring in a namespace: " +
				"nvme:/dev/nvmeXnY",
		})
	}
	for _, region := range regions {
		name := "persistent memory " + path.Base(region)
		switch domain := h.read(region + "/persistence_domain"); domain {
		case "memory_controller", "cpu_cache":
			findings = append(findings, Finding{name, OK, "persistence domain " + domain, ""})
		default:
			findings = append(findings, Finding{
				name, Warn,
				fmt.Sprintf("persistence domain %q: no more than visible is promised of it", domain),
				"ask the vendor, then farlogd target --attestation FILE or, without a target, ?attest=DOMAIN " +
					"(docs/how-to/attest-media.md)",
			})
		}
	}
	if h.hasCard() {
		findings = append(findings, Finding{
			"ddio", Warn, "no process can see whether a card's writes stay in the " +
				"processor's cache: READ does not flush unless it is attested",
			"docs/how-to/attest-media.md, Attesting what a READ flushes",
		})
	}
	return findings
}

func (h Host) shared() Finding {
	if err := unix.Access(h.path("/dev/shm"), unix.W_OK); err != nil {
		return Finding{
			"shared memory", Fail, "/dev/shm cannot be written: writers' counters are there",
			"mount -t tmpfs -o mode=1777 tmpfs /dev/shm",
		}
	}
	return Finding{"shared memory", OK, "/dev/shm can be written", ""}
}

func (h Host) hugePages() Finding {
	switch mode := chosen(h.read("/sys/kernel/mm/transparent_hugepage/enabled")); mode {
	case "madvise", "always":
		return Finding{"huge pages", OK, mode, ""}
	case "":
		return Finding{
			"huge pages", Warn, "this kernel has no transparent huge pages",
			"a kernel with CONFIG_TRANSPARENT_HUGEPAGE, as distributions build it",
		}
	default:
		return Finding{
			"huge pages", Warn, mode +
				": a remote writer's copy of its ring has small pages, and the card more addresses to translate",
			"echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
		}
	}
}
