package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	systemd "github.com/coreos/go-systemd/v22/daemon"
)

// feedsPerInterval is how often the watchdog is fed in WatchdogSec=.
const feedsPerInterval = 4

// notifier says to systemd how the daemon is (Type=notify), and feeds the watchdog of its unit (WatchdogSec=). Without
// them it does nothing.
type notifier struct {
	logger  *slog.Logger
	stalled func(now time.Time) error // says which roles hang
	// isHeldUp reports whether a thread of this process waits for a device.
	isHeldUp func() bool
}

// ready says that the daemon serves. An error ends the daemon: systemd would wait for ever.
func (n *notifier) ready(status string) error {
	if _, err := systemd.SdNotify(false, systemd.SdNotifyReady+"\nSTATUS="+status); err != nil {
		return fmt.Errorf("NOTIFY_SOCKET %q: readiness could not be sent: %w", os.Getenv("NOTIFY_SOCKET"), err)
	}
	return nil
}

// say sends what is no harm to lose.
func (n *notifier) say(state string) {
	if _, err := systemd.SdNotify(false, state); err != nil {
		n.logger.Warn("systemd could not be notified", "state", state, "error", err)
	}
}

// run feeds the watchdog until ctx is done, and says then that the daemon stops.
func (n *notifier) run(ctx context.Context) error {
	defer n.say(systemd.SdNotifyStopping)
	if err := n.watch(ctx); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// watch feeds the watchdog until ctx is done, as long as no role hangs. One that does is named in the log, and systemd
// ends the daemon.
func (n *notifier) watch(ctx context.Context) error {
	interval, err := systemd.SdWatchdogEnabled(false)
	if err != nil {
		return fmt.Errorf("WATCHDOG_USEC %q: %w", os.Getenv("WATCHDOG_USEC"), err)
	}
	if interval == 0 {
		return nil
	}
	tick := time.NewTicker(interval / feedsPerInterval)
	defer tick.Stop()
	for hasHung := false; ; {
		err := n.stalled(time.Now())
		if err == nil || n.isHeldUp() {
			n.say(systemd.SdNotifyWatchdog)
		}
		if err != nil && !hasHung {
			n.logger.Error("systemd ends the daemon unless it goes on, or a thread waits for a device", "error", err)
		}
		hasHung = err != nil
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// isHeldUpByDevice reports whether a thread of this process is in uninterruptible sleep: it waits for a disk, or for
// another device. To end the process would not end the wait, and the next one would meet the same device. What cannot
// be read counts as no such thread.
func isHeldUpByDevice() bool {
	files, err := filepath.Glob("/proc/self/task/*/stat")
	if err != nil {
		return false
	}
	for _, name := range files {
		raw, err := os.ReadFile(name)
		if err == nil && threadState(raw) == 'D' {
			return true
		}
	}
	return false
}

// threadState is the third field of proc_pid_stat(5): it is behind the name, which may have brackets and blanks.
func threadState(stat []byte) byte {
	end := bytes.LastIndexByte(stat, ')')
	if end < 0 || end+2 >= len(stat) {
		return 0
	}
	return stat[end+2]
}

// notifyReady says to systemd that all roles serve, by what announce says to people.
func (d *daemon) notifyReady(status string, err error) error {
	if err != nil {
		return errors.Join(err, errors.New("ready file could not be written"))
	}
	return d.notifier.ready(status)
}
