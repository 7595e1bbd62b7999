package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

const archiveProgram = "farlog-archive"

const archiveText = `Runs farlog-archive, the program that keeps a store in object storage, with the arguments that
follow. It is looked for beside this program, then in PATH. farlog archive --help is its help.`

// newArchiveCommand becomes farlog-archive, as git becomes its programs: the libraries of object storage stay out of
// this one.
func newArchiveCommand(*environment) *cobra.Command {
	return &cobra.Command{
		Use: "archive COMMAND ...", Short: "Keep a store in object storage, locked (farlog-archive)", Long: archiveText,
		DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			program, err := findProgram(archiveProgram)
			if err != nil {
				return err
			}
			err = unix.Exec(program, append([]string{archiveProgram}, args...), os.Environ())
			return fmt.Errorf("run %s: %w", program, err) // it returns only when it fails
		},
	}
}

func findProgram(name string) (string, error) {
	own, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find %s: %w", name, err)
	}
	beside := filepath.Join(filepath.Dir(own), name)
	if _, err := os.Stat(beside); err == nil {
		return beside, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("find %s: %w", name, err)
	}
	found, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("find %s: it is neither in %s nor in PATH: install it beside farlog", name,
			filepath.Dir(own))
	}
	return found, nil
}
