package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// tree makes a host of files, as /sys shows one.
func tree(t *testing.T, files map[string]string) Host {
	t.Helper()
	h := Host{Root: t.TempDir(), tried: func() error { return nil }}
	for path, content := range files {
		full := filepath.Join(h.Root, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(content+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

const (
	device = "/sys/class/infiniband/mlx5_0"
	idleOf = "/sys/devices/system/cpu/cpu"
)

// trading is a host on which nothing is wrong; change replaces files, "-" takes one away.
func trading(t *testing.T, change map[string]string) Host {
	t.Helper()
	files := map[string]string{
		device + "/device/numa_node":                "0",
		device + "/ports/1/state":                   "4: ACTIVE",
		device + "/ports/1/link_layer":              "Ethernet",
		device + "/ports/1/rate":                    "100 Gb/sec (4X EDR)",
		device + "/ports/1/gid_attrs/types/0":       "IB/RoCE v1",
		device + "/ports/1/gid_attrs/types/1":       "RoCE v2",
		device + "/ports/1/gid_attrs/ndevs/0":       "eth0",
		device + "/ports/1/gid_attrs/ndevs/1":       "eth0",
		device + "/ports/1/gids/0":                  "fe80:0000:0000:0000:0000:0000:0000:0001",
		device + "/ports/1/gids/1":                  "0000:0000:0000:0000:0000:ffff:0a00:0001",
		"/sys/class/net/eth0/mtu":                   "4200",
		nodesDir + "/node0/cpulist":                 "0-7",
		"/usr/lib/x86_64-linux-gnu/libibverbs.so.1": "", "/usr/lib/x86_64-linux-gnu/librdmacm.so.1": "",
		"/sys/bus/nd/devices/region0/persistence_domain":                   "memory_controller",
		"/sys/kernel/mm/transparent_hugepage/enabled":                      "always [madvise] never",
		"/sys/devices/system/cpu/cpu0/cpuidle/state0/name":                 "POLL",
		"/sys/devices/system/cpu/cpu0/cpuidle/state0/latency":              "0",
		"/sys/devices/system/cpu/cpu0/cpuidle/state1/name":                 "C6",
		"/sys/devices/system/cpu/cpu0/cpuidle/state1/latency":              "133",
		"/sys/devices/system/cpu/cpu0/cpuidle/state1/disable":              "1",
		"/sys/devices/system/cpu/cpu1/cpuidle/state0/name":                 "POLL",
		"/sys/devices/system/cpu/cpu1/cpuidle/state0/latency":              "0",
		"/sys/devices/system/cpu/cpu1/cpuidle/state1/name":                 "C6",
		"/sys/devices/system/cpu/cpu1/cpuidle/state1/latency":              "140",
		"/sys/devices/system/cpu/cpu1/cpuidle/state1/disable":              "1",
		"/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor":            "performance",
		"/sys/devices/system/cpu/cpu1/cpufreq/scaling_governor":            "performance",
		"/sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc",
		"/dev/shm/there": "",
	}
	for path, content := range change {
		files[path] = content
		if content == "-" {
			delete(files, path)
		}
	}
	return tree(t, files)
}

func find(findings []Finding, check string) Finding {
	for _, one := range findings {
		if one.Check == check {
			return one
		}
	}
	return Finding{}
}

// What depends on the machine that runs the test, and what no host can be rid of.
func isAlways(check string) bool {
	return check == "locked memory" || check == "open files" || check == "clock" || check == clockOffsetCheck ||
		check == "ddio"
}

func TestExamine_AHostAsItShouldBe(t *testing.T) {
	for _, one := range trading(t, nil).Examine() {
		if one.State != OK && !isAlways(one.Check) {
			t.Errorf("%+v", one)
		}
		if one.State != OK && one.Remedy == "" {
			t.Errorf("no remedy: %+v", one)
		}
	}
}

// twoNodes is a host of 16 cores with the card at node 0, on whose cores this process may run, and whose persistent
// memory is at a node.
func twoNodes(cores, region string) map[string]string {
	return map[string]string{
		nodesDir + "/node0/cpulist": "0-7", nodesDir + "/node0/distance": "10 21", nodesDir + "/node1/cpulist": "8-15",
		nodesDir + "/node1/distance":            "21 10",
		"/proc/self/status":                     "Name:\tdoctor\nCpus_allowed_list:\t" + cores,
		"/sys/bus/nd/devices/region0/numa_node": region,
	}
}

// hostFaults are changes of a host in order, and what the doctor says of each.
var hostFaults = []struct {
	name, check string
	change      map[string]string
	state       State
	want        string
}{
	{"port down", "rdma mlx5_0/1", map[string]string{device + "/ports/1/state": "1: DOWN"}, Fail, "port is down"},
	{
		"no version 2", "rdma mlx5_0/1 gid",
		map[string]string{device + "/ports/1/gid_attrs/types/1": "IB/RoCE v1"},
		Fail, "no GID of RoCE v2",
	},
	{"no IPv4", "rdma mlx5_0/1 gid", map[string]string{device +
		"/ports/1/gids/1": "fe80:0000:0000:0000:0000:0000:0000:0001"}, Warn, "with no IPv4 address"},
	{
		"mtu", "rdma mlx5_0/1 mtu",
		map[string]string{"/sys/class/net/eth0/mtu": "1500"},
		Warn,
		"interface eth0 has MTU 1500, so that RoCE has 1024",
	},
	{"two nodes", "rdma mlx5_0 numa", twoNodes("0-15", "0"), Warn, "at node 0 of 2; this shell also runs on " +
		"others, whose memory is as far as distance 21, and that of node 0 10"},
	{
		"bound to its node", "rdma mlx5_0 numa", twoNodes("2-3,7", "0"), OK,
		"at node 0 of 2, as this shell's processors are: distance 10",
	},
	{"memory of its node", "rdma mlx5_0 numa region0", twoNodes("0-7", "0"), OK, "at node 0 as well: distance 10"},
	{
		"memory of another node", "rdma mlx5_0 numa region0", twoNodes("0-7", "1"), Warn,
		"at node 1, the card at node 0: distance 21, within the node 10",
	},
	{"no node", "rdma mlx5_0 numa", map[string]string{
		"/sys/devices/system/node/node1/cpulist": "8-15",
		device + "/device/numa_node":             "-1",
	}, Warn, "does not say"},
	{
		"library", "rdma library",
		map[string]string{"/usr/lib/x86_64-linux-gnu/librdmacm.so.1": "-"},
		Fail,
		"librdmacm.so.1 is not installed",
	},
	{
		"unknown domain", "persistent memory region0",
		map[string]string{"/sys/bus/nd/devices/region0/persistence_domain": "unknown"},
		Warn,
		`persistence domain "unknown"`,
	},
	{
		"no memory", "persistent memory",
		map[string]string{"/sys/bus/nd/devices/region0/persistence_domain": "-"},
		Warn, "none: rings on files",
	},
	{
		"small pages", "huge pages",
		map[string]string{"/sys/kernel/mm/transparent_hugepage/enabled": "always madvise [never]"},
		Warn, "never",
	},
	{
		"sleeps", "idle states",
		map[string]string{"/sys/devices/system/cpu/cpu0/cpuidle/state1/disable": "0"},
		Warn,
		"sleeps in C6 takes 133 us to wake up, on 1 of 2 cores",
	},
	{
		"another core sleeps", "idle states",
		map[string]string{"/sys/devices/system/cpu/cpu1/cpuidle/state1/disable": "0"},
		Warn,
		"sleeps in C6 takes 140 us to wake up, on 1 of 2 cores",
	},
	{"all disabled", "idle states", map[string]string{
		idleOf + "0/cpuidle/state0/disable": "1",
		idleOf + "1/cpuidle/state0/disable": "1",
	}, OK, "all 4 are disabled"},
	{
		"an idle state unread", "idle states",
		map[string]string{idleOf + "1/cpuidle/state0/latency": "-"},
		Warn,
		"not seen: " + idleOf + "1/cpuidle/state0/latency cannot be read",
	},
	{"no idle states", "idle states", map[string]string{
		idleOf + "0/cpuidle/state0/name":    "-",
		idleOf + "0/cpuidle/state0/latency": "-", idleOf + "0/cpuidle/state1/name": "-",
		idleOf + "0/cpuidle/state1/latency": "-",
		idleOf + "0/cpuidle/state1/disable": "-", idleOf + "1/cpuidle/state0/name": "-",
		idleOf + "1/cpuidle/state0/latency": "-", idleOf + "1/cpuidle/state1/name": "-",
		idleOf + "1/cpuidle/state1/latency": "-",
		idleOf + "1/cpuidle/state1/disable": "-",
	}, Warn, "not seen: this kernel shows none"},
	{"no governor", "governor", map[string]string{
		idleOf + "0/cpufreq/scaling_governor": "-",
		idleOf + "1/cpufreq/scaling_governor": "-",
	}, Warn, "not seen: this kernel shows none"},
	{
		"a governor unread", "governor",
		map[string]string{idleOf + "1/cpufreq/scaling_governor": ""},
		Warn,
		"not seen: " + idleOf + "1/cpufreq/scaling_governor cannot be read",
	},
	{
		"no nodes", "rdma mlx5_0 numa",
		map[string]string{nodesDir + "/node0/cpulist": "-"},
		Warn,
		"not seen: this kernel shows no NUMA nodes",
	},
	{
		"processors unread", "rdma mlx5_0 numa", twoNodes("", "0"), Warn,
		"at node 0 of 2; on which processors this shell runs is not seen",
	},
	{
		"memory of no node", "rdma mlx5_0 numa region0", twoNodes("0-7", "-1"), Warn,
		"not seen: the region does not say",
	},
	{
		"governor", "governor",
		map[string]string{"/sys/devices/system/cpu/cpu1/cpufreq/scaling_governor": "powersave"},
		Warn, "powersave",
	},
	{
		"clock source", "clock source",
		map[string]string{"/sys/devices/system/clocksource/clocksource0/current_clocksource": "hpet"},
		Warn,
		`"hpet"`,
	},
	{
		"no shared memory", "shared memory",
		map[string]string{"/dev/shm/there": "-"},
		Fail,
		"/dev/shm cannot be written",
	},
}

func TestExamine_EachFaultIsFoundAndNothingElse(t *testing.T) {
	for _, test := range hostFaults {
		t.Run(test.name, func(t *testing.T) {
			findings := trading(t, test.change).Examine()
			if got := find(findings, test.check); got.State != test.state || !strings.Contains(got.Reason, test.want) ||
				got.State != OK && got.Remedy == "" {
				t.Errorf("got %+v", got)
			}
			for _, one := range findings {
				if one.State != OK && one.Check != test.check && !isAlways(one.Check) {
					t.Errorf("found as well: %+v", one)
				}
			}
		})
	}
}

func TestExamine_NoDevice(t *testing.T) {
	findings := tree(t, map[string]string{"/dev/shm/there": ""}).Examine()
	if got := find(findings, "rdma"); got.State != Warn || !strings.Contains(got.Reason, "no RDMA device") {
		t.Errorf("got %+v", got)
	}
	if got := find(findings, "locked memory"); got.State != OK {
		t.Errorf("got %+v", got)
	}
	if got := find(findings, "ddio"); got.Check != "" {
		t.Errorf("got %+v", got)
	}
}

// SoftRoCE is named as what it is, and has no cache of a processor between itself and memory.
func TestExamine_NoCard(t *testing.T) {
	findings := trading(t, map[string]string{device + "/parent": "eth0"}).Examine()
	if got := find(findings, "rdma mlx5_0"); got.State != Warn ||
		!strings.Contains(got.Reason, "no card: the kernel's processor does its work on eth0") {
		t.Errorf("got %+v", got)
	}
	if got := find(findings, "ddio"); got.Check != "" {
		t.Errorf("got %+v", got)
	}
	if got := find(trading(t, nil).Examine(), "ddio"); got.State != Warn {
		t.Errorf("a card: %+v", got)
	}
}

func TestMemlock_BindsWhomTheKernelBinds(t *testing.T) {
	for _, test := range []struct {
		limit                        uint64
		mayLockAll, hasRDMA, hasNVMe bool
		state                        State
		text                         string
	}{
		{unlimited, false, true, true, OK, "unlimited"},
		{65536, true, true, true, OK, "65536 bytes, which bind no process that has CAP_IPC_LOCK"},
		{65536, false, false, false, OK, "neither an RDMA nor an NVMe device"},
		{65536, false, true, true, Warn, "65536 bytes: an RDMA device pins"},
		{65536, false, false, true, Warn, "65536 bytes: the copy of a larger ring in a namespace"},
	} {
		if got := memlockFinding(test.limit, test.mayLockAll, test.hasRDMA, test.hasNVMe); got.State != test.state ||
			!strings.Contains(got.Reason, test.text) || (got.Remedy == "") != (got.State == OK) {
			t.Errorf("%+v: got %+v", test, got)
		}
	}
	for mask, want := range map[string]bool{
		"000001ffffffffff": true, "0000000000004000": true,
		"0000000000002000": false, "": false,
	} {
		h := tree(t, map[string]string{"/proc/self/status": "Name:\tdoctor\nCapPrm:\t000001ffffffffff\nCapEff:\t" +
			mask + "\nSeccomp:\t0"})
		if got := h.mayLockAll(); got != want {
			t.Errorf("CapEff %q: %v", mask, got)
		}
	}
}

func TestClock_Bounds(t *testing.T) {
	for _, test := range []struct {
		isUnsynchronised bool
		errorMax         int64
		want             State
	}{{true, 1, Warn}, {false, 101, Warn}, {false, 100, OK}} {
		if got := clockFinding(test.isUnsynchronised, test.errorMax); got.State != test.want {
			t.Errorf("%+v: got %+v", test, got)
		}
	}
}

// On the machine that runs the test: right about what can be looked up otherwise.
func TestExamine_ThisMachine(t *testing.T) {
	h := Host{Root: "/"}
	findings := h.Examine()
	devices, _ := os.ReadDir("/sys/class/infiniband")
	if got := find(findings, "rdma"); (got.State == Warn) != (len(devices) == 0) {
		t.Errorf("%d RDMA devices: %+v", len(devices), got)
	}
	var state unix.Timex
	if _, err := unix.Adjtimex(&state); err == nil {
		isGood := state.Status&staUnsync == 0 && int64(state.Maxerror) < clockErrorMax/2
		if got := find(findings, "clock"); isGood && got.State != OK || state.Status&staUnsync != 0 &&
			got.State != Warn {
			t.Errorf("status %x, at most %d us: %+v", state.Status, state.Maxerror, got)
		}
	}
	source, _ := os.ReadFile("/sys/devices/system/clocksource/clocksource0/current_clocksource")
	if got := find(findings, "clock source"); !strings.Contains(got.Reason, strings.TrimSpace(string(source))) {
		t.Errorf("got %+v", got)
	}
	for _, one := range findings {
		if one.Reason == "" || one.State != OK && one.State != Warn && one.State != Fail {
			t.Errorf("%+v", one)
		}
	}
}

func TestDisk_ThisMachine(t *testing.T) {
	h, dir := Host{Root: "/"}, t.TempDir()
	var stat unix.Statfs_t
	if err := unix.Statfs(dir, &stat); err != nil {
		t.Fatal(err)
	}
	findings := h.Disk(dir)
	if stat.Type == tmpfsMagic {
		t.Skipf("%s is on tmpfs: %+v", dir, findings)
	}
	if len(findings) != 3 || find(findings, "disk "+dir+" sync").State == Fail {
		t.Errorf("got %+v", findings)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if got := h.Disk(filepath.Join(dir, "none"))[0]; got.State != Fail {
		t.Errorf("got %+v", got)
	}
	if got := freeFinding("x", freeLeast-1); got.State != Warn {
		t.Errorf("got %+v", got)
	}
	if got := h.Disk("/dev/shm"); len(got) != 1 || got[0].State != Fail || !strings.Contains(got[0].Reason, "tmpfs") {
		t.Errorf("got %+v", got)
	}
	if took, err := measureSync(dir); err != nil || took <= 0 || took > time.Minute {
		t.Errorf("got %s, %v", took, err)
	}
}
