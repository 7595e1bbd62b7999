package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/farlog/farlog/cmd/internal/archivefs"
	"github.com/farlog/farlog/pkg/record"
	"github.com/farlog/farlog/pkg/store"
)

// The offline commands (verify, dump, replay) work on bytes alone, with every daemon down.

const archivePathText = `

A store may be an archive, s3://BUCKET/PREFIX, which farlog-archive reads for this command. FARLOG_ARCHIVE_ENDPOINT,
FARLOG_ARCHIVE_REGION and the credentials are those of farlog archive.`

type pathKind string

const (
	kindStore   pathKind = "store"
	kindSegment pathKind = "segment"
	kindRing    pathKind = "ring"
	kindMembers pathKind = "members"
)

// detectKind looks at what a path holds, by its first bytes and not by its name.
func detectKind(path string) (pathKind, error) {
	if strings.HasPrefix(path, "members:") {
		return kindMembers, nil
	}
	if archivefs.IsURL(path) {
		return kindStore, nil
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) && (strings.HasPrefix(path, "mem:") || strings.HasPrefix(path, "nvme:")) {
		scheme, _, _ := strings.Cut(path, ":")
		return "", usageErrorf("%s: expected the path of a store, a segment file or a ring image, not a URI: leave "+
			"out %s:", path, scheme)
	}
	if err != nil {
		return "", fmt.Errorf("%w: expected a store, a segment file or a ring image", pathError(path, err))
	}
	if info.IsDir() {
		if _, err := os.Stat(filepath.Join(path, "store.json")); err != nil {
			return "",
				fmt.Errorf("%s: a directory without store.json: expected a store, a segment file or a ring image", path)
		}
		return kindStore, nil
	}
	file, err := openFresh(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	for _, place := range []struct {
		offset int64
		magic  string
		kind   pathKind
	}{
		{0, "FARLOGSG", kindSegment},
		{record.SuperblockAOffset, record.SuperblockMagic, kindRing},
		{record.SuperblockBOffset, record.SuperblockMagic, kindRing},
	} {
		found := make([]byte, len(place.magic))
		if _, err := file.ReadAt(found, place.offset); err == nil && string(found) == place.magic {
			return place.kind, nil
		}
	}
	return "", fmt.Errorf("%s: neither segment nor ring by its first bytes: expected a store, a segment file or a "+
		"ring image", path)
}

// pathError is the error of a path in the form of all others: the path, what is wrong, nothing of the system call.
func pathError(path string, err error) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		err = pathErr.Err
	}
	return fmt.Errorf("%s: %w", path, err)
}

// openFresh opens what others may have written past the page cache, as a writer on blocks does, or another host: what
// is kept there of before is dropped.
func openFresh(path string) (*os.File, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, pathError(path, err)
	}
	if info, err := file.Stat(); err == nil && info.Mode().Type() == fs.ModeDevice {
		if err := unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: drop what the page cache has of it: %w", path, err), file.Close())
		}
	}
	return file, nil
}

// openImage opens a ring image: a copy of a region, or the region's own file or device. The caller closes the file.
func openImage(path string) (*record.Image, *os.File, error) {
	file, err := openFresh(path)
	if err != nil {
		return nil, nil, err
	}
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		_ = file.Close()
		return nil, nil, pathError(path, err)
	}
	image, err := record.OpenImage(file, size)
	if err != nil {
		_ = file.Close()
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	return image, file, nil
}

// openStore opens a store for reading.
func openStore(path string) (*store.Store, error) { return openStoreWith(path, store.Options{}) }

func openStoreWith(path string, options store.Options) (*store.Store, error) {
	kind, err := detectKind(path)
	if err != nil {
		return nil, err
	}
	if kind != kindStore {
		return nil, fmt.Errorf("%s: a %s: expected a store", path, kind)
	}
	if archivefs.IsURL(path) {
		return nil, usageErrorf("%s: an archive: expected the directory of a store", path)
	}
	return store.Open(path, options)
}

// openToRead opens a store, or an archive as one, to read it.
func openToRead(path string) (*store.Store, error) {
	if !archivefs.IsURL(path) {
		return openStore(path)
	}
	program, err := findProgram(archiveProgram)
	if err != nil {
		return nil, err
	}
	files, err := archivefs.Open(program, path, os.Stderr)
	if err != nil {
		return nil, err
	}
	return store.Open(files.Dir(), store.Options{FS: files})
}

// noteRemoved says that a stream begins behind what was asked for, as retention has removed it.
func (e *environment) noteRemoved(base *store.Base) {
	fmt.Fprintf(e.stderr, "farlog: %s\n", plain(base.Statement()))
}

func writeJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

// appendText shows bytes on one line: the FIX separator as |, what is printable as it is, the rest escaped.
func appendText(dst, raw []byte) []byte {
	for len(raw) > 0 {
		char, length := utf8.DecodeRune(raw)
		switch {
		case raw[0] == 1:
			dst = append(dst, '|')
		case char == utf8.RuneError && length == 1:
			dst = fmt.Appendf(dst, `\x%02x`, raw[0])
		case strconv.IsPrint(char):
			dst = append(dst, raw[:length]...)
		default:
			quoted := strconv.QuoteRuneToASCII(char)
			dst = append(dst, quoted[1:len(quoted)-1]...)
		}
		raw = raw[length:]
	}
	return dst
}
