package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/farlog/farlog/testbed/vm"
)

// doctored is a host that is everything at once: trading host, target and drain host, with SoftRoCE, an NVDIMM and an
// NVMe device of QEMU's. Its namespaces 1 and 2 are rings, 3 has a file system for what its daemons have.
var doctored = machine{name: "host", cpus: 2, hasNVDIMM: true, namespaces: 3, isOnWire: true}

const (
	looksMost   = 10
	doctorStore = "/var/store"
	doctorUp    = "modprobe -a nvme nfit && wait-for test -b /dev/nvme0n1 -a -b /dev/nvme0n2 -a -b /dev/nvme0n3"
	doctorAsks  = "farlog doctor --output json --control 10.7.0.1:7070 --dir " + doctorStore
)

// doctorLooks proves, on a host with an NVMe device: rings in its namespaces have all that was acknowledged when the
// machine was killed; its wear is told as it tells it; farlog doctor is right about the host as it is, and finds each
// thing that is then made bad, with its cure, and nothing else.
func doctorLooks(ctx context.Context, b *bed) (string, error) {
	d := &patient{bed: b}
	rings, err := d.killed(ctx)
	if err != nil {
		return "", err
	}
	if d.host, err = b.boot(ctx, doctored); err != nil {
		return "", err
	}
	proved, err := d.recovered(ctx, rings)
	if err != nil {
		return "", err
	}
	if err := d.asItIs(ctx); err != nil {
		return "", fmt.Errorf("the host as it is: %w", err)
	}
	wear, err := d.wear(ctx)
	if err != nil {
		return "", fmt.Errorf("wear: %w", err)
	}
	if err := d.madeBad(ctx); err != nil {
		return "", fmt.Errorf("the host made bad: %w", err)
	}
	if err := d.cutOff(ctx); err != nil {
		return "", fmt.Errorf("the host cut off: %w", err)
	}
	return fmt.Sprintf("%s; %s; the doctor was right %d times", proved, wear, d.looks), nil
}

// patient is the host that is looked at.
type patient struct {
	bed     *bed
	host    *vm.Guest
	disk    string // the block device of the third namespace
	control *vm.Process
	looks   int
}

type finding struct{ Check, State, Reason, Remedy string }

// expectation of one line: its state ("": ok or warn), words of its reason, and of its cure.
type expectation struct{ check, state, reason, cure string }

func (e expectation) is(f finding) bool {
	hasState := f.State == e.state || e.state == "" && f.State != "fail"
	return hasState && strings.Contains(f.Reason, e.reason) && strings.Contains(f.Remedy, e.cure)
}

// look runs farlog doctor, and compares what it finds: each expectation holds, and whatever is not expected is ok. Its
// exit code is 1 when something fails, and 0 otherwise.
func (d *patient) look(ctx context.Context, command string, expected ...expectation) error {
	text, err := d.host.Run(ctx, "("+command+"); echo $?")
	if err != nil {
		return err
	}
	var findings []finding
	decoder := json.NewDecoder(strings.NewReader(text))
	if err := decoder.Decode(&findings); err != nil {
		return fmt.Errorf("%s: %w: %s", command, err, text)
	}
	code, want := strings.TrimSpace(text[decoder.InputOffset():]), "0"
	for _, one := range findings {
		if one.State == "fail" {
			want = "1"
		}
		i := slices.IndexFunc(expected, func(e expectation) bool { return e.check == one.Check })
		switch {
		case i < 0 && one.State != "ok":
			return fmt.Errorf("%s: found as well: %+v", command, one)
		case i >= 0 && !expected[i].is(one):
			return fmt.Errorf("%s: got %+v, want %+v", command, one, expected[i])
		case one.State != "ok" && one.Remedy == "":
			return fmt.Errorf("%s: no remedy: %+v", command, one)
		}
	}
	for _, one := range expected {
		if !slices.ContainsFunc(findings, func(f finding) bool { return f.Check == one.check }) {
			return fmt.Errorf("%s: it says nothing of %s", command, one.check)
		}
	}
	if code != want {
		return fmt.Errorf("%s: exit code %s, want %s: %s", command, code, want, text)
	}
	d.looks++
	return nil
}

