package export

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/farlog/farlog/pkg/store"
)

// all gives the files of a bundle.
func all(t *testing.T, dir string) []string {
	t.Helper()
	names, err := listFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	return append(names, BundleFile, SealFile)
}

// Any byte of any file that is another one is found, and the file named.
func TestVerify_FlippedByte(t *testing.T) {
	dir, trust := bundle(t)
	rng := newRandom(t)
	for _, name := range all(t, dir) {
		raw, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		places := []int{rng.IntN(len(raw))}
		if !testing.Short() {
			places = append(places, 0, rng.IntN(len(raw)), len(raw)-1)
		}
		for _, at := range places {
			bit := byte(1) << rng.IntN(8)
			flip := func(raw []byte) []byte {
				raw[at] ^= bit
				return raw
			}
			edit(t, dir, name, flip)
			expectFailure(t, fmt.Sprintf("%s, offset %d, bit %#x", name, at, bit), dir, trust, named(name))
			edit(t, dir, name, flip)
		}
	}
	if report, err := Verify(t.Context(), dir, trust); err != nil || !report.IsWhole() {
		t.Errorf("restored: %q, %v", report.Failures, err)
	}
}

// named is what names a file; where bundle.json is altered, seal.json says so.
func named(name string) string {
	if name == BundleFile || name == SealFile {
		return ".json"
	}
	return name
}

