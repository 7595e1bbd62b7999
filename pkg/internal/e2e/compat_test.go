package e2e

import (
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farlog/farlog/pkg/internal/testenv"
)

// orders are records as testdata/compat/record.sh makes them.
func orders(from, to int) []byte {
	var text bytes.Buffer
	for number := from; number <= to; number++ {
		record := fmt.Sprintf("order %d ", number)
		text.WriteString(record + strings.Repeat(".", 1000-len(record)) + "\n")
	}
	return text.Bytes()
}

// A ring and a store that an earlier version has written are read, proved and written on.
func TestCompat_RecordingsOfEarlierVersions(t *testing.T) {
	recordings, err := filepath.Glob(filepath.Join(testenv.Root(), "testdata", "compat", "*.tar.gz"))
	if err != nil || len(recordings) == 0 {
		t.Fatalf("recordings %v, %v; expected one at least", recordings, err)
	}
	for _, recording := range recordings {
		t.Run(strings.TrimSuffix(filepath.Base(recording), ".tar.gz"), func(t *testing.T) {
			dir := t.TempDir()
			if out, err := exec.Command("tar", "-C", dir, "-xSzf", recording).CombinedOutput(); err != nil {
				t.Fatalf("tar: %v\n%s", err, out)
			}
			openRecording(t, compat{dir: dir})
		})
	}
}

// compat is a recording, unpacked.
type compat struct{ dir string }

// run gives what farlog prints on standard output.
func (c compat) run(t *testing.T, stdin []byte, args ...string) []byte {
	t.Helper()
	cmd := exec.Command(testenv.Program(t, "farlog"), args...)
	cmd.Dir, cmd.Stdin = c.dir, bytes.NewReader(stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("farlog %s: %v\n%.2000s", strings.Join(args, " "), err, stderr.Bytes())
	}
	return stdout.Bytes()
}

func (c compat) replays(t *testing.T, want []byte, selection ...string) {
	t.Helper()
	got := c.run(t, nil, append([]string{"replay", "store", "--speed", "max"}, selection...)...)
	if !bytes.Equal(got, want) {
		t.Errorf("replay %v: %d bytes, expected %d", selection, len(got), len(want))
	}
}

func openRecording(t *testing.T, c compat) {
	t.Helper()
	const stream = "desk7/orders"
	c.run(t, nil, "verify", "store", "--public-key", "public.key", "--anchor", "anchors.json")
	c.replays(t, orders(1, 2500), "--stream", stream)
	c.replays(t, orders(1, 2500), "--merged")
	got, want := c.run(t, nil, "tail", "--ring", "mem:orders.ring", "--format", "raw"), orders(2501, 2520)
	if !bytes.Equal(got, want) {
		t.Errorf("the ring has %d bytes of records, expected %d", len(got), len(want))
	}
	c.run(t, orders(2521, 2530), "append", "--ring", "mem:orders.ring")
	c.run(t, nil, "ring", "drain", "mem:orders.ring", "store")
	c.run(t, nil, "merge", "store")
	c.run(t, nil, "verify", "store", "--public-key", "public.key", "--anchor", "anchors.json")
	c.replays(t, orders(1, 2530), "--stream", stream)
	c.replays(t, orders(1, 2530), "--merged")
}
