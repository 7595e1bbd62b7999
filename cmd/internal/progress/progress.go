// Package progress shows on a terminal how far a program is.
package progress

import (
	"fmt"
	"io"
	"time"

	"golang.org/x/sys/unix"

	"github.com/farlog/farlog/cmd/internal/output"
)

const interval = 200 * time.Millisecond

// Line writes one line over itself when somebody looks: what is done, and how many of how many bytes. clear takes it
// away.
func Line(to io.Writer) (look func(step string, done, total int64), clear func()) {
	file, isFile := output.File(to)
	if !isFile {
		return func(string, int64, int64) {}, func() {}
	}
	if _, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS); err != nil {
		return func(string, int64, int64) {}, func() {}
	}
	last := time.Now()
	look = func(step string, done, total int64) {
		if time.Since(last) < interval {
			return
		}
		last = time.Now()
		fmt.Fprintf(to, "\r%s: %d of %d MiB (%d %%)\x1b[K", step, done>>20, total>>20, 100*done/max(total, 1))
	}
	return look, func() { fmt.Fprint(to, "\r\x1b[K") }
}
