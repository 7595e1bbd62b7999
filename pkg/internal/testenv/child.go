package testenv

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
)

// ServeChild makes this process what serve is, for ever, when StartChild has started it with this variable. TestMain
// calls it first.
func ServeChild(variable string, serve func(value string) error) {
	value := os.Getenv(variable)
	if value == "" {
		return
	}
	fmt.Fprintln(os.Stderr, serve(value))
	os.Exit(1)
}

// StartChild starts the test's own program with a variable of its environment, and gives what it prints. kill ends it
// by SIGKILL, and may be called again; the end of the test does so too.
func StartChild(tb testing.TB, variable, value string) (output *bufio.Reader, kill func()) {
	tb.Helper()
	process := exec.Command(os.Args[0])
	process.Env = append(os.Environ(), variable+"="+value)
	process.Stderr = os.Stderr
	pipe, err := process.StdoutPipe()
	if err == nil {
		err = process.Start()
	}
	if err != nil {
		tb.Fatal(err)
	}
	kill = sync.OnceFunc(func() {
		_ = process.Process.Kill()
		_ = process.Wait()
	})
	tb.Cleanup(kill)
	return bufio.NewReader(pipe), kill
}
