package nvmet

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Where there is no target in the kernel a keeper says so once, counts, and goes on; a file with mistakes leaves what
// was declared before in force.
func TestKeeper_GoesOnThroughFailures(t *testing.T) {
	dir, log := t.TempDir(), new(bytes.Buffer)
	file := filepath.Join(dir, "nvmet.yaml")
	if err := os.WriteFile(file, []byte(declared), 0o600); err != nil {
		t.Fatal(err)
	}
	k, err := NewKeeper(file, filepath.Join(dir, "state.json"), filepath.Join(dir, "nvmet"),
		slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	k.poll()
	k.poll()
	if sample := k.Sample(); sample.IsAsDeclared || sample.Failures != 2 ||
		!strings.Contains(sample.Error, "mount -t configfs") {
		t.Errorf("sample is %+v, want two failures for want of a configfs", sample)
	}
	if count := strings.Count(log.String(), "nvmet differs from what is declared"); count != 1 {
		t.Errorf("it is told %d times, want once: %s", count, log)
	}
	if err := os.WriteFile(file, []byte("subsystems: [{nqn: x}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	k.poll()
	if sample := k.Sample(); !strings.Contains(sample.Error, "subsystems[0].nqn") || len(k.declared.Ports) != 3 {
		t.Errorf("sample is %+v with %d ports, want the mistake told and the 3 ports of before", sample,
			len(k.declared.Ports))
	}
	if _, err := NewKeeper(file, "", "", nil); err == nil || !strings.Contains(err.Error(), "subsystems[0].nqn") {
		t.Errorf("at the start: error %v, want the mistake", err)
	}
}
