package main

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/export"
	"github.com/farlog/farlog/pkg/store"
	"github.com/farlog/farlog/pkg/store/storetest"
)

// made is a bundle, signed or not, and the files of its public keys. isSealed: of a time of sealed segments alone.
func made(t *testing.T, isSigned, isSealed bool) (dir, storeKey, exporterKey string) {
	t.Helper()
	at := t.TempDir()
	opened, err := store.Open(filepath.Join(at, "store"), store.Options{
		Create: true, SegmentBytes: store.SegmentBytesMin, IsSynchronous: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	ring := storetest.NewRing("desk7/orders", 1)
	ring.Append(100, 1000)
	appender, err := opened.OpenStream(ring.Source)
	if err != nil {
		t.Fatal(err)
	}
	for _, rec := range ring.Records {
		if _, _, err := appender.Append(rec.Raw); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(appender.Sync(), appender.Close()); err != nil {
		t.Fatal(err)
	}
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	dir, exporterKey = filepath.Join(at, "bundle"), filepath.Join(at, "exporter.pub")
	raw := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	if err := os.WriteFile(exporterKey, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	options := export.Options{MadeBy: "J. \x1b[2JDoe", Why: "test", Program: "test"}
	if isSealed {
		options.Request.To = ring.Records[10].Time().Format(time.RFC3339Nano)
	}
	if isSigned {
		options.Key = private
	}
	if _, err := export.Export(t.Context(), opened, dir, options); err != nil {
		t.Fatal(err)
	}
	return dir, filepath.Join(at, "store", store.PublicKeyFile), exporterKey
}

func TestVerify_ExitCodes(t *testing.T) {
	signed, storeKey, exporterKey := made(t, true, true)
	unsealed, unsealedKey, unsealedExporterKey := made(t, true, false)
	plain, _, _ := made(t, false, true)
	damaged, _, _ := made(t, true, true)
	if err := os.WriteFile(filepath.Join(damaged, "cover.html"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		what string
		args []string
		code int
		want string
	}{
		{"all keys", []string{signed, "--public-key", storeKey, "--exporter-key", exporterKey}, exitOK, "proved: "},
		{
			"all keys, and records that are not sealed",
			[]string{unsealed, "--public-key", unsealedKey, "--exporter-key", unsealedExporterKey},
			exitNotChecked,
			"has no manifest: the store has not signed them",
		},
		{"no keys", []string{signed}, exitNotChecked, "not checked: whose the evidence is"},
		{"one key", []string{signed, "--public-key", storeKey}, exitNotChecked, "no key was given"},
		{"no signature", []string{plain, "--exporter-key", exporterKey}, exitFailure, "the bundle is not signed"},
		{"another key", []string{signed, "--exporter-key", storeKey}, exitFailure, "FAILED: seal.json: signed by key"},
		{"damaged", []string{damaged}, exitFailure, "FAILED: cover.html has 0 bytes"},
		{"no bundle", []string{filepath.Join(signed, "none")}, exitFailure, "no such file"},
		{"no argument", nil, exitUsage, "expected: farlog-verify BUNDLE"},
		{"bad flag", []string{signed, "--quiet"}, exitUsage, "unknown flag"},
		{"bad format", []string{signed, "-o", "xml"}, exitUsage, "expected json"},
		{"no key file", []string{signed, "--public-key", storeKey + "x"}, exitUsage, "no such file"},
		{"no key in it", []string{signed, "--public-key", filepath.Join(signed, "seal.json")}, exitUsage, "seal.json"},
	} {
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), test.args, &stdout, &stderr)
		if out := stdout.String() + stderr.String(); code != test.code || !strings.Contains(out, test.want) ||
			strings.Contains(out, "\x1b") {
			t.Errorf("%s: exit code %d, expected %d and %q:\n%s", test.what, code, test.code, test.want, out)
		}
	}
}

func TestVerify_JSON(t *testing.T) {
	dir, _, _ := made(t, true, true)
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{dir, "-o", "json"}, &stdout, &stderr); code != exitNotChecked {
		t.Errorf("exit code %d: %s", code, stderr.String())
	}
	var report export.Report
	if err := json.Unmarshal(stdout.Bytes(), &report); err != nil || report.Bundle.Rows == 0 || !report.OK() {
		t.Errorf("%+v, %v", report, err)
	}
}
