package testenv

import (
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Terminal is a program of the tree on a terminal of its own.
type Terminal struct {
	*Process
	master *os.File
	mutex  sync.Mutex
	shown  []byte
}

// StartOnTerminal runs a program on a pseudo-terminal of that size.
func StartOnTerminal(tb testing.TB, columns, rows int, program string, args ...string) *Terminal {
	tb.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		tb.Skipf("no pseudo-terminals here: %v", err)
	}
	tb.Cleanup(func() { master.Close() })
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		tb.Fatalf("unlock pseudo-terminal: %v", err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		tb.Fatal(err)
	}
	defer slave.Close()
	t := &Terminal{master: master}
	t.Resize(columns, rows)
	cmd := exec.Command(Program(tb, program), args...)
	cmd.Stdin, cmd.Stdout = slave, slave
	t.Process = startCommand(tb, cmd)
	go t.read()
	return t
}

func (t *Terminal) read() {
	buffer := make([]byte, 32<<10)
	for {
		count, err := t.master.Read(buffer)
		t.mutex.Lock()
		t.shown = append(t.shown, buffer[:count]...)
		t.mutex.Unlock()
		if err != nil {
			return
		}
	}
}

// Shown is all that the program wrote so far.
func (t *Terminal) Shown() string {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return string(t.shown)
}

// Press sends keys.
func (t *Terminal) Press(keys string) error {
	_, err := t.master.WriteString(keys)
	return err
}

// Resize changes the size; who draws finds it at its next look.
func (t *Terminal) Resize(columns, rows int) {
	_ = unix.IoctlSetWinsize(int(t.master.Fd()), unix.TIOCSWINSZ,
		&unix.Winsize{Col: uint16(columns), Row: uint16(rows)})
}
