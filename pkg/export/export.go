package export

import (
	"context"
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/farlog/farlog/pkg/query"
	"github.com/farlog/farlog/pkg/store"
)

// Options of an export.
type Options struct {
	Request   Request
	Mapping   *Mapping // nil: no report
	Constants map[string]string
	MadeBy    string
	Why       string
	Program   string
	Source    string             // of the store, as it was given
	Key       ed25519.PrivateKey // nil: the bundle is not signed
	Progress  func(Progress)     // may be nil
}

// Export makes a bundle in a directory, which must not be there. It is made beside it, under a name that begins with a
// dot, and renamed when it is whole and durable; a killed export leaves that. Errors: ErrInvalid, fs.ErrExist,
// *query.NoStreamError, store.ErrCorrupt, or of the file system.
func Export(ctx context.Context, source *store.Store, dir string, options Options) (b Bundle, err error) {
	if options.Progress == nil {
		options.Progress = func(Progress) {}
	}
	request, err := options.check(dir)
	if err != nil {
		return b, err
	}
	streams, err := query.Streams(source, options.Request.Streams)
	if err != nil {
		return b, err
	}
	parent := filepath.Dir(dir)
	tmp, err := os.MkdirTemp(parent, "."+filepath.Base(dir)+".partial-")
	if err != nil {
		return b, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(tmp))
		}
	}()
	evidence := filepath.Join(tmp, EvidenceDir)
	if err := copyEvidence(ctx, source, streams, request.Window, evidence, options.Progress); err != nil {
		return b, err
	}
	if b, err = options.make(ctx, tmp, request); err != nil {
		return b, err
	}
	//lint:ignore G302 whoever may read the store may read the bundle
	if err := errors.Join(os.Chmod(tmp, 0o750), syncDirs(tmp)); err != nil {
		return b, err
	}
	if err := os.Rename(tmp, dir); err != nil { // it replaces an empty directory at most
		return b, err
	}
	return b, syncDir(parent)
}

// check looks for what can be found wrong before anything is read.
func (o *Options) check(dir string) (request query.Request, err error) {
	if o.MadeBy == "" || o.Why == "" {
		return request, fmt.Errorf("%w: expected who asks for the records, and why", ErrInvalid)
	}
	if request, err = o.Request.query(); err != nil {
		return request, err
	}
	if o.Mapping != nil {
		if err := o.Mapping.CheckConstants(o.Constants); err != nil {
			return request, err
		}
	}
	if _, err := os.Lstat(dir); err == nil {
		return request, fmt.Errorf("%s: %w: expected the name of a directory that is not there yet", dir, fs.ErrExist)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return request, err
	}
	return request, nil
}

// make makes all files of a bundle but the evidence, the last ones bundle.json and seal.json.
func (o *Options) make(ctx context.Context, dir string, request query.Request) (b Bundle, err error) {
	evidence, err := store.Open(filepath.Join(dir, EvidenceDir), store.Options{})
	if err != nil {
		return b, err
	}
	verified, err := verifyEvidence(ctx, evidence, nil, o.Progress)
	if err != nil {
		return b, err
	}
	if failures := failuresOf(verified); len(failures) > 0 {
		return b, fmt.Errorf("%w: %s", store.ErrCorrupt, failures[0])
	}
	made, err := derive(ctx, evidence, verified, request, o.Mapping, o.Constants, fileOutputs{dir}, o.Progress)
	if err != nil {
		return b, err
	}
	b = Bundle{
		Format: bundleFormat, Version: bundleVersion, Program: o.Program,
		MadeAt: time.Now().UTC().Format(time.RFC3339), MadeBy: o.MadeBy, Why: o.Why,
		Source: sourceOf(evidence, o.Source), Request: o.Request.normal(),
		Rows: made.rows, Report: made.report, Streams: made.streams, Missing: missing(made.streams),
	}
	if o.Mapping != nil {
		b.Profile = &Applied{Name: o.Mapping.Name, Version: o.Mapping.Version, Constants: o.Constants}
		if o.Constants == nil {
			b.Profile.Constants = map[string]string{}
		}
		if err := writeBytes(filepath.Join(dir, profileFile), o.Mapping.raw); err != nil {
			return b, err
		}
	}
	if err := b.normalize(); err != nil { // what the cover says is what bundle.json can say
		return b, err
	}
	if err := write(filepath.Join(dir, CoverFile), func(to io.Writer) error { return writeCover(to, b) }); err != nil {
		return b, err
	}
	if b.Files, err = o.hash(ctx, dir); err != nil {
		return b, err
	}
	raw, err := encode(b)
	if err != nil {
		return b, err
	}
	sealed, err := encode(newSeal(raw, o.Key))
	if err != nil {
		return b, err
	}
	return b, errors.Join(writeBytes(filepath.Join(dir, BundleFile), raw),
		writeBytes(filepath.Join(dir, SealFile), sealed))
}

