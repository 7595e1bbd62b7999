// Command farlog-archive keeps the sealed segments of a store in S3-compatible storage under Object Lock, proves that
// they are there, and makes a store of them again. It is a program of its own so that its libraries stay out of the
// daemons; farlog archive runs it.
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

	"github.com/farlog/farlog/cmd/internal/output"
	"github.com/farlog/farlog/pkg/archive"
	"github.com/farlog/farlog/pkg/config"
	"github.com/farlog/farlog/pkg/export"
)

const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
	// exitNotProved: a probe destroyed nothing, and its credentials prove nothing.
	exitNotProved = 3
)

// usageError is a mistake in the command line: exit code 2.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

// errReported ends the program with 1 and no message: what is wrong was printed on stdout.
var errReported = errors.New("reported")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
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
	var usage *usageError
	var setting *config.Error
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errReported):
		return exitFailure
	case errors.As(err, &setting):
		for _, line := range setting.Lines {
			fmt.Fprintf(stderr, "farlog-archive: %s\n", line)
		}
		return exitUsage
	}
	fmt.Fprintf(stderr, "farlog-archive: %s\n", strings.Join(strings.Fields(err.Error()), " "))
	if errors.As(err, &usage) || errors.Is(err, archive.ErrInvalid) || errors.Is(err, export.ErrInvalid) {
		return exitUsage
	}
	if errors.Is(err, archive.ErrNotProved) && !errors.Is(err, archive.ErrRefused) {
		return exitNotProved
	}
	return exitFailure
}
