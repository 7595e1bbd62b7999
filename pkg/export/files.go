package export

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/farlog/farlog/pkg/query"
)

var errNoFile = errors.New("it is no file")

// listFiles gives all files below a directory by name, slash-separated, but for bundle.json and seal.json. An error
// where there is something else than files and directories: Verify follows no link.
func listFiles(dir string) (names []string, err error) {
	err = filepath.WalkDir(dir, func(full string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, full)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if !entry.Type().IsRegular() {
			return fmt.Errorf("%s: %w (%s): expected files and directories", name, errNoFile, entry.Type())
		}
		if name != BundleFile && name != SealFile {
			names = append(names, name)
		}
		return nil
	})
	slices.Sort(names)
	return names, err
}

// hashFile reads a file to its end.
func hashFile(ctx context.Context, dir, name string, count func(int64)) (File, error) {
	file, err := os.Open(filepath.Join(dir, filepath.FromSlash(name)))
	if err != nil {
		return File{}, err
	}
	defer file.Close()
	sum := sha256.New()
	size, err := io.Copy(sum, &countingReader{ctx, file, count})
	return File{Name: name, Size: size, SHA256: hex.EncodeToString(sum.Sum(nil))}, err
}

type countingReader struct {
	ctx   context.Context
	from  io.Reader
	count func(int64)
}

func (r *countingReader) Read(raw []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := r.from.Read(raw)
	r.count(int64(n))
	return n, err
}

// syncDirs makes the entries of all directories below one durable, and of itself.
func syncDirs(dir string) error {
	return filepath.WalkDir(dir, func(full string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		return syncDir(full)
	})
}

func syncDir(name string) error {
	dir, err := os.Open(name)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// fileOutputs write the files of a bundle that is being made.
type fileOutputs struct{ dir string }

func (f fileOutputs) create(name string) (output, error) {
	//lint:ignore G302 whoever may read the store may read the bundle
	file, err := os.OpenFile(filepath.Join(f.dir, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o640)
	return syncedFile{file}, err
}

// syncedFile is durable when it is closed.
type syncedFile struct{ *os.File }

func (s syncedFile) close(bool) error {
	err := s.Sync()
	return errors.Join(err, s.Close())
}

func isEvidence(name string) bool { return strings.HasPrefix(name, EvidenceDir+"/") }

func (f fileOutputs) parquet(name string) (query.Encoder, output, error) {
	file, err := f.create(name)
	if err != nil {
		return nil, nil, err
	}
	encoder, err := query.NewEncoder(query.FormatParquet, file, fields())
	return encoder, file, err
}
