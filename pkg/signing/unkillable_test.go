package signing

import (
	"os/exec"
	"strings"
	"testing"
	"time"
)

// A program that a signal does not end, as one in an uninterruptible sleep, stops no appender: Sign returns all the
// same. It keeps its place meanwhile, so that no more than a few of them are ever started; when it ends, its place is
// free again.
func TestCommand_CannotBeKilled(t *testing.T) {
	const timeout = 20 * time.Millisecond
	command, wake := NewCommand("head -c 64 /dev/zero", nil, timeout), make(chan struct{})
	command.run = func(*exec.Cmd) error { <-wake; return nil } // no test can make such a sleep without root
	returned := make(chan error, atOnceMax)
	for range atOnceMax {
		go func() { _, err := command.Sign([]byte("statement")); returned <- err }()
	}
	for range atOnceMax {
		select {
		case err := <-returned:
			if err == nil || !strings.Contains(err.Error(), "could not be killed") {
				t.Fatalf("%v", err)
			}
		case <-time.After(time.Minute):
			t.Fatal("the caller waits for the program")
		}
	}
	if _, err := command.Sign([]byte("statement")); err == nil || !strings.Contains(err.Error(), "4 of it still run") {
		t.Errorf("%v, expected that no further one is started", err)
	}
	close(wake)
	for range atOnceMax {
		command.free <- struct{}{} // a place becomes free, or the test does not end
	}
}
