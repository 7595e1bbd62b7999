package archive_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/farlog/farlog/pkg/export"
)

// export runs farlog archive export of a store or an archive.
func (r *reading) export(source, dir string) (stderr string, code int) {
	_, stderr, code = r.run("archive", "export", source, dir, "--filter", "'35' in fix && fix['35'] == '8'",
		"--profile", "fix-log", "--who", "J. Doe", "--why", "test")
	return stderr, code
}

// expectSameExport: the bundle of an archive verifies, and has the records and the report of the restored store.
func (r *reading) expectSameExport() {
	r.Helper()
	dir := r.TempDir()
	here, there := filepath.Join(dir, "here"), filepath.Join(dir, "there")
	for source, to := range map[string]string{r.restored: here, r.url(): there} {
		if talk, code := r.export(source, to); code != 0 {
			r.Fatalf("export %s: exit code %d: %s", source, code, talk)
		}
		if report, err := export.Verify(r.Context(), to, export.VerifyOptions{}); err != nil || !report.OK() ||
			report.Bundle.Rows == 0 {
			r.Errorf("%s: %d records, %q, %v", source, report.Bundle.Rows, report.Failures, err)
		}
	}
	for _, name := range []string{"records.csv", "records.jsonl", "report.csv", "clock.csv"} {
		want, err := os.ReadFile(filepath.Join(here, name))
		r.must(err)
		got, err := os.ReadFile(filepath.Join(there, name))
		r.must(err)
		if !bytes.Equal(got, want) {
			r.Errorf("%s of the archive has %d bytes, of the restored store %d", name, len(got), len(want))
		}
	}
}

// expectNoPartOfAnExport: a storage that does not answer one of the calls leaves no bundle, or a whole one.
func (r *reading) expectNoPartOfAnExport() {
	r.Helper()
	dir := r.TempDir()
	r.k.arm(0, false, nil)
	if talk, code := r.export(r.url(), filepath.Join(dir, "whole")); code != 0 {
		r.Fatalf("exit code %d: %s", code, talk)
	}
	calls := r.k.count()
	step := 1
	if testing.Short() {
		step = 1 + calls/4
	}
	for at := 1; at <= calls; at += step {
		to := filepath.Join(dir, fmt.Sprint(at))
		r.k.arm(at, false, func() {})
		talk, code := r.export(r.url(), to)
		_, err := os.Stat(to)
		if code == 0 && err == nil {
			report, err := export.Verify(r.Context(), to, export.VerifyOptions{})
			if err != nil || !report.OK() {
				r.Errorf("call %d of %d is lost: %q, %v", at, calls, report.Failures, err)
			}
			continue
		}
		left, globErr := filepath.Glob(filepath.Join(dir, ".*"))
		r.must(globErr)
		if code != 1 || talk == "" || !errors.Is(err, fs.ErrNotExist) || len(left) > 0 {
			r.Errorf("call %d of %d is lost: exit code %d: %s; %v, %q is left", at, calls, code, talk, err, left)
		}
	}
}
