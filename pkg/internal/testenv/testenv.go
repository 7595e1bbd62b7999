// Package testenv runs the real programs for end-to-end tests: it builds them once a test process, starts them in
// directories and on ports of their own, waits until they say that they are ready, and ends them by their process ids.
package testenv

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/identity"
)

// memoryMin is what the largest of the tests keeps on tmpfs: a ring, and a store that takes all of it.
const memoryMin = 1 << 30

// programsVariable says where the programs are that a test process of this package's has built, to one that it starts.
const programsVariable = "FARLOG_TEST_PROGRAMS"

// programs are built once and removed by Main.
var programs struct {
	once sync.Once
	dir  string
	err  error
}

// Main runs the tests of a package and removes what was built for them: func TestMain(m *testing.M) { testenv.Main(m)
// }.
func Main(m *testing.M) {
	ServeMember()
	code := m.Run()
	if programs.dir != "" {
		os.RemoveAll(programs.dir)
	}
	os.Exit(code)
}

// Program gives the path of "farlog" or "farlogd", built from this tree.
func Program(tb testing.TB, name string) string {
	tb.Helper()
	if dir := os.Getenv(programsVariable); dir != "" {
		return filepath.Join(dir, name)
	}
	programs.once.Do(func() { programs.dir, programs.err = build() })
	if programs.err != nil {
		tb.Fatal(programs.err)
	}
	return filepath.Join(programs.dir, name)
}

// TLSDir is where the certificates are by which the programs of this test process know each other.
func TLSDir(tb testing.TB) string {
	tb.Helper()
	return filepath.Join(filepath.Dir(Program(tb, "farlog")), "tls")
}

// RunApart runs the calling test in a process of its own, where mounts are its own and end with it. True: this is that
// process.
func RunApart(t *testing.T) bool {
	t.Helper()
	if os.Getenv(programsVariable) != "" {
		return true
	}
	dir := filepath.Dir(Program(t, "farlog")) // and the variables that come with it
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v",
		fmt.Sprintf("-test.short=%t", testing.Short()))
	cmd.Env = append(os.Environ(), programsVariable+"="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	output, err := cmd.CombinedOutput()
	t.Logf("%s", output)
	if err != nil {
		t.Errorf("in a process of its own: %v", err)
	}
	return false
}

// Root is the directory of the source tree.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..", "..")
}

// NoteSources is called by a test that runs what it has built: go test keeps results as long as the files and
// directories that a test has opened are the same, and what go build opens is no part of these.
func NoteSources() error {
	for _, part := range []string{"cmd", "pkg", "rdma", "scripts", "go.mod"} {
		err := filepath.WalkDir(filepath.Join(Root(), part), func(_ string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() && entry.Name() == "testdata" {
				return fs.SkipDir
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func build() (string, error) {
	if err := NoteSources(); err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "farlog-programs-")
	if err != nil {
		return "", err
	}
	cmd := exec.Command("scripts/build.sh", dir)
	if testing.Short() { // they run nothing of the archive, whose libraries are many
		cmd.Args = append(cmd.Args, "daemons")
	}
	cmd.Dir = Root()
	if output, err := cmd.CombinedOutput(); err != nil {
		os.RemoveAll(dir)
		return "", fmt.Errorf("build programs: %w\n%s", err, output)
	}
	tlsDir := filepath.Join(dir, "tls")
	return dir, errors.Join(identity.EnsureLocal(tlsDir, time.Now()), os.Setenv("FARLOG_TLS_DIR", tlsDir))
}

// MemoryDir makes a directory on tmpfs, where the rings' level is visible and a sync costs nothing. It skips where
// there is none, and where a container's default of 64 MiB leaves no space for the rings of the tests and their stores.
func MemoryDir(tb testing.TB) string {
	tb.Helper()
	var shm syscall.Statfs_t
	if err := syscall.Statfs("/dev/shm", &shm); err != nil {
		tb.Skipf("no tmpfs at /dev/shm: %v", err)
	}
	if free := shm.Bavail * uint64(shm.Bsize); free < memoryMin {
		tb.Skipf(
			"/dev/shm has %d MiB free, expected %d: mount -o remount,size=2g /dev/shm, or docker run --shm-size=2g",
			free>>20, memoryMin>>20)
	}
	dir, err := os.MkdirTemp("/dev/shm", "farlog-test-")
	if err != nil {
		tb.Skipf("no tmpfs at /dev/shm: %v", err)
	}
	tb.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// SkipWhenShort leaves a test to make check that takes long, where make test has shorter ones of its kind.
func SkipWhenShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("it takes long: make check runs it")
	}
}
