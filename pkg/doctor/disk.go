package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	tmpfsMagic  = 0x01021994
	freeLeast   = 1 << 30
	syncSamples = 21
	syncBytes   = 4096
	syncSlow    = 10 * time.Millisecond
)

// Disk looks at a directory for rings or a store: what is below it, the free space, and how long a sync takes. It
// writes one small file there and removes it.
func (h Host) Disk(dir string) []Finding {
	name := "disk " + dir
	var stat unix.Statfs_t
	if err := unix.Statfs(dir, &stat); err != nil {
		return []Finding{{name, Fail, err.Error(), "mkdir -p " + dir}}
	}
	if stat.Type == tmpfsMagic {
		return []Finding{{
			name, Fail, "tmpfs: nothing on it survives a restart of the host",
			"give a directory on a disk, or on persistent memory",
		}}
	}
	findings := []Finding{freeFinding(name, stat.Bavail*uint64(stat.Bsize)), h.cache(name, dir)}
	took, err := measureSync(dir)
	switch {
	case errors.Is(err, fs.ErrPermission):
		findings = append(findings, Finding{
			name + " sync", Fail, err.Error(),
			"run it as the user of the daemon that has the directory, or chown that user " + dir,
		})
	case err != nil:
		findings = append(findings, Finding{name + " sync", Fail, err.Error(), "look at dmesg"})
	case took > syncSlow:
		findings = append(findings, Finding{
			name + " sync", Warn,
			fmt.Sprintf("the median of %d syncs of 4 KiB is %s", syncSamples, took.Round(time.Microsecond)),
			"give a directory on a faster disk: each batch of a drain waits for one",
		})
	default:
		findings = append(findings, Finding{
			name + " sync", OK,
			fmt.Sprintf("the median of %d syncs of 4 KiB is %s", syncSamples, took.Round(time.Microsecond)), "",
		})
	}
	return findings
}

func freeFinding(name string, free uint64) Finding {
	if free < freeLeast {
		return Finding{
			name + " space", Warn, fmt.Sprintf("%d MiB are free", free>>20),
			"free some space: a full disk stops draining",
		}
	}
	return Finding{name + " space", OK, fmt.Sprintf("%d MiB are free", free>>20), ""}
}

// cache reports whether the device below a directory has a volatile cache. The kernel flushes such a one at each sync;
// a device that lies about that is not found out here.
func (h Host) cache(name, dir string) Finding {
	var info unix.Stat_t
	if err := unix.Stat(dir, &info); err != nil {
		return Finding{name + " cache", Warn, err.Error(), "ls -ld " + dir}
	}
	device := fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(info.Dev), unix.Minor(info.Dev))
	place, err := filepath.EvalSymlinks(h.path(device))
	if err != nil {
		return Finding{
			name + " cache", Warn, "no block device is seen below it",
			"findmnt -T " + dir + " says what is: a network's file system flushes as its server does",
		}
	}
	// A partition has no queue of its own.
	for _, queue := range []string{place, path.Dir(place)} {
		raw, err := os.ReadFile(filepath.Join(queue, "queue", "write_cache"))
		if err != nil {
			continue
		}
		if strings.TrimSpace(string(raw)) == writeThrough {
			return Finding{name + " cache", OK, filepath.Base(queue) + " has no volatile cache, or says so", ""}
		}
		return Finding{name + " cache", OK, filepath.Base(queue) +
			" has a volatile cache, which the kernel flushes at each sync", ""}
	}
	return Finding{name + " cache", Warn, "the device does not say whether it has a volatile cache", "ask its maker"}
}

func measureSync(dir string) (took time.Duration, err error) {
	file, err := os.CreateTemp(dir, ".farlog-doctor-*")
	if err != nil {
		return 0, fmt.Errorf("cannot be written: %w", errors.Unwrap(err))
	}
	defer func() { err = errors.Join(err, file.Close(), os.Remove(file.Name())) }()
	block := make([]byte, syncBytes)
	return medianOf(func() error {
		if _, err := file.WriteAt(block, 0); err != nil {
			return err
		}
		if err := unix.Fdatasync(int(file.Fd())); err != nil {
			return fmt.Errorf("sync: %w", err)
		}
		return nil
	})
}

func medianOf(act func() error) (time.Duration, error) {
	samples := make([]time.Duration, 0, syncSamples)
	for range syncSamples {
		began := time.Now()
		if err := act(); err != nil {
			return 0, err
		}
		samples = append(samples, time.Since(began))
	}
	slices.Sort(samples)
	return samples[len(samples)/2], nil
}
