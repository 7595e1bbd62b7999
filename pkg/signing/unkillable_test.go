package signing

import (
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A program that a signal does not end, as one in an uninterruptible sleep, stops no appender: Sign returns all the
// same. It keeps its place meanwhile, so that no more than a few of them are ever started; when it ends, its place is
// free again. The clock is that of the test, and goes on when all wait.
func TestCommand_CannotBeKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		command, wake := NewCommand("head -c 64 /dev/zero", nil, 0), make(chan struct{})
		command.run = func(*exec.Cmd) error { <-wake; return nil } // no test can make such a sleep without root
		began, returned := time.Now(), make(chan error, atOnceMax)
		for range atOnceMax {
			go func() { _, err := command.Sign([]byte("statement")); returned <- err }()
		}
		for range atOnceMax {
			if err := <-returned; err == nil || !strings.Contains(err.Error(), "could not be killed") {
				t.Fatalf("%v", err)
			}
		}
		if took := time.Since(began); took != TimeoutDefault+waitDelay {
			t.Errorf("the callers waited for %s, expected %s", took, TimeoutDefault+waitDelay)
		}
		_, err := command.Sign([]byte("statement"))
		if err == nil || !strings.Contains(err.Error(), "4 of it still run") {
			t.Errorf("%v, expected that no further one is started", err)
		}
		close(wake)
		for range atOnceMax {
			command.free <- struct{}{} // a place becomes free, or the test does not end
		}
	})
}

// A caller who comes late, as on a machine that is busy, finds a free place as each other one does: nothing says that
// programs still run.
func TestCommand_LateCallerFindsAFreePlace(t *testing.T) {
	command := NewCommand("head -c 64 /dev/zero", nil, -time.Second) // it is over already
	command.run = func(*exec.Cmd) error { return nil }
	for range 64 {
		if _, err := command.Sign([]byte("statement")); err == nil || strings.Contains(err.Error(), "still run") {
			t.Fatalf("%v, and no program runs", err)
		}
	}
}
