package hostile

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/internal/testenv"
)

// Pages of a ring in a file cannot be read any more: the file was cut off, which the kernel answers as it does a disk
// that fails a read. Target and drain, which have it mapped, go on for the neighbour; log and status name the ring and
// say what to do; and when the pages are there again, all that was acknowledged is stored.
func TestHostile_MediaThatFails(t *testing.T) {
	testenv.SkipWhenShort(t)
	if os.Geteuid() != 0 {
		t.Skip("needs the super-user: daemons run as root, and attacks as nobody")
	}
	dir, err := os.MkdirTemp("/var/tmp", "farlog-hostile-") // a disk, and no longer than a socket's path may be
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	w := newWorldIn(t, dir, "persistent", "--host-name", "storage") // beside the target: it maps the rings
	w.attack("pages are lost", lostPages)
	w.finish()
}

func lostPages(w *world) {
	const name, kept, count = "mallory/lost", 0x3000 + 4096, 20 // the header, and a page of records
	w.cluster.CreateStream(name, "--size", "1MiB", "--record-len-max", "64KiB", "--level", "persistent")
	ring := filepath.Join(w.path("target", "rings"), strings.ReplaceAll(name, "/", "%2F")+".ring")
	writer := w.open(name)
	defer writer.Close()
	w.cluster.Drain.Pause()
	for range count {
		if _, err := writer.Append(farlog.Entry{Data: make([]byte, 1000)}, appendDeadline); err != nil {
			w.Fatal(err)
		}
	}
	whole, err := os.ReadFile(ring)
	w.must(err)
	w.must(os.Truncate(ring, kept))
	w.cluster.Drain.Signal(syscall.SIGCONT)
	if _, err = writer.Append(farlog.Entry{Data: make([]byte, 1000)}, time.Second); err == nil {
		w.Error("a record was acknowledged that went to a page which is not there")
	}
	w.awaitStatus(name, false)
	if log := w.cluster.Target.Log(); !strings.Contains(log, "ring cannot be used") || !strings.Contains(log, name) {
		w.Errorf("the target's log: %s", log)
	}
	testenv.Until(w.T, "the drain's log has it", func() (bool, error) {
		log := w.cluster.Drain.Log()
		return strings.Contains(log, "level=ERROR") && strings.Contains(log, "stream="+name), nil
	})
	file, err := os.OpenFile(ring, os.O_WRONLY, 0)
	w.must(err)
	_, err = file.WriteAt(whole, 0)
	w.must(err)
	w.must(file.Close())
	testenv.Until(w.T, "all acknowledged records are stored", func() (bool, error) {
		dump, _, code := testenv.Run(w.T, "farlog", "dump", w.cluster.StoreDir, "--stream", name)
		return code == 0 && strings.Count(dump, "\n") >= count, nil
	})
}

// awaitStatus waits until the status of a stream is well, or says that it is not.
func (w *world) awaitStatus(name string, isWell bool) {
	w.Helper()
	testenv.Until(w.T, "the status shows it", func() (bool, error) {
		_, _, code := testenv.Run(w.T, "farlog", "status", name, "--control", w.cluster.ControlAddress)
		return (code == 0) == isWell, nil
	})
}
