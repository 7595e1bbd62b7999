package e2e

import (
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/farlog/farlog/pkg/internal/testenv"
)

// failingDisk stands in for a disk: msync answers EIO while the file DIR/eio is there.
const failingDisk = `
#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>
int msync(void *start, unsigned long len, int flags)
{
	if (access(DIR "/eio", F_OK) != 0)
		return (int)syscall(SYS_msync, start, len, flags);
	errno = EIO;
	return -1;
}
`

// preload compiles a library that a program loads first, and gives the command that runs one so.
func preload(t *testing.T, dir, source string) (under []string) {
	t.Helper()
	path, library := filepath.Join(dir, "preload.c"), filepath.Join(dir, "preload.so")
	if err := os.WriteFile(path, []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	if said, err := exec.Command("cc", "-shared", "-fPIC", "-DDIR=\""+dir+"\"", "-o", library,
		path).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	return []string{"env", "LD_PRELOAD=" + library}
}

// scrapePage reads the metrics of a daemon.
func scrapePage(t *testing.T, address string) string {
	t.Helper()
	answer, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	page, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

// The disk below a ring answers writes with EIO: the writer on another host gets no acknowledgement, target, status and
// metrics say why, and when the disk works again so does the stream. Nothing that was acknowledged is lost.
func TestMedia_DiskOfTargetAnswersEIO(t *testing.T) {
	testenv.SkipWhenShort(t)
	dir := t.TempDir() // a disk, which has to be synced
	cluster := testenv.PrepareRemoteCluster(t, dir, farHost, nil)
	cluster.MetricsListen = "127.0.0.1:0"
	cluster.StartControl()
	cluster.Under = preload(t, dir, failingDisk)
	cluster.StartTarget()
	cluster.Under = nil
	cluster.StartDrain()
	uri := cluster.CreateStream(streamName, "--size", "1MiB", "--record-len-max", "64KiB", "--level", "persistent")
	lines, feed := io.Pipe()
	w := testenv.Start(t, lines, nil, "farlog", "append", "--stream", streamName, "--control", cluster.ControlAddress,
		"--ack", "text")
	t.Cleanup(func() { feed.Close() }) // before the process is waited for, which reads of it
	write := func(line string) {
		t.Helper()
		if _, err := io.WriteString(feed, line+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	acknowledged := regexp.MustCompile(`(?m) persistent #(\d+)$`)
	write("before")
	testenv.Until(t, "the first record is acknowledged", func() (bool, error) {
		return len(acknowledged.FindAllString(w.Log(), -1)) == 1, nil
	})
	if err := os.WriteFile(filepath.Join(dir, "eio"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	write("meanwhile")
	expectMediumFails(t, cluster)
	if log := w.Log(); len(acknowledged.FindAllString(log, -1)) != 1 {
		t.Errorf("acknowledged although the disk took nothing: %s", log)
	}
	if err := os.Remove(filepath.Join(dir, "eio")); err != nil {
		t.Fatal(err)
	}
	feed.Close()
	_ = w.Wait() // it resolves what it does not know, or says that it cannot
	after := testenv.Start(t, strings.NewReader("after\n"), nil, "farlog", "append", "--stream", streamName,
		"--control", cluster.ControlAddress, "--ack", "none")
	if err := after.Wait(); err != nil {
		t.Fatalf("after: %v: %s", err, after.Log())
	}
	testenv.Until(t, "the stream is well again", func() (bool, error) {
		return !strings.Contains(cluster.Stream(streamName).Reason, "medium"), nil
	})
	waitDrained(t, uri)
	cluster.Drain.Stop()
	replayed := testenv.MustRun(t, "farlog", "replay", cluster.StoreDir, "--stream", streamName, "--speed", "max")
	for _, text := range []string{"before", "after"} {
		if strings.Count(replayed, text+"\n") != 1 {
			t.Errorf("%q is in the store %d times: %s", text, strings.Count(replayed, text+"\n"), replayed)
		}
	}
}

// expectMediumFails wants status, log and metrics to say that the medium of the stream's ring fails.
func expectMediumFails(t *testing.T, cluster *testenv.Cluster) {
	t.Helper()
	testenv.Until(t, "the status says so", func() (bool, error) {
		return strings.Contains(cluster.Stream(streamName).Reason, "its medium does not take what is written: "+
			"input/output error"), nil
	})
	if log := cluster.Target.Log(); strings.Count(log, "does not take what is written: input/output error") != 1 ||
		!strings.Contains(log, "stream="+streamName) {
		t.Errorf("the target's log: %s", log)
	}
	failing := regexp.MustCompile(`(?m)^farlog_target_flush_errno{stream="` + streamName + `",[^}]*} 5$`)
	if page := scrapePage(t, cluster.Metrics["target"]); !failing.MatchString(page) {
		t.Errorf("metrics: %s", page)
	}
}
