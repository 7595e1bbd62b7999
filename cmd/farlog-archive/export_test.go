package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farlog/farlog/pkg/export"
	"github.com/farlog/farlog/pkg/store"
	"github.com/farlog/farlog/pkg/store/storetest"
)

// Mistakes are found before anything is read or made; what was asked for is in the bundle.
func TestExport_Flags(t *testing.T) {
	dir := t.TempDir()
	source, to, mapping := filepath.Join(dir, "store"), filepath.Join(dir, "bundle"), filepath.Join(dir, "mine.yaml")
	opened, err := store.Open(source, store.Options{Create: true, IsSynchronous: true})
	if err != nil {
		t.Fatal(err)
	}
	ring := storetest.NewRing("desk7/orders", 1)
	ring.Append(10, 100)
	appender, err := opened.OpenStream(ring.Source)
	if err != nil {
		t.Fatal(err)
	}
	for _, rec := range ring.Records {
		if _, _, err := appender.Append(rec.Raw); err != nil {
			t.Fatal(err)
		}
	}
	err = errors.Join(appender.Sync(), appender.Close(), os.WriteFile(mapping, []byte("format: x\n"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	asked := []string{"--who", "J. Doe", "--why", "test"}
	for _, test := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--why", "test"}, exitUsage, "expected who"},
		{append(asked, "--class", "70000"), exitUsage, "--class 70000"},
		{append(asked, "--filter", "lsn >"), exitUsage, "column"},
		{append(asked, "--profile", "fix-lug"), exitUsage, "expected one of cat-meno, fix-log"},
		{append(asked, "--profile", mapping), exitUsage, "mine.yaml:1:9: format"},
		{append(asked, "--profile", "rts25-clock"), exitUsage, "required and not mapped: Firm"},
		{append(asked, "--profile", "rts25-clock", "--constant", "Firm"), exitUsage, "expected NAME=VALUE"},
		{append(asked, "--constant", "Firm=x"), exitUsage, "expected --profile"},
		{append(asked, "--signing-key", mapping), exitUsage, "it is not PEM"},
		{append(asked, "--stream", "none"), exitFailure, "no stream matches"},
		{append(asked, "--class", "1,2", "--key", "ORD-3"), exitOK, "missing, or not proved: stream desk7/orders"},
		{asked, exitFailure, "expected the name of a directory that is not there yet"},
	} {
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), append([]string{"export", source, to}, test.args...), &stdout, &stderr)
		if out := stdout.String() + stderr.String(); code != test.code || !strings.Contains(out, test.want) {
			t.Errorf("%q: exit code %d, expected %d and %q:\n%s", test.args, code, test.code, test.want, out)
		}
	}
	report, err := export.Verify(t.Context(), to, export.VerifyOptions{})
	if request := report.Bundle.Request; err != nil || !report.OK() || len(request.Classes) != 2 ||
		request.Keys[0] != "ORD-3" {
		t.Errorf("%+v, %q, %v", request, report.Failures, err)
	}
}