// always is what no guest can be rid of, and what its kernel decides. How long a device takes is a matter of the
// machine below.
func (d *patient) always(ctx context.Context) ([]expectation, error) {
	text, err := d.host.Run(ctx, "cat /sys/devices/system/clocksource/clocksource0/current_clocksource")
	if err != nil {
		return nil, err
	}
	source, state := strings.TrimSpace(text), "ok"
	if source != "tsc" {
		state = "warn"
	}
	all := []expectation{
		{"rdma rxe0", "warn", "no card: the kernel's processor does its work on eth0", "install a card"},
		{"rdma rxe0 numa", "ok", "one NUMA node", ""},
		{"persistent memory region0", "ok", "memory_controller", ""},
		{"idle states", "warn", "not seen", "the machine below"},
		{"governor", "warn", "not seen", "the machine below"},
		{"clock source", state, source, ""},
		{"clock", "warn", "nothing keeps it", "chrony"},
		{"clock offset", "warn", "neither chronyc nor pmc is on this host", "apt install chrony"},
	}
	for n := range doctored.namespaces {
		name := fmt.Sprintf("nvme nvme0n%d", n+1)
		all = append(all, expectation{name, "ok", "QEMU NVMe Ctrl, pcie, LBA 512", ""},
			expectation{name + " cache", "ok", "volatile; it takes writes past it (FUA)", ""},
			expectation{name + " times", "", "the median of 21 reads of 4 KiB is", ""})
	}
	return all, nil
}

// ofStore is what is expected of a directory of daemons; its namespace is small.
func (d *patient) ofStore() []expectation {
	return []expectation{
		{"disk " + doctorStore + " room", "warn", "MiB are free", "free some space"},
		{"disk " + doctorStore + " cache", "ok", d.disk + " has a volatile cache, which the kernel flushes", ""},
		{"disk " + doctorStore + " sync", "", "the median of 21 syncs", ""},
	}
}

// mtu is the one that the RDMA device says it has.
func (d *patient) mtu(ctx context.Context) (string, error) {
	text, err := d.host.Run(ctx, "ibv_devinfo -d rxe0 | awk '/active_mtu/ {print $2}'")
	return "RoCE " + strings.TrimSpace(text), err
}

// asItIs: with a control plane and its etcd, as root, all that can be well is well. Once as whoever has every
// certificate, once as a target that has its own alone.
func (d *patient) asItIs(ctx context.Context) error {
	err := d.startControl(ctx)
	if err != nil {
		return err
	}
	expected, err := d.always(ctx)
	if err != nil {
		return err
	}
	mtu, err := d.mtu(ctx)
	if err != nil {
		return err
	}
	expected = slices.Concat(expected, d.ofStore(), []expectation{
		{"rdma rxe0/1", "ok", "active", ""},
		{"rdma rxe0/1 gid", "ok", "RoCE v2, 10.7.0.1, index 1", ""},
		{"rdma rxe0/1 mtu", "ok", mtu, ""},
		{"locked memory", "ok", "which bind no process that has CAP_IPC_LOCK", ""},
		{"huge pages", "ok", "always", ""},
		{"nvme nvme0n3 health", "ok", "0 % of its endurance used", ""},
		{"io_uring", "ok", "allowed", ""},
		{"certificate spiffe://farlog/farlog/target/any", "ok", "good until", ""},
		{"control plane", "ok", "answers, and sees its etcd", ""},
	})
	if err := d.lookAgain(ctx, doctorAsks, expected...); err != nil {
		return err
	}
	if _, err := d.host.Run(ctx,
		"mkdir /run/alone && cp -p /mnt/tls/ca.crt /mnt/tls/crl.pem /mnt/tls/target.* /run/alone"); err != nil {
		return err
	}
	return d.lookAgain(ctx, doctorAsks+" --tls-dir /run/alone", expected...)
}

// lookAgain looks until it is as expected: a control plane on a busy machine does not always answer in time, and is
// then told to be away.
func (d *patient) lookAgain(ctx context.Context, command string, expected ...expectation) (err error) {
	for range looksMost {
		if err = d.look(ctx, command, expected...); err == nil || ctx.Err() != nil {
			return err
		}
	}
	return err
}

