// Command farlog is the command line of farlog: streams, appends, status, and the tools that read rings and stores.
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
	"github.com/farlog/farlog/pkg/config"
)

// Exit codes of every command.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
	exitDrift   = 3 // of farlog apply --dry-run: what is declared is not so in the world
)

// usageError is a mistake in the command line itself: exit code 2 instead of 1.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

// usageErrorf makes a usageError. The text is one line: the thing, its value, and what was expected.
func usageErrorf(format string, args ...any) error {
	return &usageError{text: fmt.Sprintf(format, args...)}
}

// exitError ends the program with a code and no message, for results that were already printed on stdout.
type exitError struct{ code int }

func (e *exitError) Error() string { return fmt.Sprintf("exit code %d", e.code) }

func main() {
	// libinfinipath, which libfabric loads, would take SIGTERM meanwhile, and end the process with 1 and no word
	_ = os.Setenv("IPATH_NO_BACKTRACE", "1")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run executes one command line and returns the exit code. It is main without the process, for tests.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	out := output.New(stdout)
	root := newRootCommand(&environment{stdin: stdin, stdout: out, stderr: stderr})
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		err = out.Err()
	}
	return exitCode(err, stderr)
}

// exitCode prints err as one line, mistakes in settings as one each, and maps it to the exit code.
func exitCode(err error, stderr io.Writer) int {
	var usage *usageError
	var setting *config.Error
	var exit *exitError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &exit):
		return exit.code
	case errors.As(err, &setting):
		for _, line := range setting.Lines {
			fmt.Fprintf(stderr, "farlog: %s\n", plain(strings.Join(strings.Fields(line), " ")))
		}
		return exitUsage
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "farlog: %s\n", oneLine(err))
		return exitUsage
	default:
		fmt.Fprintf(stderr, "farlog: %s\n", oneLine(err))
		return exitFailure
	}
}
