package filelock

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestAcquire_HeldUntilItIsClosed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	if err := os.WriteFile(path, []byte("pid=1234567890 of a longer holder before\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	first, err := Acquire(path, "pid=7")
	if err != nil {
		t.Fatal(err)
	}
	var held *HeldError
	if second, err := Acquire(path, "pid=8"); !errors.As(err, &held) || held.Holder != "pid=7" ||
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
	if _, err := Acquire(path, ""); !errors.As(err, &held) || held.Holder != "holder unknown" {
		t.Errorf("got %v", err)
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
