package main

import (
	"io"
	"os"

	"github.com/farlog/farlog/cmd/internal/output"
)

// isTerminal reports whether a person is likely to look at what is written.
func isTerminal(w io.Writer) bool {
	file, ok := output.File(w)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && file.Name() != os.DevNull
}
