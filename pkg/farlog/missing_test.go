package farlog

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Whoever opens a ring that is not there is told the command that makes it, and the command is right.
func TestOpen_MissingRingNamesTheCommand(t *testing.T) {
	uri := "mem:" + filepath.Join(t.TempDir(), "orders.ring")
	empty := filepath.Join(t.TempDir(), "empty.ring")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for uri, wanted := range map[string]error{uri: ErrNotFound, "mem:" + empty: ErrNotARing} {
		_, writer := OpenWriter(uri, WriterOptions{})
		_, reader := OpenReader(uri, ReaderOptions{})
		for _, err := range []error{writer, reader} {
			if !errors.Is(err, wanted) || !strings.Contains(err.Error(), "farlog ring format '"+uri+"' --size 64MiB") {
				t.Errorf("open %s: %v, want the command that makes a ring", uri, err)
			}
		}
		if err := Format(uri, FormatOptions{SizeBytes: 64 << 20}); err != nil {
			t.Errorf("what the command does: %v", err)
		}
	}
}

// What is no NVMe device has no health page, and the error says so.
func TestDeviceHealth_OfWhatHasNone(t *testing.T) {
	for path, want := range map[string]error{"/dev/null": ErrUnsupported, "/dev/none-of-this": ErrNotFound} {
		if page, err := DeviceHealth(path); page != nil || !errors.Is(err, want) ||
			!strings.Contains(err.Error(), path) {
			t.Errorf("%s: %d bytes, %v", path, len(page), err)
		}
	}
}
