package systemd

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/sys/unix"

	"github.com/farlog/farlog/pkg/internal/testenv"
)

// confinement is what of a unit the kernel is made to enforce where systemd is not the first process: user, no
// capability, system calls, address families, and memory that is not writable and executable. A call that it does not
// allow ends the process by SIGSYS, where the unit lets the call fail: so it is seen.
type confinement struct {
	UID         int
	GID         int
	SystemCalls []string
	Families    []string
}

// confineWord makes the test's program the launcher: PROGRAM confine FILE COMMAND ARGUMENT...
const confineWord = "confine"

func TestMain(m *testing.M) {
	if len(os.Args) > 3 && os.Args[1] == confineWord {
		fmt.Fprintln(os.Stderr, "confine:", confine(os.Args[2], os.Args[3:]))
		os.Exit(1)
	}
	testenv.Main(m)
}

// confine becomes the command; it returns when it cannot.
func confine(path string, command []string) error {
	var c confinement
	written, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(written, &c); err != nil {
		return err
	}
	runtime.LockOSThread()
	for capability := range uintptr(64) {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0); err != nil && err != unix.EINVAL {
			return fmt.Errorf("drop capability %d: %w", capability, err)
		}
	}
	if err := syscall.Setgroups(nil); err != nil {
		return fmt.Errorf("leave groups: %w", err)
	}
	if err := syscall.Setgid(c.GID); err != nil {
		return fmt.Errorf("become group %d: %w", c.GID, err)
	}
	if err := syscall.Setuid(c.UID); err != nil {
		return fmt.Errorf("become user %d: %w", c.UID, err)
	}
	group, err := c.group()
	if err != nil {
		return err
	}
	filter := seccomp.Filter{NoNewPrivs: true, Flag: seccomp.FilterFlagTSync, Policy: seccomp.Policy{
		DefaultAction: seccomp.ActionKillProcess, Syscalls: []seccomp.SyscallGroup{group},
	}}
	if err := seccomp.LoadFilter(filter); err != nil {
		return fmt.Errorf("load the filter: %w", err)
	}
	return syscall.Exec(command[0], command, os.Environ())
}

var families = map[string]uint64{
	"AF_UNIX": unix.AF_UNIX, "AF_INET": unix.AF_INET, "AF_INET6": unix.AF_INET6, "AF_NETLINK": unix.AF_NETLINK,
	"AF_IB": unix.AF_IB,
}

// group gives the system calls that are allowed, some of them with some arguments only.
func (c confinement) group() (seccomp.SyscallGroup, error) {
	machine, err := arch.GetInfo("")
	if err != nil {
		return seccomp.SyscallGroup{}, err
	}
	not := func(argument uint32, bits uint64) seccomp.ArgumentConditions {
		return seccomp.ArgumentConditions{{Argument: argument, Operation: seccomp.BitsNotSet, Value: bits}}
	}
	conditions := map[string][]seccomp.ArgumentConditions{
		"mmap":          {not(2, unix.PROT_EXEC), not(2, unix.PROT_WRITE)},
		"mprotect":      {not(2, unix.PROT_EXEC)},
		"pkey_mprotect": {not(2, unix.PROT_EXEC)},
	}
	for _, name := range c.Families {
		family, ok := families[name]
		if !ok {
			return seccomp.SyscallGroup{}, fmt.Errorf("address family %q: not known to this test", name)
		}
		conditions["socket"] = append(conditions["socket"],
			seccomp.ArgumentConditions{{Argument: 0, Operation: seccomp.Equal, Value: family}})
	}
	group := seccomp.SyscallGroup{Action: seccomp.ActionAllow}
	for _, name := range c.SystemCalls {
		if _, ok := machine.SyscallNames[name]; !ok {
			continue // of another machine
		}
		if len(conditions[name]) == 0 {
			group.Names = append(group.Names, name)
		}
		for _, condition := range conditions[name] {
			group.NamesWithCondtions = append(group.NamesWithCondtions,
				seccomp.NameWithConditions{Name: name, Conditions: condition})
		}
	}
	return group, nil
}

// under gives the command that becomes what follows it, confined as the unit of a role says.
func (c confinement) under(t *testing.T) []string {
	t.Helper()
	raw, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "confinement.json")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return []string{self, confineWord, path}
}

func confinementOf(t *testing.T, role string, uid, gid int) confinement {
	t.Helper()
	u := readUnit(t, role)
	return confinement{
		UID: uid, GID: gid, SystemCalls: u.systemCalls(t),
		Families: strings.Fields(strings.Join(u["RestrictAddressFamilies"], " ")),
	}
}

// What the launcher does is seen from inside: nobody's user, no capability, and the end of whoever calls what is not
// allowed.
func TestConfine_HoldsWhatTheUnitSays(t *testing.T) {
	skipWithoutConfinement(t)
	c := confinementOf(t, "control", 61001, 61000)
	run := func(command ...string) (string, error) {
		under := append(c.under(t), command...)
		out, err := exec.Command(under[0], under[1:]...).CombinedOutput()
		return string(out), err
	}
	status, err := run("/bin/cat", "/proc/self/status")
	if err != nil {
		t.Fatalf("cat: %v\n%s", err, status)
	}
	for _, want := range []string{
		"Uid:\t61001\t61001\t61001\t61001", "Gid:\t61000", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000",
		"NoNewPrivs:\t1", "Seccomp:\t2",
	} {
		if !strings.Contains(status, want) {
			t.Errorf("no %q in\n%s", want, status)
		}
	}
	for _, command := range [][]string{
		{"/bin/chown", strconv.Itoa(c.UID), "/"}, {"/bin/mount", "-t", "tmpfs", "x", "/"},
	} {
		if out, err := run(command...); err == nil || !strings.Contains(err.Error(), "bad system call") {
			t.Errorf("%s: %v, expected that its system call ends it\n%s", command[0], err, out)
		}
	}
}

func skipWithoutConfinement(t *testing.T) {
	t.Helper()
	skipWithoutSystemd(t)
	if os.Getuid() != 0 {
		t.Skip("not root: only root becomes another user")
	}
}
