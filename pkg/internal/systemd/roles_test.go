package systemd

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/farlog/farlog/pkg/internal/testenv"
)

const (
	groupID  = 61000
	writerID = 61100
	stream   = "desk7/orders"
)

// site is what an installation has: for each role a user and a directory of its own, and a certificate that nobody
// else can read.
type site struct {
	*testing.T
	dir     string
	control string
	users   map[string]int
}

func newSite(t *testing.T) *site {
	t.Helper()
	dir, err := os.MkdirTemp("", "farlog-site-") // a socket's path is short, and that of a test's own directory is not
	s := &site{T: t, dir: dir, users: map[string]int{}}
	s.must(err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	s.control = s.address()
	s.must(os.Chmod(dir, 0o755))
	s.must(os.Chmod(filepath.Dir(testenv.Program(t, "farlogd")), 0o755)) // as /usr/bin is
	testenv.MustRun(t, "farlog", "ca", "init", s.path("tls"))
	for i, role := range roles {
		s.users[role] = writerID + 1 + i
		s.makeHome(role)
	}
	return s
}

func (s *site) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *site) path(names ...string) string {
	return filepath.Join(append([]string{s.dir}, names...)...)
}

func (s *site) address() string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(testenv.FreePort(s.T)))
}

// makeHome makes what StateDirectory= gives a role, and its certificate.
func (s *site) makeHome(role string) {
	s.Helper()
	for _, dir := range []string{s.path(role), s.path(role, "tls")} {
		s.must(os.Mkdir(dir, 0o750))
		s.must(os.Chown(dir, s.users[role], groupID))
	}
	for _, name := range []string{"ca.crt", "crl.pem", role + ".crt", role + ".key"} {
		raw, err := os.ReadFile(s.path("tls", name))
		s.must(err)
		path := s.path(role, "tls", name)
		s.must(os.WriteFile(path, raw, 0o600))
		s.must(os.Chown(path, s.users[role], groupID))
	}
}

// start starts a role as its unit does, on a host of its own as far as the roles can tell: rings are reached over the
// network.
func (s *site) start(role string, args ...string) *testenv.Process {
	s.Helper()
	if role != "control" {
		args = append(args, "--control", s.control)
	}
	socket, path := notifySocket(s.T)
	under := append(notifyUnder(path, 0), confinementOf(s.T, role, s.users[role], groupID).under(s.T)...)
	args = append(args, "--data-dir", s.path(role), "--tls-dir", s.path(role, "tls"), "--host-name", role+"1",
		"--metrics-listen", "127.0.0.1:0")
	process, _ := testenv.StartDaemonUnder(s.T, under, s.path(role), role, args...)
	if got := nextMessage(s.T, socket, heardMost); got != "READY=1\nSTATUS=ready: "+role {
		s.Fatalf("systemd hears %q of %s, expected that it is ready", got, role)
	}
	return process
}

// expectHidden fails when a program of a role's user, such as the archive of a drain's store, sees the memory of the
// role or the files that it sees.
func (s *site) expectHidden(role string, process *testenv.Process) {
	s.Helper()
	user := strconv.Itoa(s.users[role])
	for _, name := range []string{"root/etc", "environ", "maps", "fd"} {
		path := fmt.Sprintf("/proc/%d/%s", process.PID(), name)
		out, err := exec.Command("setpriv", "--reuid", user, "--regid", strconv.Itoa(groupID), "--clear-groups",
			"--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", "/bin/sh", "-c",
			"if [ -d "+path+" ]; then ls "+path+"; else head -c 1 "+path+"; fi").CombinedOutput()
		if err == nil || !strings.Contains(string(out), "ermission denied") {
			s.Errorf("%s of %s: %v, expected that its user is denied it: %.60q", path, role, err, out)
		}
	}
}

func (s *site) admin(args ...string) string {
	s.Helper()
	return testenv.MustRun(s.T, "farlog", append(args, "--control", s.control, "--tls-dir", s.path("tls"))...)
}

// append writes records as a user who is none of the roles', by the stream's name.
func (s *site) append(socket string, count int) {
	s.Helper()
	var records strings.Builder
	for i := range count {
		fmt.Fprintf(&records, "order-%d\n", i)
	}
	user := strconv.Itoa(writerID)
	under := []string{
		"setpriv", "--reuid", user, "--regid", user, "--clear-groups", "--bounding-set=-all", "--inh-caps=-all",
		"--no-new-privs",
	}
	writer := testenv.StartUnder(s.T, under, strings.NewReader(records.String()), nil, "farlog", "append", "--ring",
		"farlog://"+stream+"?agent="+socket)
	if err := writer.Wait(); err != nil {
		s.Fatalf("append: %v\n%s", err, writer.Log())
	}
}

// Each role runs as its own user, without a capability, with the system calls, address families and memory that its
// unit leaves it; whatever else it calls ends it. Records are appended, drained, copied and verified, roles start
// again, and stop in order: nothing that they need is missing.
func TestRoles_EachUnderItsUnit(t *testing.T) {
	testenv.SkipWhenShort(t)
	skipWithoutConfinement(t)
	if _, err := exec.LookPath("setpriv"); err != nil {
		t.Skip("no setpriv (util-linux): the writer becomes another user by it")
	}
	s := newSite(t)
	control := s.start("control", "--listen", s.control)
	target := s.start("target", "--listen", "ofi:tcp://"+s.address())
	serve := s.address()
	drain := s.start("drain", "--store-serve", serve)
	s.expectHidden("drain", drain)
	replica := s.start("replica", "--replica-from", "https://"+serve)
	socket := s.path("host", "socket")
	s.must(os.Chmod(s.path("host"), 0o755)) // as RuntimeDirectoryMode= says of /run/farlog
	host := s.start("host", "--host-socket", socket, "--host-allow", strconv.Itoa(writerID)+"=desk7/*")
	s.admin("stream", "create", stream, "--size", "4MiB", "--wait", "30s")
	s.append(socket, 1000)
	drain.Stop() // what it stored is read by the next one
	s.append(socket, 1000)
	drain = s.start("drain", "--store-serve", serve)
	for _, store := range []string{s.path("drain", "store"), s.path("replica", "store")} {
		testenv.Until(t, store+" has all records", func() (bool, error) {
			dump, _, _ := testenv.Run(t, "farlog", "replay", store, "--stream", stream, "--speed", "max")
			return strings.Count(dump, "order-") == 2000, nil
		})
	}
	for _, process := range []*testenv.Process{host, replica, drain, target, control} {
		process.Stop()
	}
	for _, role := range []string{"drain", "replica"} {
		testenv.MustRun(t, "farlog", "verify", s.path(role, "store"))
	}
}
