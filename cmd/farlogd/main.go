// Command farlogd is farlog's daemon. Its sub-commands are roles: control, target, drain, and dev, which is all of
// them in one process on files.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/farlog/farlog/cmd/internal/output"
	"github.com/farlog/farlog/pkg/config"
)

const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

// usageError is a mistake in the command line: exit code 2.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func main() {
	hideMemory()
	// libinfinipath, which libfabric loads, would take SIGTERM meanwhile, and end the process with 1 and no word
	_ = os.Setenv("IPATH_NO_BACKTRACE", "1")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal asks for a clean stop; after it the default is back, and a second one ends the process.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// hideMemory keeps other programs of the same user, such as an archive of the drain's store, from the memory of this
// one, and from what it sees of the file system (/proc/PID/root). Core dumps, which would hold keys, it has none.
func hideMemory() {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		fmt.Fprintf(os.Stderr, "farlogd: prctl(PR_SET_DUMPABLE): %s: programs of its user may read its memory\n", err)
	}
}

// run executes one command line and returns the exit code. It is main without the process, for tests.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	out := output.New(stdout)
	root := newRootCommand(out, stderr)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		err = out.Err()
	}
	if err == nil {
		return exitOK
	}
	var setting *config.Error
	if errors.As(err, &setting) {
		for _, line := range setting.Lines {
			fmt.Fprintf(stderr, "farlogd: %s\n", strings.Join(strings.Fields(line), " "))
		}
		return exitUsage
	}
	fmt.Fprintf(stderr, "farlogd: %s\n", oneLine(err))
	var usage *usageError
	if errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailure
}

// oneLine folds an error into one line, whatever a library wrote.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
