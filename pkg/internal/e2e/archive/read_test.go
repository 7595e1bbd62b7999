package archive_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farlog/farlog/pkg/audit/fixlog"
	"github.com/farlog/farlog/pkg/internal/s3test"
	"github.com/farlog/farlog/pkg/store"
	"github.com/farlog/farlog/pkg/store/storetest"
)

// reading is an archive of FIX messages, the store that it was restored to, and farlog.
type reading struct {
	*testing.T
	server   *s3test.Server
	k        *killer
	bucket   string
	restored string
	farlog   string
	segments uint64
}

func newReading(t *testing.T) *reading {
	t.Helper()
	r := &reading{T: t, server: s3test.Start(t), farlog: filepath.Join(filepath.Dir(binary), "farlog")}
	r.bucket, r.k = r.server.Bucket(t, true), newKiller(t, r.server.Endpoint)
	r.restored = filepath.Join(t.TempDir(), "restored")
	build := exec.Command("go", "build", "-o", r.farlog, "../../../../cmd/farlog") // beside farlog-archive
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	recording, err := fixlog.Load("../../../../testdata/fix/orders.fixlog.zst")
	r.must(err)
	dir := filepath.Join(t.TempDir(), "store")
	opened, err := store.Open(dir, store.Options{Create: true, SegmentBytes: 64 << 10, IsSynchronous: true})
	r.must(err)
	ring := storetest.NewRing(stream, 1)
	for _, entry := range recording[:2000] {
		ring.AppendPayload(entry.Message)
	}
	app, err := opened.OpenStream(ring.Source)
	r.must(err)
	for _, rec := range ring.Records {
		_, _, err := app.Append(rec.Raw)
		r.must(err)
	}
	r.must(app.Close())
	sealed, err := opened.Sealed(stream)
	r.must(err)
	if r.segments = uint64(len(sealed.Segments)); r.segments < 3 {
		t.Fatalf("%d sealed segments, expected some", r.segments)
	}
	r.archive("run", dir, "--once", "--retain", "1h")
	r.archive("restore", r.restored)
	return r
}

func (r *reading) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *reading) url() string { return "s3://" + r.bucket + "/desk7" }

func (r *reading) archive(args ...string) {
	r.Helper()
	cmd, talk := program(append(args, "--archive-url", r.url(), "--archive-endpoint", r.server.Endpoint,
		"--archive-region", s3test.Region)...)
	if err := cmd.Run(); err != nil {
		r.Fatalf("%v: %v: %s", args, err, talk)
	}
}

// run is a run of farlog.
func (r *reading) run(args ...string) (stdout, stderr string, code int) {
	r.Helper()
	cmd := exec.Command(r.farlog, args...)
	cmd.Env = append(append(os.Environ(), s3test.Environ()...), "FARLOG_ARCHIVE_ENDPOINT="+r.k.URL,
		"FARLOG_ARCHIVE_REGION="+s3test.Region)
	var out, talk bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &talk
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		r.Fatal(err)
	}
	return out.String(), talk.String(), cmd.ProcessState.ExitCode()
}

// commands read a store at a path.
func commands(path string) map[string][]string {
	return map[string][]string{
		"dump":   {"dump", path, "--stream", stream},
		"order":  {"order", "D7-000056", "--store", path, "--stream", stream},
		"replay": {"replay", path, "--stream", stream, "--speed", "max"},
		"verify": {"verify", path},
		"query":  {"query", path, "--filter", "'35' in fix && fix['35'] == '8'", "--fields", "lsn,key,payload"},
		"seek":   {"replay", path, "--stream", stream, "--speed", "max", "--from", "+500us"},
	}
}

