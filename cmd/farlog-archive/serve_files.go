package main

import (
	"os"

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
			return archivefs.Serve(os.Stdin, os.Stdout, func() (store.FS, string, error) {
				bucket, err := env.open()
				if err != nil {
					return nil, "", err
				}
				view, err := archive.NewView(cmd.Context(), bucket)
				if err != nil {
					return nil, "", err
				}
				view.ListMissing()
				return view, view.Dir(), nil
			})
		},
	}
}
