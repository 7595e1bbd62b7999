package e2e

import (
	"strings"
	"testing"

	"github.com/farlog/farlog/pkg/internal/testenv"
)

// Whoever has the role reads a ring on another host by the stream's name: each time with a grant of its own, beside
// writer and drain, and the writer is not fenced by it.
func TestFar_TailByName(t *testing.T) {
	t.Parallel()
	cluster := testenv.NewRemoteCluster(t, testenv.MemoryDir(t), farHost, nil)
	cluster.CreateStream(streamName, "--size", "2MiB", "--level", "visible")
	cluster.Drain.Kill() // so that the records stay in the ring
	writer := testenv.Start(t, strings.NewReader("one\ntwo\nthree\n"), nil, "farlog", "append", "--control",
		cluster.ControlAddress, "--stream", streamName)
	if err := writer.Wait(); err != nil {
		t.Fatalf("append: %v\n%s", err, writer.Log())
	}
	for range 2 {
		stdout := testenv.MustRun(t, "farlog", "tail", "--control", cluster.ControlAddress, streamName, "--transport",
			"ofi", "--format", "raw")
		if !strings.Contains(stdout, "one") || !strings.Contains(stdout, "three") {
			t.Errorf("read %q", stdout)
		}
	}
	status := cluster.Stream(streamName)
	if status.EpochGranted != 1 || len(status.Rings) != 1 || status.Rings[0].ReaderGeneration != 2 ||
		status.Rings[0].EpochMin > 1 {
		t.Errorf("epoch granted %d, ring %v", status.EpochGranted, status.Rings)
	}
	if _, stderr, code := testenv.Run(t, "farlog", "tail", "--control", cluster.ControlAddress, streamName,
		"--transport", "verbs"); code != 1 || !strings.Contains(stderr, "does not listen by verbs") {
		t.Errorf("by verbs: exit code %d, %q", code, stderr)
	}
}
