package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/farlog/farlog/pkg/internal/testenv"
)

// slowFabric stands in for the moment in which libfabric is loaded: it loads what that loads, says so, and waits.
const slowFabric = `
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>
__attribute__((constructor)) static void load(void)
{
	if (dlopen("libinfinipath.so.4", RTLD_NOW) == NULL)
		_exit(77);
	close(open(DIR "/loading", O_CREAT | O_WRONLY, 0644));
	while (access(DIR "/go", F_OK) != 0)
		usleep(1000);
}
`

// A daemon that is asked to stop while it loads libfabric stops as it always does: a library that comes along
// (libinfinipath) takes SIGTERM for itself when it is loaded, and ends the process with 1 and no word.
func TestSignal_WhileLibfabricIsLoaded(t *testing.T) {
	if len(globLibraries(t, "libinfinipath.so.4")) == 0 {
		t.Skip("no libinfinipath.so.4 here: libfabric does not load it")
	}
	dir := t.TempDir()
	source := filepath.Join(dir, "slow.c")
	if err := os.WriteFile(source, []byte(slowFabric), 0o644); err != nil {
		t.Fatal(err)
	}
	if said, err := exec.Command("cc", "-shared", "-fPIC", "-DDIR=\""+dir+"\"", "-o",
		filepath.Join(dir, "libfabric.so.1"), source).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	assigned := `{"assignments": [{"stream": "desk7/orders", "uri": "ofi:tcp://127.0.0.1:1/desk7/orders", ` +
		`"ringUuid": "AAAAAAAAAAAAAAAAAAAAAQ==", "token": "AAAAAAAAAAAAAAAAAAAAAQ=="}]}`
	if err := os.WriteFile(filepath.Join(dir, "drain-assignments.json"), []byte(assigned), 0o600); err != nil {
		t.Fatal(err)
	}
	drain := testenv.StartUnder(t, []string{"env", "LD_LIBRARY_PATH=" + dir}, nil, nil, "farlogd", "drain",
		"--data-dir", dir, "--control", "127.0.0.1:1", "--metrics-listen", "off")
	testenv.Until(t, "the drain loads libfabric", func() (bool, error) {
		_, err := os.Stat(filepath.Join(dir, "loading"))
		return err == nil || drain.HasEnded(), nil
	})
	drain.Signal(syscall.SIGTERM)
	testenv.Until(t, "the signal is taken", func() (bool, error) {
		return drain.HasEnded() ||
			!isPending(drain.PID(), syscall.SIGTERM), nil
	})
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := drain.Wait(); err != nil || !strings.Contains(drain.Log(), "stopping") {
		t.Errorf("%v: %s", err, drain.Log())
	}
}

func globLibraries(t *testing.T, name string) []string {
	t.Helper()
	found, err := filepath.Glob("/usr/lib/*/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// isPending reports whether no thread of the process has taken a signal to it yet.
func isPending(pid int, signal syscall.Signal) bool {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	found := regexp.MustCompile(`ShdPnd:\s*([0-9a-f]+)`).FindSubmatch(raw)
	if err != nil || found == nil {
		return false
	}
	mask, err := strconv.ParseUint(string(found[1]), 16, 64)
	return err == nil && mask&(1<<(signal-1)) != 0
}
