package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/internal/docpage"
	"github.com/farlog/farlog/pkg/internal/s3test"
	"github.com/farlog/farlog/pkg/internal/testenv"
)

// notRunMax is how many command blocks of the README, the tutorials and the how-to pages are marked as not run here. It
// may only fall: a page that needs what no test machine has says so, block by block, and a reader sees it.
const notRunMax = 15

// pageTimeout ends a page whose commands wait for what never comes. It is no measure: a page takes a few seconds.
const pageTimeout = 5 * time.Minute

// Every command of the README, the tutorials and the how-to pages does what the page says. A page is one shell that
// stops at the first command that fails, in an empty directory with farlog and farlogd in PATH, in a network of its
// own, so that each page has the default ports to itself. A text block behind a command block is what that prints.
func TestDocs_CommandsRun(t *testing.T) {
	pages, err := docpage.Guides(testenv.Root())
	if err != nil {
		t.Fatal(err)
	}
	notRun := 0
	for _, page := range pages {
		for _, block := range page.Commands() {
			if block.NotRun != "" {
				notRun++
				t.Logf("not run: %s:%d: %s", page.Path, block.Line, block.NotRun)
			}
		}
	}
	if notRun > notRunMax {
		t.Errorf("%d command blocks are marked as not run, at most %d may be: make the new ones run", notRun, notRunMax)
	}
	programs := filepath.Dir(testenv.Program(t, "farlog"))
	for _, page := range pages {
		t.Run(strings.TrimSuffix(strings.TrimPrefix(page.Path, "docs/"), ".md"), func(t *testing.T) {
			t.Parallel()
			if testing.Short() && strings.Contains(page.Script(), "farlog archive ") {
				t.Skip("farlog-archive has many libraries; make check builds it")
			}
			if strings.Contains(page.Script(), "versitygw") {
				linkS3Server(t, programs)
			}
			runPage(t, page, programs)
		})
	}
}

func linkS3Server(t *testing.T, programs string) {
	if testing.Short() {
		t.Skip("S3: the server's sources are large; make check builds it")
	}
	server, err := s3test.Program()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(server, filepath.Join(programs, "versitygw")); err != nil && !errors.Is(err, os.ErrExist) {
		t.Fatal(err)
	}
}

func runPage(t *testing.T, page docpage.Page, programs string) {
	script := page.Script()
	if script == "" {
		t.Skip("no command block of this page runs here; the log of the parent test says why")
	}
	output, err := runShell(t, script, programs)
	texts := docpage.Outputs(output)
	for i, block := range page.Run() {
		text := ""
		if i < len(texts) {
			text = texts[i]
		}
		if i == len(texts)-1 && err != nil {
			t.Fatalf("%s:%d: a command of this block: %v; it printed:\n%s", page.Path, block.Line, err, text)
		}
		if line, isThere := docpage.Prints(text, block.Expected); !isThere {
			t.Errorf("%s:%d: expected a line %q behind those before it; the block printed:\n%s", page.Path, block.Line,
				line, text)
		}
	}
}

// runShell runs a script in a network of its own, and ends all that it has started.
func runShell(t *testing.T, script, programs string) (string, error) {
	t.Helper()
	dir := pageDir(t)
	shell := exec.Command("bash", "-c", "ip link set lo up\n"+script)
	shell.Dir = dir
	shell.Env = append(cleanEnvironment(), "PATH="+programs+":"+os.Getenv("PATH"), "HOME="+dir,
		"TMPDIR="+filepath.Join(dir, "tmp"),
		"XDG_RUNTIME_DIR="+filepath.Join(dir, "tmp"), "FARLOG_SOURCE="+testenv.Root())
	shell.SysProcAttr = ownNetwork()
	var output bytes.Buffer
	shell.Stdout, shell.Stderr = &output, &output
	shell.WaitDelay = testenv.Timeout
	if err := shell.Start(); errors.Is(err, syscall.EPERM) {
		t.Skipf("a network of its own: %v: this system lets only root make one; run the test as root", err)
	} else if err != nil {
		t.Fatal(err)
	}
	group := -shell.Process.Pid
	late := time.AfterFunc(pageTimeout, func() { _ = syscall.Kill(group, syscall.SIGKILL) })
	t.Cleanup(func() { _ = syscall.Kill(group, syscall.SIGKILL) })
	state, err := shell.Process.Wait()
	if !late.Stop() {
		err = fmt.Errorf("it took longer than %v", pageTimeout)
	} else if err == nil && !state.Success() {
		err = errors.New(state.String())
	}
	_ = syscall.Kill(group, syscall.SIGKILL) // daemons that the page has left behind
	_ = shell.Wait()                         // until their output is closed
	return output.String(), err
}

// ownNetwork is a process group with a network namespace of its own; who is not root takes a user namespace with it.
func ownNetwork() *syscall.SysProcAttr {
	attributes := &syscall.SysProcAttr{Setpgid: true, Cloneflags: syscall.CLONE_NEWNET}
	if os.Getuid() != 0 {
		attributes.Cloneflags |= syscall.CLONE_NEWUSER
		attributes.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		attributes.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	return attributes
}

// pageDir is on a disk and not on tmpfs, which no level persistent is given on; its path is short, for sockets.
func pageDir(t *testing.T) string {
	t.Helper()
	build := filepath.Join(testenv.Root(), "build")
	if err := os.MkdirAll(build, 0o755); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(build, "page-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Mkdir(filepath.Join(dir, "tmp"), 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

var ownVariable = regexp.MustCompile(`^(FARLOG_|HOME=|TMPDIR=|XDG_|PATH=)`)

// cleanEnvironment is this process's without what would make a page something else than it is at a reader's.
func cleanEnvironment() []string {
	var kept []string
	for _, variable := range os.Environ() {
		if !ownVariable.MatchString(variable) {
			kept = append(kept, variable)
		}
	}
	return kept
}
