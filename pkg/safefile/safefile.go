// Package safefile reads files that decide who may do what: settings, rules, certificates. One that every user of the
// host may change is refused.
package safefile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Read gives the content of a file, and what the file was like then. Its errors are of type *fs.PathError.
func Read(path string) ([]byte, fs.FileInfo, error) {
	if err := checkDir(path); err != nil {
		return nil, nil, err
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, nil, err
	}
	if info.Mode().Perm()&0o002 != 0 {
		return nil, nil, refuse(path, "every user of this host can change it (mode %04o): chmod o-w %s",
			info.Mode().Perm(), path)
	}
	raw, err := io.ReadAll(file)
	return raw, info, err
}

// checkDir refuses a directory in which every user can put another file in the place of this one.
func checkDir(path string) error {
	dir := filepath.Dir(path)
	info, err := os.Stat(dir)
	if err != nil {
		return &fs.PathError{Op: "open", Path: path, Err: errors.Unwrap(err)}
	}
	if info.Mode().Perm()&0o002 != 0 && info.Mode()&fs.ModeSticky == 0 {
		return refuse(path, "every user of this host can replace it: chmod o-w %s", dir)
	}
	return nil
}

func refuse(path, format string, values ...any) error {
	return &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf(format, values...)}
}
