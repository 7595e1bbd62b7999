package store_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/farlog/farlog/pkg/store"
	"github.com/farlog/farlog/pkg/store/storetest"
)

const removingEnv = "FARLOG_TEST_REMOVING"

// TestRemoveBefore_KilledProcess kills a process that removes segment after segment, with SIGKILL, at different places.
// Each time the stream is whole from its base on, and not shorter than what the process had reported.
func TestRemoveBefore_KilledProcess(t *testing.T) {
	if dir := os.Getenv(removingEnv); dir != "" {
		removeUntilKilled(t, dir)
		return
	}
	dir := filepath.Join(t.TempDir(), "store")
	opened, err := store.Open(dir, store.Options{Create: true, SegmentBytes: store.SegmentBytesMin})
	if err != nil {
		t.Fatal(err)
	}
	ring := storetest.NewRing(testStream, 1)
	ring.Append(2000, 600)
	app, err := opened.OpenStream(ring.Source)
	if err != nil {
		t.Fatal(err)
	}
	for _, rec := range ring.Records {
		if _, _, err := app.Append(rec.Raw); err != nil {
			t.Fatal(err)
		}
	}
	if err := app.Close(); err != nil {
		t.Fatal(err)
	}
	for round := range 12 {
		said := removeAndKill(t, dir, 1+round%3)
		base, err := opened.Base(testStream)
		if err != nil || base == nil || base.Segment < said {
			t.Fatalf("round %d: stream begins with %+v, it was said to begin with segment %d: %v", round, base, said,
				err)
		}
		report, err := opened.Verify(context.Background(), store.VerifyOptions{})
		if err != nil || !report.OK() {
			t.Fatalf("round %d: %s: %v", round, report.Streams[0].Statement(), err)
		}
		last := report.Streams[0].Generations[0].NextLSN
		if last != ring.NextLSN() {
			t.Fatalf("round %d: stream ends at lsn %d, expected %d", round, last, ring.NextLSN())
		}
		if app, err = opened.OpenStream(ring.Source); err != nil {
			t.Fatal(err)
		}
		if err := app.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// removeUntilKilled removes a segment for each byte that comes in, and says with which one the stream begins now.
func removeUntilKilled(t *testing.T, dir string) {
	t.Helper()
	opened, err := store.Open(dir, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for tokens := bufio.NewReader(os.Stdin); ; {
		if _, err := tokens.ReadByte(); err != nil {
			t.Fatal(err)
		}
		h, err := opened.History(testStream)
		if err != nil {
			t.Fatal(err)
		}
		base, err := opened.RemoveBefore(testStream, store.Removal{Before: h.First + 1, Policy: "test"})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("begins %d\n", base.Segment)
	}
}

// removeAndKill lets a process remove until it has said so some times, and kills it in the middle of what comes next.
func removeAndKill(t *testing.T, dir string, times int) (said uint64) {
	t.Helper()
	child := exec.Command(os.Args[0], "-test.run", "^TestRemoveBefore_KilledProcess$")
	child.Env = append(os.Environ(), removingEnv+"="+dir)
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Write(make([]byte, times+1)); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for times > 0 && lines.Scan() {
		if _, err := fmt.Sscanf(lines.Text(), "begins %d", &said); err == nil {
			times--
		}
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
		_, _ = fmt.Sscanf(lines.Text(), "begins %d", &said) // it was said before the kill came
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // killed
	if times > 0 {
		t.Fatal("the process ended by itself")
	}
	return said
}
