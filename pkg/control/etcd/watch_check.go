package etcd

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync/atomic"
	"time"
)

// checkPace says how the check of etcd's files is watched. It reads all of a database: of a large one for minutes.
type checkPace struct {
	say   time.Duration // between two lines of the log about it
	hangs time.Duration // without a byte read: its disk does not answer
}

var checkPaceDefault = checkPace{say: 5 * time.Second, hangs: 2 * time.Minute}

// checkProgress is how much of the files a check has read.
type checkProgress struct {
	ctx    context.Context
	read   atomic.Int64 // bytes
	phases atomic.Int64 // begun behind the first one
}

// beginPhase says that what was being read is read, and something else begins whose bytes do not count: it has the
// whole of checkPace.hangs.
func (p *checkProgress) beginPhase() { p.phases.Add(1) }

// counted gives a file whose reading counts, and ends with the context.
func (p *checkProgress) counted(file io.ReaderAt) io.ReaderAt { return countedFile{file, p} }

type countedFile struct {
	file     io.ReaderAt
	progress *checkProgress
}

func (f countedFile) ReadAt(raw []byte, at int64) (int, error) {
	if err := f.progress.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := f.file.ReadAt(raw, at)
	f.progress.read.Add(int64(n))
	return n, err
}

// watchCheck runs a check until it ends, ctx is done or it hangs, and logs how far it is. What hangs in a system call
// is left behind.
func watchCheck(ctx context.Context, dir string, pace checkPace, logger *slog.Logger,
	check func(*checkProgress) error,
) error {
	progress, done := &checkProgress{ctx: ctx}, make(chan error, 1)
	go func() { done <- check(progress) }()
	tick := time.NewTicker(pace.say)
	defer tick.Stop()
	last, lastPhase, since := int64(-1), int64(0), time.Now()
	for {
		select {
		case err := <-done:
			return err
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		read, phase := progress.read.Load(), progress.phases.Load()
		if read != last || phase != lastPhase {
			last, lastPhase, since = read, phase, time.Now()
		} else if hangs := time.Since(since); hangs >= pace.hangs {
			return fmt.Errorf("check etcd in %q: nothing could be read for %s, after %d bytes: check its disk and "+
				"the kernel's log (dmesg): %w", dir, hangs.Round(time.Second), read, os.ErrDeadlineExceeded)
		}
		logger.Info("etcd's files are checked before it starts", "dir", dir, "read_bytes", read)
	}
}