func (d *patient) startControl(ctx context.Context) (err error) {
	const ready = "/run/control.ready"
	text, err := d.host.Run(ctx, fmt.Sprintf("device=$(basename $(dirname $(grep -lx 3 /sys/block/nvme0n*/nsid))) && "+
		"mkfs.ext4 -q -F /dev/$device && "+
		"mkdir -p %[1]s && mount /dev/$device %[1]s && dd if=/dev/zero of=%[1]s/fill bs=1M count=4 oflag=direct "+
		"2>/dev/null && echo $device", doctorStore))
	if err != nil {
		return err
	}
	d.disk = strings.TrimSpace(text)
	if d.control, err = d.bed.start(d.host, "control",
		"exec "+controlDuty("host").command+" --ready-file "+ready); err != nil {
		return err
	}
	_, err = d.host.Run(ctx, "wait-for test -s "+ready)
	return err
}

// madeBad: each thing that a command can make bad here is found, without the right to lock memory without bound. The
// device gives a warning by now.
func (d *patient) madeBad(ctx context.Context) error {
	_, err := d.host.Run(
		ctx,
		`ip link set eth0 mtu 1500 && echo never >/sys/kernel/mm/transparent_hugepage/enabled &&
		echo 2 >/proc/sys/kernel/io_uring_disabled &&
		farlog ca init /run/old --validity 1s && sleep 1`,
	)
	if err != nil {
		return err
	}
	expected, err := d.always(ctx)
	if err != nil {
		return err
	}
	mtu, err := d.mtu(ctx)
	if err != nil {
		return err
	}
	expected = slices.Concat(expected, d.ofStore(), []expectation{
		{"rdma rxe0/1 gid", "ok", "RoCE v2, 10.7.0.1, index 1", ""},
		{
			"rdma rxe0/1 mtu", "warn", "has MTU 1500, so that " + strings.Replace(mtu, "RoCE ", "RoCE has ", 1),
			"ip link set eth0 mtu 4200",
		},
		{"locked memory", "warn", "65536 bytes", "ulimit -l unlimited"},
		{"huge pages", "warn", "never", "echo madvise"},
		{"nvme nvme0n3 health", "fail", "its reliability is degraded", "replace it"},
		{"io_uring", "warn", "forbidden", "sysctl kernel.io_uring_disabled=0"},
		{"certificate spiffe://farlog", "ok", "good until", ""},
		{"control plane", "fail", "", "farlog ca renew"},
	})
	for n := range doctored.namespaces - 1 { // their controller is the same
		expected = append(expected, expectation{
			fmt.Sprintf("nvme nvme0n%d health", n+1), "fail",
			"its reliability is degraded", "replace it",
		})
	}
	for _, kind := range []string{"control", "target", "drain", "host", "admin"} {
		expected = append(expected, expectation{
			"certificate spiffe://farlog/farlog/" + kind + "/any", "fail",
			"/run/old/" + kind + ".crt: expired on 20",
			"farlog ca renew AUTHORITY-DIR /run/old",
		})
	}
	// As whoever trades has it: root, too, is bound by the limit without CAP_IPC_LOCK.
	return d.look(ctx, "ulimit -l 64; exec setpriv --bounding-set=-ipc_lock "+doctorAsks+" --tls-dir /run/old",
		expected...)
}

// cutOff: a link that is down, and a control plane that is gone.
func (d *patient) cutOff(ctx context.Context) error {
	if err := crash(ctx, d.control); err != nil {
		return err
	}
	_, err := d.host.Run(ctx, "ip link set eth0 down && echo 0 >/proc/sys/kernel/io_uring_disabled && echo madvise "+
		">/sys/kernel/mm/transparent_hugepage/enabled")
	if err != nil {
		return err
	}
	expected, err := d.always(ctx)
	if err != nil {
		return err
	}
	for n := range doctored.namespaces {
		expected = append(expected, expectation{
			fmt.Sprintf("nvme nvme0n%d health", n+1), "fail",
			"its reliability is degraded", "replace it",
		})
	}
	expected = slices.Concat(expected, d.ofStore(), []expectation{
		{"rdma rxe0/1", "fail", "port is down", "ip link set eth0 up"},
		{"huge pages", "ok", "madvise", ""},
		{"control plane", "fail", "does not answer", "farlogd"},
	})
	return d.look(ctx, doctorAsks, expected...)
}
