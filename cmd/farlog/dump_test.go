package main

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farlog/farlog/pkg/record"
)

// loopOn makes a block device over a file, whose page cache is not the file's: what is written to the file afterwards
// is what another host, or a bare NVMe command, writes to a namespace.
func loopOn(t *testing.T, file string) string {
	t.Helper()
	made, err := exec.Command("losetup", "--find", "--show", file).Output()
	device := strings.TrimSpace(string(made))
	if err != nil {
		t.Skipf("losetup: no loop devices on this machine: %v", err)
	}
	t.Cleanup(func() {
		if err := exec.Command("losetup", "--detach", device).Run(); err != nil {
			t.Errorf("losetup --detach %s: %v", device, err)
		}
	})
	return device
}

func TestDump_DeviceThatWasWrittenPastThePageCache(t *testing.T) {
	ring, err := os.ReadFile(goldenBlocks)
	if err != nil {
		t.Fatal(err)
	}
	want, _, code := runFarlog(t, "dump", goldenBlocks)
	if code != exitOK || want == "" {
		t.Fatalf("exit code %d, %q", code, want)
	}
	file := filepath.Join(t.TempDir(), "device")
	if err := os.WriteFile(file, make([]byte, (len(ring)+4095)/4096*4096), 0o600); err != nil {
		t.Fatal(err)
	}
	device := loopOn(t, file)
	reader, err := os.Open(device)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close() // while it is open the kernel keeps what was read
	if _, err := io.Copy(io.Discard, reader); err != nil {
		t.Fatal(err)
	}
	backing, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer backing.Close()
	if _, err := backing.WriteAt(ring, 0); err != nil {
		t.Fatal(err)
	}
	if text, talk, code := runFarlog(t, "dump", device); code != exitOK || text != want {
		t.Fatalf("exit code %d, stderr %q, %q; want %q", code, talk, text, want)
	}
}

// A clock whose error was not known has none in JSON: no number stands for that.
func TestDump_UnknownClockErrorIsNull(t *testing.T) {
	var text bytes.Buffer
	d := &dumper{ctx: t.Context(), out: bufio.NewWriter(&text), isJSON: true, options: dumpOptions{to: 1}}
	for _, clockErr := range []uint32{250, record.ClockErrUnknown} {
		if err := d.print("desk7/orders", record.Record{Header: record.Header{ClockErrNS: clockErr}},
			false); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.out.Flush(); err != nil {
		t.Fatal(err)
	}
	if got := text.String(); !strings.Contains(got, `"clock_err_ns":250,`) ||
		!strings.Contains(got, `"clock_err_ns":null,`) {
		t.Error(got)
	}
}
