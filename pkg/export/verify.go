package export

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/farlog/farlog/pkg/store"
)

// VerifyOptions choose whom to trust.
type VerifyOptions struct {
	StoreKeys    []ed25519.PublicKey // of the store, kept elsewhere; none: the evidence says its own
	ExporterKeys []ed25519.PublicKey // of who signs bundles
	Progress     func(Progress)      // may be nil
}

// Report is what Verify found.
type Report struct {
	Bundle     Bundle   `json:"bundle"`
	Proved     []string `json:"proved"`
	NotProved  []string `json:"not_proved"` // limits of what a bundle proves
	NotChecked []string `json:"not_checked"`
	Failures   []string `json:"failures"` // what is missing, altered, or more than there should be
}

// OK reports whether nothing is wrong with what was checked.
func (r *Report) OK() bool { return len(r.Failures) == 0 }

// IsWhole reports whether all was checked, too.
func (r *Report) IsWhole() bool { return r.OK() && len(r.NotChecked) == 0 }

// verification is a Verify under way.
type verification struct {
	ctx     context.Context
	dir     string
	options VerifyOptions
	report  Report
	isBad   map[string]bool // files that are not what bundle.json says
	missing map[string]bool // those of them that are not there
}

// Verify checks a bundle: that its files are there, and no others, as bundle.json says; who has signed it; that the
// evidence is what the store has signed; and that all that is derived from the evidence is what the evidence says. What
// is wrong is in the report; the error is for what could not be read.
func Verify(ctx context.Context, dir string, options VerifyOptions) (Report, error) {
	if options.Progress == nil {
		options.Progress = func(Progress) {}
	}
	v := &verification{ctx: ctx, dir: dir, options: options, isBad: map[string]bool{}, missing: map[string]bool{}}
	names, err := listFiles(v.dir) // before any of them is opened: a pipe would never end
	if errors.Is(err, errNoFile) {
		v.fail("%s", err)
		return v.report, nil
	}
	if err != nil {
		return v.report, err
	}
	isRead, err := v.bundle()
	if err != nil || !isRead {
		return v.report, err
	}
	if err := v.files(names); err != nil {
		return v.report, err
	}
	if err := v.evidence(); err != nil {
		return v.report, err
	}
	return v.report, nil
}

func (v *verification) fail(format string, args ...any) {
	v.report.Failures = append(v.report.Failures, fmt.Sprintf(format, args...))
}

func (v *verification) failFile(name string, err error) { v.fail("%s: %s", name, err) }

func (v *verification) proved(format string, args ...any) {
	v.report.Proved = append(v.report.Proved, fmt.Sprintf(format, args...))
}

