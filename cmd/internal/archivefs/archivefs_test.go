package archivefs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/store"
	"github.com/farlog/farlog/pkg/store/storetest"
)

const url = "s3://bucket/desk7"

// fill makes a store with several sealed segments.
func fill(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "store")
	opened, err := store.Open(dir, store.Options{
		Create: true, SegmentBytes: store.SegmentBytesMin, IsSynchronous: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	ring := storetest.NewRing("desk7/orders", 1)
	ring.Append(80, 600)
	app, err := opened.OpenStream(ring.Source)
	if err != nil {
		t.Fatal(err)
	}
	for _, rec := range ring.Records {
		if _, _, err := app.Append(rec.Raw); err != nil {
			t.Fatal(err)
		}
	}
	if err := app.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// cable is one side of a connection that ends after so many reads.
type cable struct {
	io.ReadCloser
	io.WriteCloser
	reads atomic.Int64
	cutAt int64 // 0 = never
}

func (c *cable) Read(raw []byte) (int, error) {
	if c.reads.Add(1) == c.cutAt {
		return 0, errors.Join(io.EOF, c.Close())
	}
	return c.ReadCloser.Read(raw)
}

func (c *cable) Close() error { return errors.Join(c.ReadCloser.Close(), c.WriteCloser.Close()) }

// connected serves a directory and connects to it.
func connected(dir string, cutAt int64) (*FS, *cable, error) {
	from, answers := io.Pipe()
	questions, to := io.Pipe()
	go func() {
		_ = Serve(context.Background(), questions, answers,
			func(context.Context) (store.FS, string, error) { return store.OS, dir, nil })
	}()
	c := &cable{ReadCloser: from, WriteCloser: to, cutAt: cutAt}
	files, err := connect(url, c)
	return files, c, err
}

func verify(files *FS) (store.Report, error) {
	opened, err := store.Open(files.Dir(), store.Options{FS: files})
	if err != nil {
		return store.Report{}, err
	}
	return opened.Verify(context.Background(), store.VerifyOptions{})
}

// TestFS_IsTheStore: what is read through it is what lies there.
func TestFS_IsTheStore(t *testing.T) {
	dir := fill(t)
	here, err := store.Open(dir, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	want, err := here.Verify(t.Context(), store.VerifyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	files, c, err := connected(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	got, err := verify(files)
	if err != nil || !got.OK() || got.Streams[0].Records != want.Streams[0].Records ||
		got.Streams[0].Segments != want.Streams[0].Segments {
		t.Errorf("through it: %+v, %v; there: %+v", got, err, want)
	}
	t.Logf("%d reads of answers", c.reads.Load())
	if _, err := files.OpenFile(files.Dir()+"/none", os.O_RDONLY, 0); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v, expected that there is no such file", err)
	}
	for what, err := range map[string]error{
		"mkdir": files.Mkdir("x", 0o750), "rename": files.Rename("x", "y"), "remove": files.Remove("x"),
		"sync": files.SyncDir("x"),
	} {
		if !errors.Is(err, os.ErrPermission) {
			t.Errorf("%s: error %v, expected that it can only be read", what, err)
		}
	}
	if _, err := files.OpenFile(files.Dir()+"/x", os.O_CREATE|os.O_RDWR, 0o640); !errors.Is(err, os.ErrPermission) {
		t.Errorf("create: error %v, expected that it can only be read", err)
	}
}

// TestFS_EndOfTheServerIsNoEndOfTheStream: the connection is cut at each answer in turn. Nothing is taken for missing
// or for the end.
func TestFS_EndOfTheServerIsNoEndOfTheStream(t *testing.T) {
	dir := fill(t)
	files, whole, err := connected(dir, 0)
	if err == nil {
		_, err = verify(files)
	}
	if err != nil {
		t.Fatal(err)
	}
	calls := whole.reads.Load() - 1 // the last one waits
	for cutAt := int64(1); cutAt <= calls; cutAt += 1 + calls/60 {
		files, _, err := connected(dir, cutAt)
		if err == nil {
			_, err = verify(files)
		}
		if err == nil || !strings.Contains(err.Error(), "farlog-archive ended") {
			t.Errorf("cut at answer %d of %d: error %v, expected that farlog-archive ended", cutAt, calls, err)
		}
	}
}

// TestFS_WhatCannotBeOpenedIsNamed: the text of the server comes through.
func TestFS_WhatCannotBeOpenedIsNamed(t *testing.T) {
	for text, failure := range map[string]error{
		"no such bucket":                   errors.New("no such bucket"),
		"read credentials: file does not ": fmt.Errorf("read credentials: %w", fs.ErrNotExist),
	} {
		from, answers := io.Pipe()
		questions, to := io.Pipe()
		go func() {
			_ = Serve(context.Background(), questions, answers,
				func(context.Context) (store.FS, string, error) { return nil, "", failure })
		}()
		_, err := connect(url, &cable{ReadCloser: from, WriteCloser: to})
		if err == nil || !strings.Contains(err.Error(), url+": "+text) {
			t.Errorf("error %v, expected %q", err, text)
		}
	}
}

// TestServe_EndsWithTheOtherSide: also while the first answer is under way, as when farlog is killed.
func TestServe_EndsWithTheOtherSide(t *testing.T) {
	from, answers := io.Pipe()
	questions, to := io.Pipe()
	isOpening, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- Serve(t.Context(), questions, answers, func(ctx context.Context) (store.FS, string, error) {
			close(isOpening)
			<-ctx.Done() // a storage that does not answer
			return nil, "", ctx.Err()
		})
	}()
	other := &cable{ReadCloser: from, WriteCloser: to}
	go func() { _, _ = connect(url, other) }()
	<-isOpening
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("it still waits for the storage")
	}
}

// TestFile_ReadsMoreThanOneCallGives in one read, as pkg/store reads an index.
func TestFile_ReadsMoreThanOneCallGives(t *testing.T) {
	dir := t.TempDir()
	want := make([]byte, 2*readMax+12345)
	for i := range want {
		want[i] = byte(i >> 8)
	}
	if err := os.WriteFile(filepath.Join(dir, "large"), want, 0o600); err != nil {
		t.Fatal(err)
	}
	files, _, err := connected(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	opened, err := files.OpenFile(files.Dir()+"/large", os.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(want))
	if n, err := opened.ReadAt(got, 0); err != nil || n != len(want) || !bytes.Equal(got, want) {
		t.Errorf("read %d of %d bytes, %v", n, len(want), err)
	}
	if n, err := opened.ReadAt(got, 1); err != io.EOF || n != len(want)-1 || !bytes.Equal(got[:n], want[1:]) {
		t.Errorf("read %d bytes up to the end, %v, expected %d and the end", n, err, len(want)-1)
	}
}
