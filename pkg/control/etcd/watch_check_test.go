package etcd

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// lines passes on each line of a log.
type lines chan string

func (l lines) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

func TestWatchCheck_SaysHowFarItIs(t *testing.T) {
	said := make(lines, 100)
	logger := slog.New(slog.NewTextHandler(said, nil))
	pace := checkPace{say: time.Millisecond, hangs: time.Hour}
	err := watchCheck(t.Context(), "/etcd", pace, logger, func(progress *checkProgress) error {
		file := progress.counted(bytes.NewReader(make([]byte, 5000)))
		if _, err := file.ReadAt(make([]byte, 4096), 0); err != nil {
			return err
		}
		for line := range said { // until one says what was read
			if strings.Contains(line, "dir=/etcd read_bytes=4096") {
				return io.ErrUnexpectedEOF
			}
		}
		return nil
	})
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%v, expected the error of the check", err)
	}
}

// Opening a pipe that nobody writes blocks, as a file does whose disk is gone: that is no damage, and no wait for ever.
func TestStartChecked_DiskThatDoesNotAnswer(t *testing.T) {
	dir := t.TempDir()
	database := filepath.Join(dir, "member", "snap", "db")
	if err := errors.Join(os.MkdirAll(filepath.Dir(database), 0o700), syscall.Mkfifo(database, 0o600)); err != nil {
		t.Fatal(err)
	}
	discard := slog.New(slog.DiscardHandler)
	check := func(ctx context.Context, pace checkPace) error {
		return watchCheck(ctx, dir, pace, discard, func(p *checkProgress) error { return checkFiles(dir, p) })
	}
	err := check(t.Context(), checkPace{say: time.Millisecond, hangs: 20 * time.Millisecond})
	if damage := new(DamagedError); !errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &damage) ||
		!strings.Contains(err.Error(), "nothing could be read for") {
		t.Errorf("%v, expected that nothing could be read", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := check(ctx, checkPaceDefault); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, expected the end of the context", err)
	}
	writer, err := os.OpenFile(database, os.O_RDWR, 0) // lets the two that were left behind end
	if err != nil {
		t.Fatal(err)
	}
	writer.Close()
}

// While the write-ahead log is checked no bytes count: it has the whole time that a check may hang, and not what the
// database has left of it. The clock is that of the test.
func TestWatchCheck_EachPhaseHasItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		discard := slog.New(slog.DiscardHandler)
		err := watchCheck(t.Context(), "/etcd", checkPaceDefault, discard, func(progress *checkProgress) error {
			time.Sleep(checkPaceDefault.hangs * 3 / 4)
			progress.beginPhase()
			time.Sleep(checkPaceDefault.hangs * 3 / 4)
			return io.ErrUnexpectedEOF
		})
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%v, expected the error of the check", err)
		}
	})
	dir, _ := filled(t)
	progress := &checkProgress{ctx: t.Context()}
	if err := checkFiles(dir, progress); err != nil || progress.phases.Load() != 1 {
		t.Errorf("%v, %d phases begun, expected that of the log", err, progress.phases.Load())
	}
}