// read reads a small file of the bundle. isRead is false when it is missing or too long, which is noted.
func (v *verification) read(name string, limit int64) (raw []byte, isRead bool, err error) {
	file, err := os.Open(filepath.Join(v.dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(v.dir); err != nil {
			return nil, false, err
		}
		v.fail("%s is missing: the bundle is not whole", name)
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	defer file.Close()
	if raw, err = io.ReadAll(io.LimitReader(file, limit+1)); err != nil {
		return nil, false, err
	}
	if int64(len(raw)) > limit {
		v.fail("%s: more than %d bytes", name, limit)
		return nil, false, nil
	}
	return raw, true, nil
}

// bundle reads bundle.json and checks the seal.
func (v *verification) bundle() (isRead bool, err error) {
	raw, isBundle, err := v.read(BundleFile, bundleBytesMax)
	if err != nil {
		return false, err
	}
	sealed, isSeal, err := v.read(SealFile, sealBytesMax)
	if err != nil {
		return false, err
	}
	if isBundle && isSeal {
		v.seal(raw, sealed)
	}
	if !isBundle {
		return false, nil
	}
	if err := decode(raw, &v.report.Bundle); err != nil {
		v.failFile(BundleFile, err)
		return false, nil
	}
	if err := v.report.Bundle.checkForm(); err != nil {
		v.failFile(BundleFile, err)
		return false, nil
	}
	return true, nil
}

func (v *verification) seal(bundle, raw []byte) {
	var s seal
	if err := decode(raw, &s); err != nil {
		v.failFile(SealFile, err)
		return
	}
	key, err := s.check(bundle)
	isKey := func(trusted ed25519.PublicKey) bool { return trusted.Equal(key) }
	switch given := v.options.ExporterKeys; {
	case err != nil:
		v.failFile(SealFile, err)
	case key == nil && len(given) > 0:
		v.fail("%s: the bundle is not signed: expected a signature by %s", SealFile, keyIDs(given))
	case key == nil:
		v.report.NotChecked = append(v.report.NotChecked, "who has made the bundle: it is not signed")
	case len(given) == 0:
		v.report.NotChecked = append(v.report.NotChecked, fmt.Sprintf("who has made the bundle: it is signed by key "+
			"%s, and no key was given to compare with (--exporter-key)", store.KeyID(key)))
	case !slices.ContainsFunc(given, isKey):
		v.fail("%s: signed by key %s, expected %s: the bundle was signed again, or by somebody else", SealFile,
			store.KeyID(key), keyIDs(given))
	default:
		v.proved("what bundle.json and cover.html say was signed by key %s", store.KeyID(key))
	}
}

func keyIDs(keys []ed25519.PublicKey) string {
	ids := make([]string, len(keys))
	for i, key := range keys {
		ids[i] = store.KeyID(key)
	}
	return strings.Join(ids, " or ")
}

// files compares the files that there are with those of bundle.json.
func (v *verification) files(names []string) error {
	done, total := int64(0), int64(0)
	isThere, listed := map[string]bool{}, map[string]bool{}
	for _, name := range names {
		isThere[name] = true
	}
	for _, want := range v.report.Bundle.Files {
		total += max(want.Size, 0)
	}
	for _, want := range v.report.Bundle.Files {
		listed[want.Name] = true
		if !isThere[want.Name] {
			v.isBad[want.Name], v.missing[want.Name] = true, true
			v.fail("%s is missing", want.Name)
			continue
		}
		got, err := hashFile(v.ctx, v.dir, want.Name, func(n int64) {
			done += n
			v.options.Progress(Progress{"hash the files", done, max(done, total)})
		})
		if err != nil {
			return err
		}
		switch {
		case got.Size != want.Size:
			v.fail("%s has %d bytes, expected %d", want.Name, got.Size, want.Size)
		case got.SHA256 != want.SHA256:
			v.fail("%s is altered: SHA-256 %s, expected %s%s", want.Name, got.SHA256, want.SHA256, v.isOf(got))
		default:
			continue
		}
		v.isBad[want.Name] = true
	}
	for _, name := range names {
		if !listed[name] {
			v.isBad[name] = true
			v.fail("%s is not of the bundle", name)
		}
	}
	if v.report.OK() {
		v.proved("all %d files are as bundle.json says, and there are no others", len(names))
	}
	return nil
}

// isOf says which file has these bytes.
func (v *verification) isOf(got File) string {
	for _, one := range v.report.Bundle.Files {
		if one.SHA256 == got.SHA256 && one.Name != got.Name {
			return ": it has the bytes of " + one.Name
		}
	}
	return ""
}

// evidence checks the excerpt of the store, and what is derived from it.
func (v *verification) evidence() error {
	bad := slices.ContainsFunc(
		v.report.Bundle.Files,
		func(f File) bool { return isEvidence(f.Name) && v.isBad[f.Name] },
	)
	if bad {
		v.fail("%s: a file of it is missing or altered: the records were not compared with it", EvidenceDir)
		return nil
	}
	b := &v.report.Bundle
	before := len(v.report.Failures)
	for _, one := range b.Files {
		if name, isIn := strings.CutPrefix(one.Name, EvidenceDir+"/"); isIn && !store.IsExcerptFile(name) {
			v.fail("%s: evidence does not have such a file: the records were not compared with it", one.Name)
		}
	}
	if len(v.report.Failures) > before {
		return nil
	}
	opened, err := store.Open(filepath.Join(v.dir, EvidenceDir), store.Options{})
	if err != nil {
		v.failFile(EvidenceDir, err)
		return nil
	}
	if got := sourceOf(opened, b.Source.Path); !reflect.DeepEqual(got, b.Source) {
		v.fail("%s: it is of store %s with keys %q, %s says %s with %q", EvidenceDir, got.StoreUUID, got.PublicKeys,
			BundleFile, b.Source.StoreUUID, b.Source.PublicKeys)
	}
	verified, isProved := v.signatures(opened)
	if v.ctx.Err() != nil || !isProved {
		return v.ctx.Err()
	}
	return v.derived(opened, verified)
}

// signatures checks the evidence by the rules of the store.
func (v *verification) signatures(opened *store.Store) (verified store.Report, isProved bool) {
	verified, err := verifyEvidence(v.ctx, opened, v.options.StoreKeys, v.options.Progress)
	if err != nil {
		v.failFile(EvidenceDir, err)
		return verified, false
	}
	if failures := failuresOf(verified); len(failures) > 0 {
		for _, one := range failures {
			v.fail("%s: %s", EvidenceDir, one)
		}
		return verified, false
	}
	by := "keys that the evidence itself names"
	if len(v.options.StoreKeys) > 0 {
		by = keyIDs(v.options.StoreKeys)
	} else {
		ids := make([]string, 0, len(opened.Keys()))
		for _, key := range opened.Keys() {
			ids = append(ids, store.KeyID(key))
		}
		v.report.NotChecked = append(v.report.NotChecked, fmt.Sprintf("whose the evidence is: it is signed by key %s, "+
			"and no key was given to compare with (--public-key)", strings.Join(ids, ", ")))
	}
	v.proved(
		"the sealed segments of %s are whole, in order and unaltered, by their headers and manifests, which form a "+
			"chain signed by %s",
		EvidenceDir,
		by,
	)
	return verified, true
}

// derived derives all other files again, and compares.
func (v *verification) derived(opened *store.Store, verified store.Report) error {
	b := &v.report.Bundle
	request, err := b.Request.query()
	if err != nil {
		v.failFile(BundleFile, err)
		return nil
	}
	mapping, isMapping := v.mapping()
	if !isMapping {
		return nil
	}
	var constants map[string]string
	if b.Profile != nil {
		constants = b.Profile.Constants
	}
	before := len(v.report.Failures)
	to := &compareOutputs{dir: v.dir, missing: v.missing, failed: v.failFile}
	made, err := derive(v.ctx, opened, verified, request, mapping, constants, to, v.options.Progress)
	if v.ctx.Err() != nil {
		return v.ctx.Err()
	}
	if err != nil {
		v.failFile(EvidenceDir, err)
		return nil
	}
	v.counts(made)
	if err := v.cover(); err != nil {
		return err
	}
	if len(v.report.Failures) > before || len(v.isBad) > 0 {
		return nil
	}
	v.proved("%s, %s and %s have %d records: all those of %s that were asked for, and no others, with the values "+
		"of their original bytes", csvFile, jsonFile, parquetFile, made.rows, EvidenceDir)
	v.proved("gaps and clock evidence%s are what the records of %s say", map[bool]string{true: ", and the report of " +
		"the profile,"}[mapping != nil], EvidenceDir)
	v.report.NotProved = append(v.report.NotProved, "that the store has no further stream which the patterns match")
	for _, s := range made.streams {
		if !s.isSigned(request.Window) {
			v.report.NotChecked = append(v.report.NotChecked, s.unsigned()...)
		}
	}
	for _, one := range b.Missing {
		if !slices.Contains(v.report.NotChecked, one) {
			v.report.NotProved = append(v.report.NotProved, one)
		}
	}
	return nil
}

// counts compares what bundle.json says of the contents.
func (v *verification) counts(made derived) {
	b := &v.report.Bundle
	if b.Rows != made.rows || b.Report != made.report {
		v.fail("%s: %d records and %d rows of a report, the evidence has %d and %d", BundleFile, b.Rows, b.Report,
			made.rows, made.report)
	}
	if !reflect.DeepEqual(b.Streams, made.streams) {
		v.fail("%s: streams are %+v, the evidence has %+v", BundleFile, b.Streams, made.streams)
	}
	if want := missing(made.streams); !slices.Equal(b.Missing, want) {
		v.fail("%s: missing is %q, the evidence says %q", BundleFile, b.Missing, want)
	}
}

// cover compares cover.html with what it is for this bundle.json.
func (v *verification) cover() error {
	if v.missing[CoverFile] {
		return nil
	}
	raw, err := os.ReadFile(filepath.Join(v.dir, CoverFile))
	if err != nil {
		return err
	}
	var want bytes.Buffer
	b := v.report.Bundle
	b.Files = nil
	if err := writeCover(&want, b); err != nil {
		return err
	}
	if !bytes.Equal(raw, want.Bytes()) {
		v.fail("%s: it does not say what %s says", CoverFile, BundleFile)
	}
	return nil
}

// mapping reads the profile. isRead is false when it cannot be, which is noted.
func (v *verification) mapping() (mapping *Mapping, isRead bool) {
	b := &v.report.Bundle
	names := []string{csvFile, jsonFile, parquetFile, gapsFile, clockFile, clockEventsFile, CoverFile}
	if b.Profile != nil {
		names = append(names, profileFile, reportFile, reportFieldsFile)
	}
	isWhole := true
	for _, name := range names {
		if !slices.ContainsFunc(b.Files, func(f File) bool { return f.Name == name }) {
			v.fail("%s: it does not list %s", BundleFile, name)
			isWhole = false
		}
	}
	for _, one := range b.Files {
		if !isEvidence(one.Name) && !slices.Contains(names, one.Name) {
			v.fail("%s: it lists %s, which a bundle does not have", BundleFile, one.Name)
		}
	}
	if b.Profile == nil || !isWhole || v.isBad[profileFile] {
		return nil, isWhole && !v.isBad[profileFile]
	}
	raw, isRead, err := v.read(profileFile, mappingBytesMax)
	if err != nil || !isRead {
		v.fail("%s: %v", profileFile, err)
		return nil, false
	}
	if mapping, err = ParseMapping(profileFile, raw); err != nil {
		v.failFile(profileFile, err)
		return nil, false
	}
	if mapping.Name != b.Profile.Name || mapping.Version != b.Profile.Version {
		v.fail("%s: it is %s, version %d, %s says %s, version %d", profileFile, mapping.Name, mapping.Version,
			BundleFile, b.Profile.Name, b.Profile.Version)
	}
	return mapping, true
}
