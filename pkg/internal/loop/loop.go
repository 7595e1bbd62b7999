// Package loop makes block devices and disks of files, for tests of what only they do. It needs root, and skips
// without.
package loop

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Device makes a block device of a file.
func Device(tb testing.TB, size int64) string {
	tb.Helper()
	if os.Geteuid() != 0 {
		tb.Skip("only root can make a loop device")
	}
	file := filepath.Join(tb.TempDir(), "blocks")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, size)); err != nil {
		tb.Fatal(err)
	}
	made, err := exec.Command("losetup", "--find", "--show", file).Output()
	if err != nil {
		tb.Skipf("losetup: no loop devices on this machine: %v", err)
	}
	device := strings.TrimSpace(string(made))
	tb.Cleanup(func() {
		if err := exec.Command("losetup", "--detach", device).Run(); err != nil {
			tb.Error(err)
		}
	})
	return device
}

// Disk is a directory on an ext4 of its own. Nothing may be open there when the test ends.
func Disk(tb testing.TB, size int64) string {
	tb.Helper()
	device, dir := Device(tb, size), tb.TempDir()
	if said, err := exec.Command("mkfs.ext4", "-q", "-F", "-m", "0", device).CombinedOutput(); err != nil {
		tb.Skipf("mkfs.ext4: %v: %s", err, said)
	}
	if said, err := exec.Command("mount", device, dir).CombinedOutput(); err != nil {
		tb.Skipf("no ext4 can be mounted here: %v: %s", err, said)
	}
	tb.Cleanup(func() {
		if said, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			tb.Errorf("umount: %v: %s", err, said)
		}
	})
	return dir
}
