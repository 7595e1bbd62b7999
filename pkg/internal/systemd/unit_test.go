// Package systemd tests the units of deploy/systemd: what they leave a role, and that it is enough.
package systemd

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farlog/farlog/pkg/internal/testenv"
	"github.com/farlog/farlog/pkg/nvmet"
)

var roles = []string{"control", "target", "drain", "host", "replica"}

// users are those of all units: a role's own, of the archive that of the store's owner.
var users = map[string]string{
	"control": "farlog-control", "target": "farlog-target", "drain": "farlog-drain", "host": "farlog-host",
	"replica": "farlog-replica", "archive": "farlog-drain",
}

// unit has the settings of a unit's file, each with its values in order.
type unit map[string][]string

func unitPath(role string) string {
	return filepath.Join(testenv.Root(), "deploy", "systemd", "farlog-"+role+".service")
}

func readUnit(t *testing.T, role string) unit {
	t.Helper()
	return readSettings(t, unitPath(role))
}

func readSettings(t *testing.T, path string) unit {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	u := unit{}
	for lines := bufio.NewScanner(bytes.NewReader(raw)); lines.Scan(); {
		if key, value, ok := strings.Cut(lines.Text(), "="); ok && !strings.HasPrefix(key, "#") {
			u[key] = append(u[key], value)
		}
	}
	return u
}

// systemCallSets are systemd's own sets of names of system calls.
func systemCallSets(t *testing.T) map[string][]string {
	t.Helper()
	out, err := exec.Command("systemd-analyze", "--no-pager", "syscall-filter").Output()
	if err != nil {
		t.Fatalf("systemd-analyze syscall-filter: %v", err)
	}
	sets, name := map[string][]string{}, ""
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		line := lines.Text()
		word := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "@"):
			name = word
		case word == "" || strings.HasPrefix(word, "#"):
		default:
			sets[name] = append(sets[name], word)
		}
	}
	return sets
}

// resolve gives the system calls that a set has, with those of the sets in it.
func resolve(sets map[string][]string, name string) []string {
	if !strings.HasPrefix(name, "@") {
		return []string{name}
	}
	var calls []string
	for _, member := range sets[name] {
		calls = append(calls, resolve(sets, member)...)
	}
	return calls
}

// systemCalls gives what SystemCallFilter= leaves, as systemd.exec(5) says it: the sets of the first line and @default,
// less those of lines with ~, and what lines behind them add. ProtectClock= takes all of @clock, also what only reads.
func (u unit) systemCalls(t *testing.T) []string {
	t.Helper()
	sets := systemCallSets(t)
	allowed := map[string]bool{}
	lines := append([]string{"@default"}, u["SystemCallFilter"]...)
	if slices.Equal(u["ProtectClock"], []string{"yes"}) {
		lines = append(lines, "~@clock")
	}
	for i, line := range lines {
		rest, isTakenAway := strings.CutPrefix(line, "~")
		if i == 1 && isTakenAway {
			t.Fatalf("SystemCallFilter=%s: expected a list of what is allowed first", line)
		}
		for _, name := range strings.Fields(rest) {
			calls := resolve(sets, name)
			if len(calls) == 0 {
				t.Fatalf("SystemCallFilter=%s: systemd has no set %s", line, name)
			}
			for _, call := range calls {
				allowed[call] = !isTakenAway
			}
		}
	}
	var calls []string
	for call, isAllowed := range allowed {
		if isAllowed {
			calls = append(calls, call)
		}
	}
	slices.Sort(calls)
	return calls
}

// A unit that names a setting which systemd does not know, or leaves more open than 2.5 of 10 by systemd's own measure,
// fails.
func TestUnits_ExposeLittle(t *testing.T) {
	skipWithoutSystemd(t)
	for role := range users {
		out, err := exec.Command("systemd-analyze", "--no-pager", "security", "--offline=yes", "--threshold=25",
			unitPath(role)).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", role, err, out)
		}
		if strings.Contains(string(out), "Unknown key") || strings.Contains(string(out), "Failed to parse") {
			t.Errorf("%s: systemd does not know all of it:\n%s", role, out)
		}
	}
}

func TestUnits_NoCapabilityAndUserOfTheirOwn(t *testing.T) {
	sysusers, err := os.ReadFile(filepath.Join(testenv.Root(), "deploy", "systemd", "farlog.sysusers.conf"))
	if err != nil {
		t.Fatal(err)
	}
	units, err := filepath.Glob(unitPath("*"))
	if err != nil || len(units) != len(users) {
		t.Fatalf("units %v, %v; expected those of %v", units, err, users)
	}
	for role, user := range users {
		u := readUnit(t, role)
		if !slices.Equal(u["CapabilityBoundingSet"], []string{""}) || len(u["AmbientCapabilities"]) > 0 {
			t.Errorf("%s: capabilities %q, ambient %q; expected none", role, u["CapabilityBoundingSet"],
				u["AmbientCapabilities"])
		}
		if !slices.Equal(u["User"], []string{user}) ||
			!slices.Equal(u["NoNewPrivileges"], []string{"yes"}) {
			t.Errorf("%s: user %q, NoNewPrivileges=%q", role, u["User"], u["NoNewPrivileges"])
		}
		if !bytes.Contains(sysusers, fmt.Appendf(nil, "\nu %s ", user)) {
			t.Errorf("farlog.sysusers.conf does not make user %s", user)
		}
	}
}

// A target that exports namespaces may write what it writes then: the kernel's target, and its state with the lock.
func TestUnits_ExportingTargetWritesItsState(t *testing.T) {
	u := readSettings(t, filepath.Join(testenv.Root(), "deploy", "systemd", "role", "nvmet.conf"))
	writable := strings.Fields(strings.Join(u["ReadWritePaths"], " "))
	for _, path := range []string{nvmet.Root, nvmet.StateFile} {
		isBelow := func(folder string) bool { return strings.HasPrefix(path, folder+"/") }
		if !slices.ContainsFunc(writable, isBelow) {
			t.Errorf("nvmet.conf: ReadWritePaths=%s: expected a folder above %s", strings.Join(writable, " "), path)
		}
	}
	if !slices.Contains(u["After"], "sys-kernel-config.mount") {
		t.Errorf("nvmet.conf: After=%q: expected sys-kernel-config.mount", u["After"])
	}
}

func skipWithoutSystemd(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("no systemd-analyze: it knows the sets of system calls and the measure; install systemd")
	}
}
