package export

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/farlog/farlog/pkg/store"
)

// Progress is how far an export or a verification is.
type Progress struct {
	Step        string
	Done, Total int64 // bytes
}

const copyChunk = 4 << 20

// copyEvidence makes an excerpt of streams of a store in a directory.
func copyEvidence(ctx context.Context, source *store.Store, streams []string, window store.Window, dir string,
	look func(Progress),
) error {
	var files []store.ExcerptFile
	for _, name := range source.IdentityFiles() {
		files = append(files, store.ExcerptFile{Name: name})
	}
	total := int64(0)
	for _, stream := range streams {
		one, err := source.Excerpt(stream, window)
		if err != nil {
			return fmt.Errorf("stream %s: %w", stream, err)
		}
		for _, file := range one {
			total += file.Size
		}
		files = append(files, one...)
	}
	done := int64(0)
	for _, file := range files {
		err := copyFile(ctx, source, file, filepath.Join(dir, filepath.FromSlash(file.Name)), func(n int64) {
			done += n
			look(Progress{"copy the evidence", done, max(done, total)})
		})
		if errors.Is(err, fs.ErrNotExist) && file.Name == store.PublicKeyFile {
			continue // it was taken elsewhere: store.json has it too
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// copyFile copies a file of a store. One that ends early is an error.
func copyFile(ctx context.Context, source *store.Store, file store.ExcerptFile, name string, count func(int64)) error {
	from, err := source.OpenFile(file.Name)
	if err != nil {
		return err
	}
	defer from.Close()
	size := file.Size
	if size == 0 {
		if size, err = from.Size(); err != nil {
			return fmt.Errorf("read %s: %w", file.Name, err)
		}
	}
	return write(name, func(to io.Writer) error {
		if _, err := to.Write(file.Head); err != nil {
			return err
		}
		chunk := make([]byte, min(copyChunk, max(size, 1)))
		for off := int64(len(file.Head)); off < size; {
			if err := ctx.Err(); err != nil {
				return err
			}
			n, err := from.ReadAt(chunk[:min(int64(len(chunk)), size-off)], off)
			if n == 0 {
				return fmt.Errorf("read %s at offset %d of %d: %w", file.Name, off, size, errors.Join(err,
					io.ErrUnexpectedEOF))
			}
			if _, err := to.Write(chunk[:n]); err != nil {
				return err
			}
			off += int64(n)
			count(int64(n))
		}
		return nil
	})
}

// write makes a file that outlives a power cut, with the directories that it lies in.
func write(name string, content func(io.Writer) error) (err error) {
	if err := os.MkdirAll(filepath.Dir(name), 0o750); err != nil {
		return err
	}
	//lint:ignore G302 whoever may read the store may read the bundle
	file, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := content(file); err != nil {
		return err
	}
	return file.Sync()
}

// verifyEvidence checks an excerpt by the rules of the store, and by keys where there are any.
func verifyEvidence(ctx context.Context, evidence *store.Store, keys []ed25519.PublicKey, look func(Progress)) (
	store.Report, error,
) {
	return evidence.Verify(ctx, store.VerifyOptions{
		IsExcerpt: true, PublicKeys: keys,
		Progress: func(p store.VerifyProgress) { look(Progress{"verify the evidence", p.Bytes, p.Bytes}) },
	})
}

func failuresOf(verified store.Report) (failures []string) {
	if verified.KeyFailure != "" {
		failures = append(failures, verified.KeyFailure)
	}
	for _, s := range verified.Streams {
		if s.Failure != nil {
			failures = append(failures, fmt.Sprintf("stream %s: %s", s.Stream, s.Failure))
		}
	}
	return failures
}
