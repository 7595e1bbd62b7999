package filelock

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const locksFile = "/proc/locks"

// pidText finds the process in what holders write: "pid=7", and of consumers and merges "process 7".
var pidText = regexp.MustCompile(`\b(?:pid=|process )(\d+)\b`)

// holderOf says who holds a lock. What is written in the file is the last holder's who wrote there; whoever locked the
// file since without a word, or through a descriptor that he was left, is another one. So the kernel is asked.
func holderOf(file *os.File) string {
	text := writtenIn(file)
	if pid := lockingPID(file); pid > 0 {
		return holderBy(pid, text)
	}
	found := pidText.FindStringSubmatch(text)
	if text == "" || found == nil {
		return orUnknown(text)
	}
	pid, err := strconv.Atoi(found[1])
	if err != nil || errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
		return fmt.Sprintf("holder unknown; the last one to say so was %s, which is no process here", text)
	}
	return text
}

func orUnknown(text string) string {
	if text == "" {
		return "holder unknown"
	}
	return text
}

// holderBy names the process that the kernel names.
func holderBy(pid int, text string) string {
	said := pidText.FindStringSubmatch(text)
	isSaid := said != nil && said[1] == strconv.Itoa(pid)
	if errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
		return fmt.Sprintf("a process that pid=%d has started and left the lock to when it ended", pid)
	}
	if isSaid {
		return text
	}
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		name = []byte("unknown program")
	}
	return fmt.Sprintf("pid=%d program=%s, which did not say so", pid, strings.TrimSpace(string(name)))
}

// lockingPID is the process that has taken a file's lock; 0 = the kernel does not say: it is on another host, in
// another container, or the file system has names of its own for its devices.
func lockingPID(file *os.File) int {
	var info unix.Stat_t
	if unix.Fstat(int(file.Fd()), &info) != nil {
		return 0
	}
	want := fmt.Sprintf("%02x:%02x:%d", unix.Major(info.Dev), unix.Minor(info.Dev), info.Ino)
	locks, err := os.Open(locksFile)
	if err != nil {
		return 0
	}
	defer locks.Close()
	for lines := bufio.NewScanner(locks); lines.Scan(); {
		// 5: FLOCK  ADVISORY  WRITE 29227 fe:00:10223999 0 EOF; of those who wait there is "->" behind the number
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 || fields[1] != "FLOCK" || fields[5] != want {
			continue
		}
		if pid, err := strconv.Atoi(fields[4]); err == nil && pid > 0 {
			return pid
		}
	}
	return 0
}
