package store_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farlog/farlog/pkg/store"
	"github.com/farlog/farlog/pkg/store/storetest"
)

const insideKey = "/store/signing.key"

// keyOptions are those of a store whose key lies elsewhere.
func (f *fixture) keyOptions() store.Options {
	options := f.options()
	options.KeyDir = "/keys"
	return options
}

func (f *fixture) isThere(name string) bool {
	f.t.Helper()
	_, err := f.fs.Bytes(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		f.t.Fatal(err)
	}
	return err == nil
}

// keys lists the files of a directory of keys; none when it is not there.
func (f *fixture) keys() []string {
	f.t.Helper()
	names, err := f.fs.ReadDir("/keys")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		f.t.Fatal(err)
	}
	return names
}

// movedKey is where the key of the fixture's store belongs when it lies elsewhere.
func (f *fixture) movedKey() string {
	return path.Join("/keys", store.KeyID(f.store.PublicKey())+".key")
}

// fillAndVerify stores some records, and checks the store.
func (f *fixture) fillAndVerify(what string, after int) {
	f.t.Helper()
	f.fill(20)
	if report := f.verify(); report.Failure != nil {
		f.t.Fatalf("%s, operation %d: %s", what, after, report.Statement())
	}
}

// A new store never has the signing key in it. A crash at each operation of its making leaves nothing that the next
// attempt cannot go on from, and no private key of nothing.
func TestKey_NewStoreHasNone(t *testing.T) {
	for after := 0; newStoreHasNoKey(t, after, (*storetest.CrashFS).Crash); after++ {
	}
	for after := 0; newStoreHasNoKey(t, after, (*storetest.CrashFS).Kill); after++ {
	}
}

func newStoreHasNoKey(t *testing.T, after int, end func(*storetest.CrashFS)) (isCrashed bool) {
	t.Helper()
	f := &fixture{t: t, fs: storetest.NewCrashFS(uint64(after)), ring: storetest.NewRing(testStream, 1)}
	f.fs.CrashAfter(after)
	_, err := store.Open("/store", f.keyOptions())
	if isCrashed = f.fs.IsCrashed(); err == nil == isCrashed {
		t.Fatalf("operation %d: crashed %v, %v", after, isCrashed, err)
	}
	end(f.fs)
	f.openWith(f.keyOptions())
	if f.isThere(insideKey) || !f.isThere(f.movedKey()) {
		t.Fatalf("operation %d: the key is in the store, or not where it belongs", after)
	}
	for _, name := range f.keys() {
		if path.Ext(name) == ".key" && path.Join("/keys", name) != f.movedKey() {
			t.Fatalf("operation %d: keys %q, expected only that of the store", after, f.keys())
		}
	}
	f.fillAndVerify("create", after)
	return isCrashed
}

// A store of before is opened as it is, and its key is moved: whatever operation of the move a crash meets, the key is
// in one of the two places, whole, and the next move goes on.
func TestMoveKey_CrashAtEachOperation(t *testing.T) {
	for after := 0; ; after++ {
		f := &fixture{t: t, fs: storetest.NewCrashFS(uint64(after)), ring: storetest.NewRing(testStream, 1)}
		f.open()
		f.fill(20)
		key, err := f.fs.Bytes(insideKey)
		if err != nil {
			t.Fatal(err)
		}
		opened, err := store.Open("/store", f.keyOptions())
		if err != nil {
			t.Fatal(err)
		}
		f.fs.CrashAfter(after)
		isMoved, err := opened.MoveKey()
		isCrashed := f.fs.IsCrashed()
		if err == nil == isCrashed || isMoved == isCrashed {
			t.Fatalf("operation %d: crashed %v, moved %v, %v", after, isCrashed, isMoved, err)
		}
		f.fs.Crash()
		f.openWith(f.keyOptions()) // before it is moved again
		f.close()
		if _, err := f.store.MoveKey(); err != nil {
			t.Fatalf("operation %d: move again: %v", after, err)
		}
		moved, err := f.fs.Bytes(f.movedKey())
		if err != nil || !bytes.Equal(moved, key) || f.isThere(insideKey) {
			t.Fatalf("operation %d: the key was not moved as it was: %v", after, err)
		}
		f.openWith(f.keyOptions())
		f.fillAndVerify("move", after)
		if !isCrashed {
			return
		}
	}
}

// What is at the place of the key and is another one is neither taken nor replaced; the key stays in the store, and
// signs from there.
func TestMoveKey_AnotherKeyIsThere(t *testing.T) {
	f := newFixture(t)
	f.fill(20)
	raw, err := newFixture(t).fs.Bytes(insideKey)
	if err == nil {
		err = f.fs.Mkdir("/keys", 0o700)
	}
	if err == nil {
		err = f.put(f.movedKey(), bytes.NewReader(raw))
	}
	if err != nil {
		t.Fatal(err)
	}
	opened, err := store.Open("/store", f.keyOptions())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := opened.MoveKey(); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("move: %v", err)
	}
	if err := opened.CheckKey(); err != nil { // that in the store signs
		t.Errorf("check: %v", err)
	}
	if there, err := f.fs.Bytes(f.movedKey()); err != nil || !bytes.Equal(there, raw) || !f.isThere(insideKey) {
		t.Errorf("a key was replaced or removed: %v", err)
	}
}

