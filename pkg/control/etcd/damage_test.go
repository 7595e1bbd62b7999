package etcd

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"
)

const (
	pageLen    = 4096
	frontLen   = 64 * pageLen // of the file, where all keys are
	openedMost = 3            // etcds that are started on a database without a page: it takes a while
)

// filled is a directory with an etcd that has some keys, and has ended.
func filled(t *testing.T) (dir, database string) {
	t.Helper()
	dir = removedAtEnd(t)
	etcd := openEtcd(t, dir)
	for i := range 60 {
		key := fmt.Sprintf("%s%03d", KeyStreams, i)
		if _, err := etcd.Client().Put(t.Context(), key, strings.Repeat("x", 700)); err != nil {
			t.Fatal(err)
		}
	}
	if err := etcd.Close(); err != nil {
		t.Fatal(err)
	}
	return dir, filepath.Join(dir, "member", "snap", "db")
}

// removedAtEnd is not TempDir: what an etcd had begun when it gave up may still make a file in it.
func removedAtEnd(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "farlog-etcd-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for deadline := time.Now().Add(killTimeout); os.RemoveAll(dir) != nil && time.Now().Before(deadline); {
			time.Sleep(10 * time.Millisecond)
		}
	})
	return dir
}

func mustRead(t *testing.T, path string) []byte {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func mustWrite(t *testing.T, path string, raw []byte) {
	t.Helper()
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
}

// expectDamage opens, and wants a *DamagedError that names the place and the remedy.
func expectDamage(t *testing.T, dir, text string) {
	t.Helper()
	etcd, err := Open(t.Context(), Options{Dir: dir})
	if err == nil {
		etcd.Close()
	}
	var damage *DamagedError
	if !errors.As(err, &damage) || !strings.Contains(err.Error(), text) || !strings.Contains(err.Error(), dir) ||
		!strings.Contains(err.Error(), "farlog control restore") {
		t.Fatalf("got %v, expected damage: %s", err, text)
	}
}

// What this proves, and how. Each page of a database is lost in turn: zero, or another page in its place, as a disk
// gives them that lost a write. Either the damage is found, or etcd starts and has all keys: bbolt never gets to a page
// at which it would end the process.
func TestOpenEtcd_EachPageOfTheDatabaseIsLost(t *testing.T) {
	dir, path := filled(t)
	whole := mustRead(t, path)
	found, survived := 0, 0
	for at := 2 * pageLen; at < frontLen; at += pageLen {
		for name, page := range map[string][]byte{"zero": make([]byte, pageLen), "meta": whole[:pageLen]} {
			front := bytes.Clone(whole[:frontLen])
			copy(front[at:], page)
			if _, err := checkDatabase(bytes.NewReader(front)); err != nil {
				found++
				continue
			}
			if survived++; survived > openedMost {
				continue
			}
			mustWrite(t, path, append(front, whole[frontLen:]...))
			etcd, err := Open(t.Context(), Options{Dir: dir})
			if err != nil {
				t.Fatalf("page %d %s: %v", at/pageLen, name, err)
			}
			got, err := etcd.Client().Get(t.Context(), KeyStreams+"059")
			if err != nil || len(got.Kvs) != 1 {
				t.Errorf("page %d %s: %v, %v", at/pageLen, name, got, err)
			}
			if err := etcd.Close(); err != nil {
				t.Fatal(err)
			}
			whole = mustRead(t, path)
		}
	}
	if found < 10 || survived == 0 {
		t.Errorf("%d times damage was found, expected it at each page of the keys, and %d times none", found, survived)
	}
	t.Logf("found %d times, %d times the page was free", found, survived)
}

// The first lost page is named, and what to do.
func TestOpenEtcd_DamagedDatabaseIsNamed(t *testing.T) {
	dir, path := filled(t)
	whole := mustRead(t, path)
	raw := bytes.Clone(whole)
	clear(raw[2*pageLen:])
	mustWrite(t, path, raw)
	expectDamage(t, dir, "says it is page 0")
	mustWrite(t, path, whole[:3*pageLen])
	expectDamage(t, dir, "EOF")
	mustWrite(t, path, bytes.Repeat([]byte("no database "), 1000))
	expectDamage(t, dir, "meta pages")
	mustWrite(t, path, whole)
	openEtcd(t, dir)
}

// Bytes that are changed anywhere never make the check panic, whatever lengths and positions they say.
func TestCheckDatabase_AnyByteIsChanged(t *testing.T) {
	_, path := filled(t)
	whole := mustRead(t, path)[:frontLen]
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed=%d", seed)
	random, found := rand.New(rand.NewPCG(seed, 0)), 0
	for range 200 {
		raw := bytes.Clone(whole)
		for range 1 + random.IntN(4) { // headers and elements are at the front of a page
			at := random.IntN(len(raw)/pageLen)*pageLen + random.IntN(64)
			raw[at] ^= byte(1 + random.IntN(255))
		}
		if _, err := checkDatabase(bytes.NewReader(raw)); err != nil {
			found++
		}
	}
	if found == 0 {
		t.Error("no change was found")
	}
	if index, err := checkDatabase(bytes.NewReader(whole)); err != nil || index < 60 {
		t.Errorf("a whole database: entry %d, %v", index, err)
	}
}

// Without its log etcd would begin a new one, and drop what it then writes as entries that the database has.
func TestOpenEtcd_LogIsMissing(t *testing.T) {
	dir, _ := filled(t)
	if err := os.RemoveAll(filepath.Join(dir, "member", "wal")); err != nil {
		t.Fatal(err)
	}
	expectDamage(t, dir, "write-ahead log")
}

// A log whose bytes rot in the middle is damage, and a torn end is none: a power cut leaves that.
func TestOpenEtcd_LogIsDamaged(t *testing.T) {
	dir, _ := filled(t)
	logs, err := filepath.Glob(filepath.Join(dir, "member", "wal", "*.wal"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("%v, %v", logs, err)
	}
	whole := mustRead(t, logs[0])
	at := bytes.Index(whole, []byte(KeyStreams+"030"))
	raw := bytes.Clone(whole)
	raw[at] ^= 1
	mustWrite(t, logs[0], raw)
	expectDamage(t, dir, "crc")
}

// What a newer etcd has written is whole: nobody is told to move it away.
func TestOpenEtcd_OfANewerVersionIsNotDamaged(t *testing.T) {
	dir, path := filled(t)
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: killTimeout})
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("cluster")).Put([]byte("clusterVersion"), []byte("3.99.0"))
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	etcd, err := Open(t.Context(), Options{Dir: dir})
	if err == nil {
		etcd.Close()
	}
	var damage *DamagedError
	if err == nil || errors.As(err, &damage) || !strings.Contains(err.Error(), "a newer farlog wrote what is there") {
		t.Fatalf("got %v, expected that a newer farlog wrote it", err)
	}
}
