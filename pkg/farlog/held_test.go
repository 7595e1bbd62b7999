package farlog_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/farlog/farlog/pkg/farlog"
)

const endedWriterRing = "FARLOG_TEST_ENDED_WRITER_RING"

// Whoever holds a ring's lock and has opened no epoch is not given the name of the writer before, which has ended.
func TestOpenWriter_HolderIsNotTheWriterThatEnded(t *testing.T) {
	if uri := os.Getenv(endedWriterRing); uri != "" {
		writer, err := farlog.OpenWriter(uri, farlog.WriterOptions{CountersDir: "none"})
		if err != nil {
			t.Fatal(err)
		}
		writer.Close()
		return
	}
	path := filepath.Join(t.TempDir(), "a.ring")
	uri := "mem:" + path
	if err := farlog.Format(uri, farlog.FormatOptions{SizeBytes: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	ended := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	ended.Env = append(os.Environ(), endedWriterRing+"="+uri)
	if output, err := ended.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	ring, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer ring.Close()
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(ring.Fd(), unix.F_OFD_SETLK, &lock); err != nil {
		t.Fatal(err)
	}
	writer, err := farlog.OpenWriter(uri, farlog.WriterOptions{CountersDir: "none"})
	if err == nil {
		writer.Close()
		t.Fatal("opened a ring whose lock is held")
	}
	if want := "which is no process here); stop it first"; !strings.Contains(err.Error(), want) {
		t.Fatalf("%v: expected %q in it", err, want)
	}
}