// A key that cannot be written where it belongs stays in the store, and signs from there.
func TestMoveKey_NoSpace(t *testing.T) {
	f := newFixture(t)
	f.fill(20)
	opened, err := store.Open("/store", f.keyOptions())
	if err != nil {
		t.Fatal(err)
	}
	f.fs.LimitSpace(0)
	if isMoved, err := opened.MoveKey(); isMoved || !errors.Is(err, store.ErrNoSpace) {
		t.Errorf("moved %v, %v", isMoved, err)
	}
	f.fs.LimitSpace(-1)
	f.openWith(f.keyOptions())
	f.fillAndVerify("no space", 0)
}

// One directory may have the keys of several stores. A key that is nowhere is an error that names both places; a
// directory in the store is none outside of it.
func TestKeyDir_OfSeveralStores(t *testing.T) {
	f := &fixture{t: t, fs: storetest.NewCrashFS(1), ring: storetest.NewRing(testStream, 1)}
	f.openWith(f.keyOptions())
	f.fillAndVerify("first", 0)
	second, err := store.Open("/other", f.keyOptions())
	if err != nil {
		t.Fatal(err)
	}
	if len(f.keys()) != 2 || f.store.CheckKey() != nil || second.CheckKey() != nil {
		t.Errorf("keys %q, %v, %v", f.keys(), f.store.CheckKey(), second.CheckKey())
	}
	if err := f.fs.Remove(f.movedKey()); err != nil {
		t.Fatal(err)
	}
	if err := f.store.CheckKey(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("check without a key: %v", err)
	}
	options := f.options()
	options.KeyDir = "/third/keys"
	if _, err := store.Open("/third", options); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("keys in the store: %v", err)
	}
}

// Only the drain's user can read the key.
func TestKeyDir_IsForItsUserAlone(t *testing.T) {
	dir := t.TempDir()
	options := store.Options{Create: true, KeyDir: store.KeyDirBeside(filepath.Join(dir, "store"))}
	opened, err := store.Open(filepath.Join(dir, "store"), options)
	if err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(dir, "keys", store.KeyID(opened.PublicKey())+".key")
	for name, want := range map[string]fs.FileMode{filepath.Dir(key): 0o700, key: 0o600} {
		info, err := os.Stat(name)
		if err != nil || info.Mode().Perm()&^want != 0 {
			t.Errorf("%s: %v, %v, expected at most %v", name, info, err, want)
		}
	}
}

// However the path is written, a directory in the store is none outside of it: by a link, by a link in the middle, by
// "..", before the store is made and after it.
func TestKeyDir_InTheStoreByAnotherPath(t *testing.T) {
	dir := t.TempDir()
	inside := filepath.Join(dir, "store")
	if err := errors.Join(os.Symlink(dir, filepath.Join(dir, "self")),
		os.Symlink(filepath.Join(inside, "keys"), filepath.Join(dir, "keys"))); err != nil {
		t.Fatal(err)
	}
	refused := func(when string) {
		for _, keys := range []string{
			filepath.Join(dir, "self", "store", "keys"),
			filepath.Join(dir, "keys"), // leads nowhere as long as the store has none
			dir + "/other/../store/keys",
			filepath.Join(dir, "self", "self", "store"),
		} {
			_, err := store.Open(inside, store.Options{Create: true, KeyDir: keys})
			if !errors.Is(err, store.ErrInvalid) {
				t.Errorf("%s, %s: %v", when, keys, err)
			}
		}
	}
	refused("before there is a store")
	outside := store.Options{Create: true, KeyDir: filepath.Join(dir, "self", "outside")}
	if _, err := store.Open(inside, outside); err != nil {
		t.Fatal(err)
	}
	refused("with a store")
	if err := os.Mkdir(filepath.Join(inside, "keys"), 0o700); err != nil {
		t.Fatal(err)
	}
	refused("with a directory in the store")
	if _, err := store.Open(filepath.Join(dir, "self", "store"), outside); err != nil {
		t.Errorf("the store by a link, its keys outside of it: %v", err)
	}
}

// A directory in which another user can replace the key has none: not one that he owns, nor one that a group or all
// can write. Root, who signs for the drain's user, takes his.
func TestKeyDir_OfAnotherUser(t *testing.T) {
	dir := t.TempDir()
	options := store.Options{Create: true, KeyDir: filepath.Join(dir, "keys")}
	inside := filepath.Join(dir, "store")
	if _, err := store.Open(inside, options); err != nil {
		t.Fatal(err)
	}
	for mode, isRefused := range map[fs.FileMode]bool{
		0o777: true, 0o770: true, 0o703: true, 0o750: false, 0o777 | fs.ModeSticky: false,
	} {
		if err := os.Chmod(options.KeyDir, mode); err != nil {
			t.Fatal(err)
		}
		_, err := store.Open(inside, options)
		if errors.Is(err, store.ErrInvalid) != isRefused || isRefused && !strings.Contains(err.Error(), "chmod go-w") {
			t.Errorf("directory of mode %s: %v, expected that it is refused: %v", mode, err, isRefused)
		}
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: a directory of another user")
	}
	const other = 4711
	if err := errors.Join(os.Chmod(options.KeyDir, 0o700), os.Chown(options.KeyDir, other, -1)); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Open(inside, options); !errors.Is(err, store.ErrInvalid) ||
		!strings.Contains(err.Error(), "user 4711 owns it") {
		t.Errorf("directory of another user: %v", err)
	}
	if err := os.Chown(inside, other, -1); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Open(inside, options); err != nil {
		t.Errorf("root, for the user of the store: %v", err)
	}
}