// TestRead_ArchiveAsAStore: each command prints of an archive what it prints of the store that the archive is restored
// to.
func TestRead_ArchiveAsAStore(t *testing.T) {
	r := newReading(t)
	of := commands(r.restored)
	for name, args := range commands(r.url()) {
		want, _, code := r.run(of[name]...)
		if code != 0 || want == "" {
			t.Fatalf("%s of the restored store: exit code %d: %s", name, code, want)
		}
		got, talk, code := r.run(args...)
		if code != 0 || got != want {
			t.Errorf("%s: exit code %d, %s; %d bytes, expected %d", name, code, talk, len(got), len(want))
		}
	}
	r.expectSameExport()
	if _, talk, code := r.run("dump", r.url()+"/none"); code != 1 || !strings.Contains(talk, "not an archive") {
		t.Errorf("no archive: exit code %d: %s", code, talk)
	}
	if _, talk, code := r.run("store", "retention", "list", r.url()); code != 2 ||
		!strings.Contains(talk, "expected the directory of a store") {
		t.Errorf("what writes: exit code %d: %s", code, talk)
	}
}

// TestRead_EachCallIsLost: a storage that does not answer ends a command with an error, at each of its calls. It never
// shortens what is read.
func TestRead_EachCallIsLost(t *testing.T) {
	r := newReading(t)
	r.expectNoPartOfAnExport()
	for _, name := range []string{"dump", "verify"} {
		args := commands(r.url())[name]
		r.k.arm(0, false, nil)
		want, _, _ := r.run(args...)
		calls := r.k.count()
		step := 1
		if testing.Short() {
			step = 1 + calls/4
		}
		for at := 1; at <= calls; at += step {
			r.k.arm(at, false, func() {})
			if got, talk, code := r.run(args...); code != 1 && (code != 0 || got != want) || code == 1 && talk == "" {
				t.Errorf("%s: call %d of %d is lost: exit code %d, %d bytes, expected %d: %s", name, at, calls, code,
					len(got), len(want), talk)
			}
		}
		t.Logf("%s: %d calls", name, calls)
	}
}

// TestRead_WhatIsGoneOrDamagedIsNamed: somebody with the storage's disk in his hands removes or alters a segment, the
// last one too.
func TestRead_WhatIsGoneOrDamagedIsNamed(t *testing.T) {
	r := newReading(t)
	for _, number := range []uint64{2, r.segments} {
		name := store.SegmentFile(stream, number)
		file := filepath.Join(r.server.Dir, r.bucket, "desk7", name)
		base := filepath.Base(name)
		whole, err := os.ReadFile(file)
		r.must(err)
		damaged := slices.Clone(whole)
		damaged[len(damaged)/2] ^= 1
		r.expect("damaged", base, func() { r.must(os.WriteFile(file, damaged, 0o640)) })
		r.must(os.WriteFile(file, whole, 0o640))
		away := filepath.Join(filepath.Dir(r.server.Dir), "away")
		r.expect("gone", base, func() { r.must(os.Rename(file, away)) })
		r.must(os.Rename(away, file))
		if _, talk, code := r.run(commands(r.url())["verify"]...); code != 0 {
			t.Fatalf("whole again: exit code %d: %s", code, talk)
		}
	}
}

func (r *reading) expect(what, name string, do func()) {
	r.Helper()
	do()
	for command, args := range commands(r.url()) {
		stdout, talk, code := r.run(args...)
		if command == "order" && code == 0 {
			continue // may read no more than what is whole
		}
		if command == "seek" && what == "damaged" && name == filepath.Base(store.SegmentFile(stream, 2)) {
			want, _, _ := r.run(commands(r.restored)[command]...)
			if code != 0 || stdout != want {
				r.Errorf("%s is damaged, and no record of the time is in it: exit code %d, %d bytes, expected %d: %s",
					name, code, len(stdout), len(want), talk)
			}
			continue
		}
		if code != 1 || !strings.Contains(talk+stdout, name) {
			r.Errorf("%s is %s: %s has exit code %d, expected 1 and its name: %s", name, what, command, code, talk)
		}
	}
}
