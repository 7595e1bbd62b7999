package replace

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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

// TestFile_IsSyncedBeforeItsNameAndTheNameAfter follows the system calls of a child that replaces one file: what a power cut may take
// is decided by their order.
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
	command := exec.Command(strace, "-f", "-y", "-o", log, "-e", "trace=write,fsync,fdatasync,rename,renameat,renameat2",
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
	order := regexp.MustCompile(`(?s)write\(\d+<` + at + `/\.state\.json-\d+>.*f(data)?sync\(\d+<` + at + `/\.state\.json-\d+>.*` +
		`rename\w*\(.*state\.json".*f(data)?sync\(\d+<` + at + `>`)
	if !order.Match(calls) {
		t.Errorf("expected write, sync of the file, rename, sync of the directory:\n%s", calls)
	}
}
