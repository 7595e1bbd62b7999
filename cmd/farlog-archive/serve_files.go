package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/farlog/farlog/cmd/internal/archivefs"
	"github.com/farlog/farlog/pkg/archive"
	"github.com/farlog/farlog/pkg/store"
)

const serveFilesText = `For other programs: farlog dump, order, replay and verify read an archive through it. It answers
calls (Go's net/rpc) on standard input and output until the input ends.`

func newServeFilesCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use: archivefs.Command, Short: "Serve the files of an archive to farlog", Long: serveFilesText,
		Args: exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			open := func(ctx context.Context) (store.FS, string, error) {
				location, err := env.location()
				if err != nil {
					return nil, "", err
				}
				view, err := env.view(ctx, location)
				if err != nil {
					return nil, "", err
				}
				return view, view.Dir(), nil
			}
			return archivefs.Serve(cmd.Context(), os.Stdin, os.Stdout, open)
		},
	}
}

// view is an archive as a file system, for readers.
func (e *environment) view(ctx context.Context, location archive.Location) (*archive.View, error) {
	bucket, err := archive.Open(archive.Options{Location: location, CallTimeout: e.callTimeout})
	if err != nil {
		return nil, err
	}
	view, err := archive.NewView(ctx, bucket)
	if err != nil {
		return nil, err
	}
	if err := view.Unread(); err != nil {
		fmt.Fprintf(e.stderr, "farlog-archive: %s\n", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	view.ListMissing()
	return view, nil
}
