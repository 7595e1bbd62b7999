package e2e

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farlog/farlog/pkg/internal/testenv"
)

// tailed is a stream that one process writes and another one, by a grant of its own, prints.
type tailed struct {
	name    string
	lines   io.Writer
	printed string // a file
	*testenv.Process
}

// startTailed returns when the first line, "before", is printed.
func startTailed(t *testing.T, cluster *testenv.Cluster, name string) *tailed {
	t.Helper()
	in, lines := io.Pipe()
	writer := testenv.Start(t, in, nil, "farlog", "append", "--control", cluster.ControlAddress, "--stream", name)
	t.Cleanup(func() { lines.Close() }) // before it is waited for
	printed, err := os.Create(filepath.Join(cluster.Dir, "printed-"+filepath.Base(name)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { printed.Close() })
	one := &tailed{name: name, lines: lines, printed: printed.Name()}
	start := func() {
		one.Process = testenv.Start(t, nil, printed, "farlog", "tail", "--control", cluster.ControlAddress, name, "-f",
			"--format", "raw", "--transport", "ofi")
	}
	if _, err := fmt.Fprintln(lines, "before"); err != nil {
		t.Fatal(err)
	}
	// Rings of members that nobody has written yet are none that a reader can tell the log from.
	testenv.Until(t, name+": its writer is in", func() (bool,
		error,
	) {
		return strings.Contains(writer.Log(), "recovered: epoch"), nil
	})
	start()
	testenv.Until(t, name+": what was there before is printed", func() (bool, error) {
		// before it was used: this machine stood still for as long as a grant is good
		if one.HasEnded() && strings.Contains(one.Log(), "the grant has expired") {
			start()
		}
		raw, err := os.ReadFile(one.printed)
		return len(raw) > 0, err
	})
	return one
}

// untilPrinted appends a line, and waits until it is the last one printed.
func (s *tailed) untilPrinted(t *testing.T, line string) {
	t.Helper()
	if _, err := fmt.Fprintln(s.lines, line); err != nil {
		t.Fatal(err)
	}
	testenv.Until(t, fmt.Sprintf("%s: %q is printed", s.name, line), func() (bool, error) {
		raw, err := os.ReadFile(s.printed)
		return strings.HasSuffix(string(raw), line+"\n"), err
	})
}

func (s *tailed) untilSaid(t *testing.T, text string) {
	t.Helper()
	testenv.Until(t, fmt.Sprintf("%s: tail says %q", s.name, text),
		func() (bool, error) { return strings.Contains(s.Log(), text), nil })
}

// A tail with a certificate of its own has its grant renewed before that ends, and counts as one reader however often.
// While there is no control plane it goes on reading and says so; when there is one again, it is renewed. So a target
// that is killed and restarted, which knows of no older grant, lets it in again: at a ring, and at three of which
// another one is then gone, so that the one that came back is needed.
func TestFar_TailRenewsItsGrant(t *testing.T) {
	testenv.SkipWhenShort(t)
	t.Parallel()
	cluster := testenv.PrepareRemoteCluster(t, testenv.MemoryDir(t), farHost, nil)
	cluster.ControlArgs = []string{"--reader-grant", "2s"}
	cluster.Start()
	second := testenv.NewTarget(t, cluster, "storage2", farHost)
	testenv.NewTarget(t, cluster, "storage3", farHost)
	const copied = "desk7/copied"
	cluster.CreateStream(streamName, "--size", "2MiB", "--level", "visible")
	cluster.CreateStream(copied, "--size", "2MiB", "--level", "visible", "--members", "3", "--needed", "2", "--wait",
		"20s")
	cluster.Drain.Kill() // so that the records stay
	all := []*tailed{startTailed(t, cluster, streamName), startTailed(t, cluster, copied)}
	for _, one := range all {
		testenv.Until(t, "the grant is renewed twice", func() (bool,
			error,
		) {
			return cluster.Stream(one.name).Rings[0].ReaderGeneration >= 3, nil
		})
	}
	cluster.Control.Kill()
	for _, one := range all {
		one.untilSaid(t, "is not renewed: ")
		one.untilPrinted(t, "without control")
	}
	cluster.StartControl()
	for _, one := range all {
		one.untilSaid(t, `"`+one.name+`" is renewed`)
	}
	cluster.Target.Kill()
	cluster.StartTarget()
	for _, one := range all {
		one.untilPrinted(t, "behind")
	}
	second.Kill()
	all[1].untilPrinted(t, "with the member that came back")
	for i, one := range all {
		want := "before\nwithout control\nbehind\n" + []string{"", "with the member that came back\n"}[i]
		if raw, err := os.ReadFile(one.printed); err != nil || string(raw) != want {
			t.Errorf("%s: printed %q, %v, expected %q", one.name, raw, err, want)
		}
	}
}
