package replace

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

func TestFile_ContentAndModeAreExact(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	for _, want := range []struct {
		content string
		mode    os.FileMode
	}{{"first", 0o644}, {"the second one", 0o600}, {"3", 0o640}} {
		if err := File(path, []byte(want.content), want.mode); err != nil {
			t.Fatal(err)
		}
		raw, err := os.ReadFile(path)
		if err != nil || string(raw) != want.content {
			t.Fatalf("%q, %v", raw, err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want.mode {
			t.Fatalf("%v, %v; expected mode %v", info, err, want.mode)
		}
	}
}

func TestFile_ErrorLeavesTheOldFileAndNothingElse(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "taken"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := File(filepath.Join(dir, "taken"), []byte("x"), 0o644); err == nil {
		t.Fatal("a directory was replaced")
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 1 {
		t.Fatalf("%v, %v: expected the directory alone", names, err)
	}
}

const childEnv = "FARLOG_TEST_REPLACE_PATH"

// TestFile_IsSyncedBeforeItsNameAndTheNameAfter follows the system calls of a child that replaces one file: what a
// power cut may take is decided by their order.
func TestFile_IsSyncedBeforeItsNameAndTheNameAfter(t *testing.T) {
	if path := os.Getenv(childEnv); path != "" {
		if err := File(path, []byte("content"), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("strace is not installed")
	}
	dir := t.TempDir()
	log := filepath.Join(dir, "calls")
	command := exec.Command(strace, "-f", "-y", "-o", log, "-e",
		"trace=write,fsync,fdatasync,rename,renameat,renameat2",
		os.Args[0], "-test.run=^"+t.Name()+"$")
	command.Env = append(os.Environ(), childEnv+"="+filepath.Join(dir, "state.json"))
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	calls, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	at := regexp.QuoteMeta(dir)
	order := regexp.MustCompile(`(?s)write\(\d+<` + at + `/\.state\.json-\d+>.*f(data)?sync\(\d+<` + at +
		`/\.state\.json-\d+>.*` +
		`rename\w*\(.*state\.json".*f(data)?sync\(\d+<` + at + `>`)
	if !order.Match(calls) {
		t.Errorf("expected write, sync of the file, rename, sync of the directory:\n%s", calls)
	}
}

// TestSweep_EachCallFailsOnce lets the kernel refuse each call of a child that replaces a file: the error names the
// file and says why, the old content is there unless only the sync of the directory failed, and nothing is left beside
// it.
func TestSweep_EachCallFailsOnce(t *testing.T) {
	if path := os.Getenv(childEnv); path != "" {
		runtime.LockOSThread() // strace counts the calls of each thread
		defer runtime.UnlockOSThread()
		if err := File(path, []byte("new"), 0o600); err != nil {
			t.Fatalf("REFUSED %v", err)
		}
		return
	}
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("strace is not installed")
	}
	if output, err := exec.Command(strace, "-o", os.DevNull, "true").CombinedOutput(); err != nil {
		t.Skipf("strace may not trace here: %v: %s", err, output)
	}
	for _, fault := range []struct {
		inject, says, left string
	}{
		{"fchmod,fchmodat:error=EPERM:when=1", "operation not permitted", "old"},
		{"fsync:error=EIO:when=1", "input/output error", "old"},
		{"fsync:error=ENOSPC:when=1", "no space left on device", "old"},
		{"renameat,renameat2,rename:error=EIO:when=1", "input/output error", "old"},
		{"fsync:error=EIO:when=2", "input/output error", "new"},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "state.json")
		if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
			t.Fatal(err)
		}
		command := exec.Command(strace, "-f", "-o", os.DevNull, "-e", "inject="+fault.inject, os.Args[0],
			"-test.run=^"+t.Name()+"$")
		command.Env = append(os.Environ(), childEnv+"="+path)
		output, err := command.CombinedOutput()
		if err == nil || !strings.Contains(string(output), "REFUSED") || !strings.Contains(string(output), dir) ||
			!strings.Contains(string(output), fault.says) {
			t.Errorf("%s: %v, %s: expected an error that names %s and says %q", fault.inject, err, output, dir,
				fault.says)
		}
		if raw, err := os.ReadFile(path); err != nil || string(raw) != fault.left {
			t.Errorf("%s: the file holds %q, %v, expected %q", fault.inject, raw, err, fault.left)
		}
		if names, err := os.ReadDir(dir); err != nil || len(names) != 1 {
			t.Errorf("%s: %v, %v are left, expected the file alone", fault.inject, names, err)
		}
	}
}
