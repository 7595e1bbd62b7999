// Command farlog-verify checks a bundle that farlog archive export has made, with nothing but the bundle: it needs no
// store, no daemon and no library beside it. An auditor runs it.
package main

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/farlog/farlog/cmd/internal/output"
	"github.com/farlog/farlog/cmd/internal/progress"
	"github.com/farlog/farlog/cmd/internal/reference"
	"github.com/farlog/farlog/cmd/internal/version"
	"github.com/farlog/farlog/pkg/export"
	"github.com/farlog/farlog/pkg/query"
	"github.com/farlog/farlog/pkg/store"
)

const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
	// exitNotChecked: nothing is wrong, and not all could be checked: whose the signatures are, or records that are
	// not signed.
	exitNotChecked = 3
)

const longText = `Checks the bundle in the directory BUNDLE, which farlog archive export has made: that all its files
are there, unaltered, and no others; who has signed it; that the segments of its evidence are whole, in order and
unaltered, by the headers and manifests that the store has signed; that the records as CSV, JSON Lines and Parquet are
all those of the evidence that were asked for, and no others, value by value; that gaps, clock evidence, the report of
the profile and what the bundle says of itself follow from the evidence.

It prints what is proved, what is not, and what is wrong. It writes nothing. A bundle without a signature proves nothing
of who has made it, and evidence alone nothing of whose it is: give the public keys that you have from elsewhere.`

// usageError is a mistake in the command line: exit code 2.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

// Results that were printed.
var (
	errFailed     = errors.New("the bundle is not what it should be")
	errNotChecked = errors.New("not all was checked")
)

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
	if failure := out.Err(); failure != nil {
		err = failure // whatever the result is, nobody has read it
	}
	var usage *usageError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errFailed):
		return exitFailure
	case errors.Is(err, errNotChecked):
		return exitNotChecked
	}
	fmt.Fprintf(stderr, "farlog-verify: %s\n", strings.Join(strings.Fields(err.Error()), " "))
	if errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailure
}

func newRootCommand(stdout, stderr io.Writer) *cobra.Command {
	var output string
	var storeKeys, exporterKeys []string
	root := &cobra.Command{
		Use: "farlog-verify BUNDLE [flags]", Short: "Check a bundle of farlog archive export", Long: longText,
		Version: version.Of(),
		Annotations: map[string]string{
			reference.ExitCodes: ",\n3 nothing is wrong, and not all was checked: a signature was compared with no " +
				"key, or records are not signed",
		},
		SilenceUsage: true, SilenceErrors: true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return nil
			}
			return &usageError{fmt.Sprintf("got %d arguments, expected: %s", len(args), cmd.UseLine())}
		},
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if output != "" && output != "json" {
				return &usageError{fmt.Sprintf("--output %q: expected json", output)}
			}
			var options export.VerifyOptions
			if options.StoreKeys, err = readKeys("--public-key", storeKeys); err != nil {
				return err
			}
			if options.ExporterKeys, err = readKeys("--exporter-key", exporterKeys); err != nil {
				return err
			}
			return verify(cmd.Context(), args[0], options, output == "json", stdout, stderr)
		},
	}
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &usageError{fmt.Sprintf("%s (%s --help lists the flags)", err, cmd.CommandPath())}
	})
	flags := root.Flags()
	flags.StringArrayVar(
		&storeKeys,
		"public-key",
		nil,
		"`file` with a public key of the store, PEM, that you have from "+
			"elsewhere (repeatable)",
	)
	flags.StringArrayVar(&exporterKeys, "exporter-key", nil, "`file` with a public key of who signs bundles, PEM "+
		"(repeatable)")
	flags.StringVarP(&output, "output", "o", "", "output `format`: json (default: text)")
	root.AddCommand(reference.NewCommand(stdout))
	return root
}

func readKeys(flag string, names []string) (keys []ed25519.PublicKey, err error) {
	for _, name := range names {
		raw, err := os.ReadFile(name)
		if err != nil {
			return nil, &usageError{fmt.Sprintf("%s: %s", flag, err)}
		}
		key, err := store.ParsePublicKey(raw)
		if err != nil {
			return nil, &usageError{fmt.Sprintf("%s %s: %s", flag, name, err)}
		}
		keys = append(keys, key)
	}
	return keys, nil
}

func verify(
	ctx context.Context,
	dir string,
	options export.VerifyOptions,
	isJSON bool,
	stdout, stderr io.Writer,
) error {
	look, clear := progress.Line(stderr)
	options.Progress = func(p export.Progress) { look(p.Step, p.Done, p.Total) }
	report, err := export.Verify(ctx, dir, options)
	clear()
	if err != nil {
		return err
	}
	if isJSON {
		encoder := json.NewEncoder(stdout)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(report)
	} else {
		err = printReport(stdout, &report)
	}
	switch {
	case err != nil:
		return err
	case !report.OK():
		return errFailed
	case !report.IsWhole():
		return errNotChecked
	}
	return nil
}

// printReport writes a line for each finding. No text of the bundle is a command to a terminal.
func printReport(to io.Writer, report *export.Report) error {
	var err error
	line := func(what, text string) {
		_, writeErr := fmt.Fprintf(to, "%s: %s\n", what, query.Escape([]byte(text)))
		err = errors.Join(err, writeErr)
	}
	if b := &report.Bundle; b.MadeBy != "" {
		line("says", fmt.Sprintf("%d records of store %s, made at %s by %q: %q", b.Rows, b.Source.StoreUUID, b.MadeAt,
			b.MadeBy, b.Why))
	}
	for _, part := range []struct {
		what string
		list []string
	}{
		{"proved", report.Proved},
		{"not proved", report.NotProved},
		{"not checked", report.NotChecked},
		{"FAILED", report.Failures},
	} {
		for _, text := range part.list {
			line(part.what, text)
		}
	}
	return err
}
