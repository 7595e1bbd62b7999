package filelock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestAcquire_HeldUntilItIsClosed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	if err := os.WriteFile(path, []byte("pid=1234567890 of a longer holder before\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	own := fmt.Sprintf("pid=%d", os.Getpid())
	first, err := Acquire(path, own)
	if err != nil {
		t.Fatal(err)
	}
	var held *HeldError
	if second, err := Acquire(path, "pid=8"); !errors.As(err, &held) || held.Holder != own ||
		held.Path != path {
		t.Fatalf("acquired twice: %v, %v", second, err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	third, err := Acquire(path, "pid=9")
	if err != nil {
		t.Fatalf("given back, and not to be had: %v", err)
	}
	third.Close()
}

func TestAcquire_HolderThatSaysNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	file, err := Acquire(path, "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var held *HeldError
	if _, err := Acquire(path, ""); !errors.As(err, &held) ||
		!strings.HasSuffix(held.Holder, ", which did not say so") {
		t.Errorf("got %v", err)
	}
}

// Whoever locks the file without a word is named, and not the dead process whose name is in the file.
func TestAcquire_NameOfADeadProcessIsNotTheHolder(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	if err := os.WriteFile(path, []byte("host=here pid=999999999 program=farlogd\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	silent := exec.Command("flock", path, "sh", "-c", "echo held; read line")
	stdin, err := silent.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := silent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := silent.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stdin.Close(); _ = silent.Wait() })
	if _, err := stdout.Read(make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("pid=%d program=flock, which did not say so", silent.Process.Pid)
	var held *HeldError
	if _, err := Acquire(path, ""); !errors.As(err, &held) || held.Holder != want {
		t.Errorf("got %v, expected holder %s", err, want)
	}
}

// Each text by which a process of farlog says that it holds a lock is given as it is, when the kernel names that
// process.
func TestAcquire_HolderIsNamedAsItSays(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"host=h pid=%d program=p", "consumer c of process %d", "process %d"} {
		path := filepath.Join(t.TempDir(), "lock")
		want := fmt.Sprintf(text, os.Getpid())
		lock, err := Acquire(path, want)
		if err != nil {
			t.Fatal(err)
		}
		defer lock.Close()
		var held *HeldError
		if _, err := Acquire(path, ""); !errors.As(err, &held) || held.Holder != want {
			t.Errorf("got %v, expected holder %s", err, want)
		}
	}
}

// A lock's file that an earlier version made for all users to open is closed to them.
func TestAcquire_FileIsItsOwnersAlone(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	if err := errors.Join(os.WriteFile(path, nil, 0o644), os.Chmod(path, 0o644)); err != nil {
		t.Fatal(err)
	}
	lock, err := Acquire(path, "")
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v: expected mode 0600", info.Mode(), err)
	}
	link := path + ".link"
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if file, err := Acquire(link, ""); err == nil || file != nil {
		t.Error("a link was followed")
	}
}

// A lock that cannot be looked at is not had, and is not said to be somebody's.
func TestAcquire_NoSuchDirectory(t *testing.T) {
	t.Parallel()
	var held *HeldError
	file, err := Acquire(filepath.Join(t.TempDir(), "gone", "lock"), "pid=7")
	if file != nil || !errors.Is(err, fs.ErrNotExist) || errors.As(err, &held) {
		t.Errorf("got %v, %v", file, err)
	}
}
