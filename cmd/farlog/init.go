package main

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

//go:embed init/*.yaml
var exampleFiles embed.FS

// exampleNames are the files that farlog init writes, without .yaml: those of the roles, archive and fabric.
var exampleNames = []string{"control", "target", "drain", "host", "replica", "archive", "fabric"}

func newInitCommand(env *environment) *cobra.Command {
	dir := ""
	cmd := &cobra.Command{
		Use:   "init NAME...",
		Short: "Write example configurations to edit: of roles, an archive and a fabric",
		Long: `Writes NAME.yaml for each NAME: ` + strings.Join(exampleNames, ", ") + `. Each is valid as it
is, and its comments say what may be changed. Those of roles are for farlogd NAME --config NAME.yaml, archive.yaml is
for farlog archive run --config archive.yaml, fabric.yaml for farlog apply. A file that is there is left as it is; then
nothing is written.`,
		RunE: func(_ *cobra.Command, args []string) error { return writeExamples(env, dir, args) },
	}
	cmd.Flags().StringVar(&dir, "dir", ".", "`directory` to write to; it is made if it is not there")
	return cmd
}

func writeExamples(env *environment, dir string, names []string) error {
	if len(names) == 0 {
		return usageErrorf("init: expected one or more of %s", strings.Join(exampleNames, ", "))
	}
	for _, name := range names {
		if !slices.Contains(exampleNames, name) {
			return usageErrorf("init %q: expected one or more of %s", name, strings.Join(exampleNames, ", "))
		}
		_, err := os.Lstat(examplePath(dir, name))
		if err == nil {
			err = fs.ErrExist
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return exampleError(examplePath(dir, name), err)
		}
	}
	//lint:ignore G301 of files without secrets, which programs of other users read
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("--dir %q: cannot be made: %w", dir, errors.Unwrap(err))
	}
	for _, name := range names {
		if err := writeExample(dir, name); err != nil {
			return err
		}
		fmt.Fprintln(env.stdout, examplePath(dir, name))
	}
	return nil
}

func examplePath(dir, name string) string { return filepath.Join(dir, name+".yaml") }

// writeExample writes a file that is not there, which all may read: it has no secret.
func writeExample(dir, name string) error {
	content, err := exampleFiles.ReadFile("init/" + name + ".yaml")
	if err != nil {
		return err
	}
	path := examplePath(dir, name)
	//lint:ignore G302 it has no secret, and programs of other users read it
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return exampleError(path, err)
	}
	_, err = file.Write(content)
	if err := errors.Join(err, file.Close()); err != nil {
		return exampleError(path, err)
	}
	return nil
}

func exampleError(path string, err error) error {
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("file %q: it is there already: expected none, nothing is overwritten; remove it, or give "+
			"another --dir", path)
	}
	return fmt.Errorf("file %q: cannot be written: %w", path, err)
}