func (o *Options) hash(ctx context.Context, dir string) (files []File, err error) {
	names, err := listFiles(dir)
	if err != nil {
		return nil, err
	}
	done := int64(0)
	for _, name := range names {
		file, err := hashFile(ctx, dir, name, func(n int64) {
			done += n
			o.Progress(Progress{"hash the files", done, done})
		})
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return files, nil
}

func sourceOf(evidence *store.Store, path string) Source {
	s := Source{Path: path, StoreUUID: evidence.UUID().String()}
	for _, key := range evidence.Keys() {
		s.PublicKeys = append(s.PublicKeys, hex.EncodeToString(key))
	}
	return s
}

// normal has empty lists where there are none, as what is decoded has.
func (r Request) normal() Request {
	if r.Streams == nil {
		r.Streams = []string{}
	}
	if r.Classes == nil {
		r.Classes = []uint16{}
	}
	if r.Keys == nil {
		r.Keys = []string{}
	}
	return r
}

func writeBytes(name string, raw []byte) error {
	return write(name, func(to io.Writer) error {
		_, err := to.Write(raw)
		return err
	})
}

// missing says what was asked for, or may have been, and is not in the bundle.
func missing(streams []Stream) []string {
	list := []string{}
	for _, s := range streams {
		if s.Removed != "" {
			list = append(list, s.Removed)
		}
		if s.Gaps > 0 {
			list = append(list, fmt.Sprintf("stream %s: %d GAP records stand for records that are missing near the "+
				"time asked for (%s)", s.Stream, s.Gaps, gapsFile))
		}
		list = append(list, s.unsigned()...)
		end := "the store had no record of it"
		if n := len(s.Generations); n > 0 {
			end = fmt.Sprintf("the store had it up to lsn %d when the bundle was made", s.Generations[n-1].NextLSN)
		}
		list = append(list, fmt.Sprintf("stream %s: %s; that there is no later record is not proved", s.Stream, end))
	}
	return list
}

// unsigned says what of a stream the store has not signed.
func (s *Stream) unsigned() (list []string) {
	u := s.Unsealed
	if u == nil {
		return nil
	}
	say := func(format string, args ...any) {
		list = append(list, fmt.Sprintf("stream %s: ", s.Stream)+fmt.Sprintf(format, args...))
	}
	if u.Epoch != 0 {
		say("epoch %d is in a segment that has no manifest, and goes back to lsn %d: sealed records from there up to "+
			"lsn %d are superseded, and left out; the store has not signed that", u.Epoch, u.BackTo, u.SealedTo)
	}
	if s.Unsigned > 0 {
		say("%d records from lsn %d on are in a segment that has no manifest: the store has not signed them",
			s.Unsigned, s.UnsignedFrom)
		return list
	}
	say("a segment that begins at %s has no manifest, and no record of the time asked for: the store has not signed "+
		"its records", timeText(time.Unix(0, int64(u.FirstTS))))
	return list
}

// isSigned reports whether the store has signed all that it says of a window.
func (s *Stream) isSigned(window store.Window) bool {
	u := s.Unsealed
	return u == nil || s.Unsigned == 0 && u.Epoch == 0 && !window.Meets(u.FirstTS, math.MaxUint64)
}
