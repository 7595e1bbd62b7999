package etcd

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/farlog/farlog/pkg/internal/testenv"
)

const (
	fileKeys = 50
	sizeMin  = 4 << 20

	killTimeout = 30 * time.Second // bounds every wait; it is never what a test measures
)

// written is a directory with keys that have been written many times, whose history is dropped: the file is far larger
// than what they need.
func written(t *testing.T, rounds int) (dir string) {
	t.Helper()
	dir = t.TempDir()
	etcd := openEtcd(t, dir)
	for round := range rounds {
		for key := range fileKeys {
			if _, err := etcd.Client().Put(t.Context(), fmt.Sprintf("%s%03d", KeyTargets, key),
				valueOf(key, round)); err != nil {
				t.Fatal(err)
			}
		}
	}
	var last *clientv3.PutResponse
	for range 2 * defragmentCommits { // for what was dropped to become space
		var err error
		if last, err = etcd.writeMarker(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := etcd.Client().Compact(t.Context(), last.Header.Revision,
			clientv3.WithCompactPhysical()); err != nil {
			t.Fatal(err)
		}
	}
	if err := etcd.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

func valueOf(key, round int) string {
	return fmt.Sprintf("%d %d ", key, round) + strings.Repeat("x", 32<<10)
}

func databaseSize(t *testing.T, dir string) int64 {
	t.Helper()
	info, err := os.Stat(filepath.Join(dir, "member", "snap", "db"))
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// checkWritten looks whether every key has its last value, and takes another one.
func checkWritten(t *testing.T, etcd *Cluster, round int) {
	t.Helper()
	got, err := etcd.Client().Get(t.Context(), KeyTargets, clientv3.WithPrefix())
	if err != nil || len(got.Kvs) != fileKeys {
		t.Fatalf("%d keys, %v; expected %d", len(got.Kvs), err, fileKeys)
	}
	for key, kv := range got.Kvs {
		if want := valueOf(key, round); !bytes.Equal(kv.Value, []byte(want)) {
			t.Errorf("%s is %.20q, expected %.20q", kv.Key, kv.Value, want)
		}
	}
	if _, err := etcd.Client().Put(t.Context(), KeyStreamID, "1"); err != nil {
		t.Error(err)
	}
}

func TestOpenEtcd_FileThatIsMostlyRoomIsWrittenAnew(t *testing.T) {
	t.Parallel()
	const rounds = 10
	dir := written(t, rounds)
	before := databaseSize(t, dir)
	if before < 2*sizeMin {
		t.Fatalf("the file has %d bytes: too few to be defragmented", before)
	}
	etcd := openEtcd(t, dir) // whose file is small enough for it to be left alone
	checkWritten(t, etcd, rounds-1)
	if err := etcd.Close(); err != nil {
		t.Fatal(err)
	}
	if now := databaseSize(t, dir); now < before {
		t.Errorf("a file of %d bytes was defragmented to %d", before, now)
	}
	etcd, err := Open(t.Context(), Options{Dir: dir, defragmentMin: sizeMin})
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	if now := databaseSize(t, dir); now > before/2 {
		t.Errorf("the file had %d bytes and has %d", before, now)
	}
	checkWritten(t, etcd, rounds-1)
}

// A control plane is killed while it writes its database again, and as soon as that has taken the old one's place:
// whichever of the two is there, nothing of it is lost, and what lay beside it goes.
func TestDefragment_Killed(t *testing.T) {
	t.Parallel()
	const rounds = 10
	made := written(t, rounds)
	isThere := func(snap string, before os.FileInfo) bool {
		now, err := os.Stat(filepath.Join(snap, "db"))
		return err != nil || !os.SameFile(before, now)
	}
	moments := map[string]func(snap string, before os.FileInfo) bool{
		"while it is written": func(snap string, _ os.FileInfo) bool {
			files, err := filepath.Glob(filepath.Join(snap, "db.tmp*"))
			return err != nil || len(files) > 0
		},
		"when it is there": isThere,
	}
	for name, isMoment := range moments {
		t.Run(name, func(t *testing.T) {
			for range killTries {
				dir := t.TempDir()
				if err := os.CopyFS(dir, os.DirFS(made)); err != nil {
					t.Fatal(err)
				}
				snap := filepath.Join(dir, "member", "snap")
				before, err := os.Stat(filepath.Join(snap, "db"))
				if err != nil {
					t.Fatal(err)
				}
				if killAt(t, dir, func() bool { return isMoment(snap, before) },
					func() bool { return isThere(snap, before) }) {
					t.Logf("killed with a file of %d bytes, before it had %d", databaseSize(t, dir), before.Size())
					checkDefragmented(t, dir, before.Size(), rounds-1)
					return
				}
				t.Log("the moment had passed before it was seen")
			}
			t.Fatalf("the moment was seen by none of %d", killTries)
		})
	}
}

// killTries bounds how often a control plane is started to be killed at a moment that this process may be asleep at.
const killTries = 20

// etcdDirVariable makes the test binary a process that opens the etcd of a directory, to be killed by its parent.
const etcdDirVariable = "FARLOG_TEST_ETCD_DIR"

// openUntilKilled opens a directory, small as its file may be, and stays.
func openUntilKilled(dir string) error {
	if _, err := Open(context.Background(), Options{Dir: dir, defragmentMin: sizeMin}); err != nil {
		return err
	}
	select {}
}

// killAt starts an etcd on a directory and kills it at a moment; false: that had passed before anybody looked.
func killAt(t *testing.T, dir string, isMoment, isPast func() bool) (isMet bool) {
	t.Helper()
	_, kill := testenv.StartChild(t, etcdDirVariable, dir)
	defer kill()
	for deadline := time.Now().Add(killTimeout); ; time.Sleep(100 * time.Microsecond) {
		isOver := isPast() // before the moment is looked for: what comes between the two is no miss
		switch {
		case isMoment():
			return true
		case isOver:
			return false
		case time.Now().After(deadline):
			t.Fatalf("not within %s", killTimeout)
		}
	}
}

// checkDefragmented opens what a killed control plane has left: nothing is lost, and nothing lies beside it.
func checkDefragmented(t *testing.T, dir string, sizeBefore int64, round int) {
	t.Helper()
	etcd, err := Open(t.Context(), Options{Dir: dir, defragmentMin: sizeMin})
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	checkWritten(t, etcd, round)
	if left, err := filepath.Glob(filepath.Join(dir, "member", "snap", "db.tmp*")); err != nil || len(left) > 0 ||
		databaseSize(t, dir) > sizeBefore/2 {
		t.Errorf("left behind: %q, %v; the file has %d bytes of %d", left, err, databaseSize(t, dir), sizeBefore)
	}
}