// Files that are missing, cut off, swapped, or more than there should be are found, also when all is cut off.
func TestVerify_Files(t *testing.T) {
	dir, trust := bundle(t)
	names := all(t, dir)
	for i, name := range names {
		if testing.Short() && i%4 != 0 {
			continue
		}
		full := filepath.Join(dir, name)
		away := filepath.Join(t.TempDir(), "away")
		if err := os.Rename(full, away); err != nil {
			t.Fatal(err)
		}
		expectFailure(t, "without "+name, dir, trust, name+" is missing")
		if err := os.Rename(away, full); err != nil {
			t.Fatal(err)
		}
		other := names[(i+1)%len(names)]
		swap := func() {
			next := filepath.Join(dir, other)
			for _, pair := range [][2]string{{full, away}, {next, full}, {away, next}} {
				if err := os.Rename(pair[0], pair[1]); err != nil {
					t.Fatal(err)
				}
			}
		}
		swap()
		if named(other) == other {
			expectFailure(t, "swapped with "+other, dir, trust, named(name))
		} else {
			expectFailure(t, "swapped with "+other, dir, trust, named(other))
		}
		swap()
		cut := copyOf(t, dir)
		edit(t, cut, name, func(raw []byte) []byte { return raw[:len(raw)/2] })
		for _, later := range names[i+1:] {
			if err := os.Remove(filepath.Join(cut, later)); err != nil {
				t.Fatal(err)
			}
		}
		if i%5 == 0 {
			expectFailure(t, "cut off in "+name, cut, trust)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "more.csv"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	expectFailure(t, "one more", dir, trust, "more.csv is not of the bundle")
	if err := os.Remove(filepath.Join(dir, "more.csv")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	expectFailure(t, "a link", dir, trust, "link: it is no file")
}

// A pipe, which would never end, is not opened, and a link is not followed, also in place of bundle.json.
func TestVerify_NoFile(t *testing.T) {
	dir, trust := bundle(t)
	for _, name := range []string{BundleFile, SealFile} {
		full, away := filepath.Join(dir, name), filepath.Join(t.TempDir(), "away")
		if err := errors.Join(os.Rename(full, away), os.Symlink(away, full)); err != nil {
			t.Fatal(err)
		}
		expectFailure(t, "a link", dir, trust, name+": it is no file")
		remove(t, dir, name)
		if err := unix.Mkfifo(full, 0o600); err != nil {
			t.Fatal(err)
		}
		expectFailure(t, "a pipe", dir, trust, name+": it is no file")
		if err := os.Rename(away, full); err != nil {
			t.Fatal(err)
		}
	}
}

// segments of the evidence with records, and without.
func segments(t *testing.T, dir string) (whole, cut []string) {
	t.Helper()
	for _, name := range all(t, dir) {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case !strings.HasSuffix(name, ".seg") || !strings.Contains(name, "orders"):
		case info.Size() > 4096:
			whole = append(whole, name)
		default:
			cut = append(cut, name)
		}
	}
	if len(whole) < 2 || len(cut) < 2 {
		t.Fatalf("segments with records: %q, without: %q: expected some of both", whole, cut)
	}
	return whole, cut
}

// Somebody who has no key changes a bundle, and makes all hashes right: only what was signed by nobody but the exporter
// can be said otherwise, and where his key is known not even that.
func TestVerify_Forger(t *testing.T) {
	dir, trust := bundle(t)
	whole, cut := segments(t, dir)
	storeOnly := VerifyOptions{StoreKeys: trust.StoreKeys}
	manifest := func(name string) string { return strings.TrimSuffix(name, ".seg") + ".json" }
	for _, test := range []struct {
		what   string
		change func(dir string)
		want   []string
	}{
		{"a row removed", func(dir string) {
			edit(t, dir, csvFile, without("ORD-151"))
		}, []string{"records.csv: line 7"}},
		{"a line removed", func(dir string) {
			edit(t, dir, jsonFile, without("ORD-151"))
		}, []string{"records.jsonl: line 6"}},
		{"the last row removed", func(dir string) { edit(t, dir, csvFile, without("ORD-229")) }, []string{"its end"}},
		{"a row added", func(dir string) {
			edit(t, dir, csvFile, func(raw []byte) []byte { return append(raw, "x\n"...) })
		}, []string{csvFile + ": line 47, "}},
		{"other Parquet", func(dir string) { otherParquet(t, dir) }, []string{parquetFile + ": row 2: "}},
		{"no Parquet", func(dir string) {
			edit(t, dir, parquetFile, func([]byte) []byte { return []byte("PAR1\x04\x00\x00\x00PAR1") })
		}, []string{parquetFile}},
		{"another value", func(dir string) { edit(t, dir, reportFile, replace("BUYI", "SELL")) }, []string{reportFile}},
		{"another gap", func(dir string) { edit(t, dir, gapsFile, replace("forged", "normal")) }, []string{gapsFile}},
		{"another bound", func(dir string) { edit(t, dir, clockFile, replace(",100,", ",001,")) }, []string{clockFile}},
		{"another record", func(dir string) {
			forge(t, dir, whole[0], "ACC-1", "ACC-0")
		}, []string{"SHA-256 of the segment is"}},
		{"segments swapped", func(dir string) { swap(t, dir, whole[0], whole[1]) }, []string{"header says segment"}},
		{"manifests swapped", func(dir string) {
			swap(t, dir, manifest(cut[0]), manifest(cut[1]))
		}, []string{"header says lsn"}},
		{"a segment removed", func(dir string) {
			remove(t, dir, whole[0])
			remove(t, dir, manifest(whole[0]))
		}, []string{"is missing"}},
		{"records cut off", func(dir string) {
			edit(t, dir, whole[0], func(raw []byte) []byte { return raw[:4096] })
		}, []string{"segment ends"}},
		{"another cover", func(dir string) {
			edit(t, dir, CoverFile, replace("J. Doe", "R. Roe"))
		}, []string{CoverFile + ": it does not say"}},
		{"an index", func(dir string) {
			writeFile(t, dir, strings.TrimSuffix(whole[0], ".seg")+".idx")
		}, []string{".idx: evidence does not have such a file"}},
		{"a tail", func(dir string) {
			writeFile(t, dir, strings.TrimSuffix(whole[0], ".seg")+"-0000004096-1.tail")
		}, []string{".tail: evidence does not have such a file"}},
		{"another mapping", func(dir string) { edit(t, dir, profileFile, replace("SELL", "SHRT")) }, []string{}},
		{"hostile mapping", func(dir string) { edit(t, dir, profileFile, replace("fix.44", "fixx44")) }, []string{
			profileFile + ":13:25",
		}},
	} {
		forged := copyOf(t, dir)
		test.change(forged)
		rehash(t, forged, nil, nil)
		if len(test.want) > 0 {
			expectFailure(t, test.what, forged, storeOnly, test.want...)
		}
		expectFailure(t, test.what+", whose exporter is known", forged, trust, "the bundle is not signed")
	}
}

func replace(from, to string) func(raw []byte) []byte {
	return func(raw []byte) []byte { return []byte(strings.ReplaceAll(string(raw), from, to)) }
}

func writeFile(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("FARLOGIX"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

func swap(t *testing.T, dir, one, two string) {
	t.Helper()
	first, err := os.ReadFile(filepath.Join(dir, one))
	if err != nil {
		t.Fatal(err)
	}
	edit(t, dir, two, func(raw []byte) []byte {
		edit(t, dir, one, func([]byte) []byte { return raw })
		return first
	})
}

// otherParquet puts the Parquet of a bundle of another filter there, which has fewer rows.
func otherParquet(t *testing.T, dir string) {
	t.Helper()
	o := options(t)
	o.Request.Filter += " && fix['11'] != 'ORD-143'"
	to := filepath.Join(t.TempDir(), "other")
	if _, err := Export(t.Context(), newStore(t, filepath.Join(t.TempDir(), "store")), to, o); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(to, parquetFile))
	if err != nil {
		t.Fatal(err)
	}
	edit(t, dir, parquetFile, func([]byte) []byte { return raw })
}

// What bundle.json says of the contents has to follow from the evidence.
func TestVerify_StatementsOfTheBundle(t *testing.T) {
	dir, trust := bundle(t)
	trust.ExporterKeys = nil
	for want, change := range map[string]func(b *Bundle){
		"1 records and 45 rows":         func(b *Bundle) { b.Rows = 1 },
		"missing is []":                 func(b *Bundle) { b.Missing = []string{} },
		"streams are":                   func(b *Bundle) { b.Streams[0].Gaps = 0 },
		"it does not list clock.csv":    func(b *Bundle) { b.Files = slices.DeleteFunc(b.Files, is(clockFile)) },
		"profile.yaml: it is orders":    func(b *Bundle) { b.Profile.Version = 4 },
		"it lists":                      func(b *Bundle) { b.Profile = nil },
		"records.csv: line ":            func(b *Bundle) { b.Request.Filter = "" },
		"report.csv: line 2":            func(b *Bundle) { b.Profile.Constants["Firm"] = "LEI-2" },
		"it is of store":                func(b *Bundle) { b.Source.PublicKeys = []string{"00"} },
		"version 9, expected":           func(b *Bundle) { b.Version = 9 },
		"invalid request: from":         func(b *Bundle) { b.Request.From = "never" },
		"segment is missing, or offset": func(b *Bundle) { b.Request.To = "" }, // the evidence does not have that
	} {
		forged := copyOf(t, dir)
		rehash(t, forged, nil, change)
		if strings.HasPrefix(want, "segment is missing") {
			want = "segment ends"
		}
		expectFailure(t, want, forged, trust, want)
	}
}

func is(name string) func(File) bool { return func(f File) bool { return f.Name == name } }

// A bundle that was signed again with another key, and one whose store was, are found by whoever has the right keys.
func TestVerify_OtherKeys(t *testing.T) {
	dir, trust := bundle(t)
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	again := copyOf(t, dir)
	rehash(t, again, private, nil)
	expectFailure(t, "signed again", again, trust, "the bundle was signed again")
	expectFailure(t, "another store", dir, VerifyOptions{StoreKeys: []ed25519.PublicKey{public}},
		"none of the public keys that were given")
	report, err := Verify(t.Context(), dir, VerifyOptions{})
	if err != nil || !report.OK() || len(report.NotChecked) != 2 {
		t.Errorf("without keys: %q, %q, %v", report.Failures, report.NotChecked, err)
	}
	for _, key := range []ed25519.PublicKey{trust.StoreKeys[0], trust.ExporterKeys[0]} {
		if !strings.Contains(strings.Join(report.NotChecked, " "), store.KeyID(key)) {
			t.Errorf("not checked: %q, expected key %s", report.NotChecked, store.KeyID(key))
		}
	}
}

// The seal has one form: what reads the same and is other bytes is found.
func TestVerify_FormOfTheSeal(t *testing.T) {
	dir, trust := bundle(t)
	for what, change := range map[string]func(raw []byte) []byte{
		"a newline":       func(raw []byte) []byte { return append(raw, '\n') },
		"capital letters": func(raw []byte) []byte { return bytes.ToUpper(raw) },
		"one capital letter": func(raw []byte) []byte {
			at := bytes.Index(raw, []byte("signature")) + len(`signature": "`)
			return append(raw[:at:at], bytes.ToUpper(raw[at:])...)
		},
		"one more field": func(raw []byte) []byte { return bytes.Replace(raw, []byte("{"), []byte(`{"more": 1,`), 1) },
		"other spaces":   func(raw []byte) []byte { return bytes.ReplaceAll(raw, []byte(": "), []byte(":  ")) },
	} {
		other := copyOf(t, dir)
		edit(t, other, SealFile, change)
		expectFailure(t, what, other, trust, SealFile)
	}
}

// What is no bundle is an error, or a failure that says so.
func TestVerify_NoBundle(t *testing.T) {
	if _, err := Verify(t.Context(), filepath.Join(t.TempDir(), "none"), VerifyOptions{}); !os.IsNotExist(err) {
		t.Errorf("%v, expected that there is none", err)
	}
	expectFailure(t, "empty", t.TempDir(), VerifyOptions{}, "bundle.json is missing", "seal.json is missing")
}
