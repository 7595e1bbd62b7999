package store

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
)

// checkKeyDir: a directory in the store is none outside of it, and one in which another user can put a key is no place
// for one. That of a signer is never used.
func (s *Store) checkKeyDir() error {
	dir, inside := s.keyDir(), path.Clean(s.dir)
	if s.options.KeyDir == "" || s.options.Signer != nil {
		return nil
	}
	isInside := isBelow(dir, inside)
	var err error
	if _, isOS := s.fsys.(osFS); isOS && !isInside { // others have neither links nor owners
		if isInside, err = isReallyInside(dir, inside); err == nil {
			err = checkOwner(dir, inside)
		}
	}
	if err != nil {
		return fmt.Errorf("directory of the signing key %s: %w", dir, err)
	}
	if isInside {
		return fmt.Errorf("%w: directory of the signing key %s is in the store %s: expected one outside of it",
			ErrInvalid, dir, inside)
	}
	return nil
}

func isBelow(dir, above string) bool {
	return dir == above || strings.HasPrefix(dir, strings.TrimSuffix(above, "/")+"/")
}

// isReallyInside follows links, and finds a store that is mounted at two places. Neither has to be there yet.
func isReallyInside(dir, inside string) (bool, error) {
	realDir, err := realPath(dir)
	if err != nil {
		return false, err
	}
	realInside, err := realPath(inside)
	if err != nil || isBelow(realDir, realInside) {
		return err == nil, err
	}
	storeInfo, err := os.Stat(realInside)
	if isNotExist(err) {
		return false, nil
	}
	for at := realDir; err == nil; at = filepath.Dir(at) {
		info, statErr := os.Stat(at)
		switch {
		case statErr != nil && !isNotExist(statErr):
			return false, statErr
		case statErr == nil && os.SameFile(info, storeInfo):
			return true, nil
		}
		if at == filepath.Dir(at) {
			return false, nil
		}
	}
	return false, err
}

// realPath is the absolute path without links, as far as it is there. A link that leads nowhere is an error.
func realPath(name string) (string, error) {
	absolute, err := filepath.Abs(name)
	if err != nil {
		return "", err
	}
	for at, rest := absolute, ""; ; at, rest = filepath.Dir(at), filepath.Join(filepath.Base(at), rest) {
		real, err := filepath.EvalSymlinks(at)
		if err == nil {
			return filepath.Join(real, rest), nil
		}
		if !isNotExist(err) || at == filepath.Dir(at) {
			return "", err
		}
		if info, err := os.Lstat(at); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			return "", fmt.Errorf("%w: %s is a link to what is not there", ErrInvalid, at)
		}
	}
}

// checkOwner reports a directory in which another user than this process's or root can put a key. Root also takes that
// of the store's owner, for whom it signs. The directories above are not looked at: who may write those can put another
// directory in the place of this one.
func checkOwner(dir, inside string) error {
	info, err := os.Stat(dir)
	if isNotExist(err) {
		return nil // it will be ours
	}
	if err != nil || !info.IsDir() { // nobody can put a key into a file
		return err
	}
	self, owner := uint32(os.Geteuid()), ownerOf(info)
	allowed := owner == self || owner == 0
	if !allowed && self == 0 {
		store, err := os.Stat(inside)
		if err != nil && !isNotExist(err) {
			return err
		}
		allowed = err == nil && ownerOf(store) == owner
	}
	if !allowed {
		return fmt.Errorf("%w: user %d owns it, who could replace the key; expected user %d or root: give another "+
			"directory (--store-keys), or chown it", ErrInvalid, owner, self)
	}
	if mode := info.Mode(); mode.Perm()&0o022 != 0 && mode&fs.ModeSticky == 0 {
		return fmt.Errorf("%w: its group, or every user of this host, can replace the key (mode %04o): chmod go-w %s",
			ErrInvalid, mode.Perm(), dir)
	}
	return nil
}

func ownerOf(info fs.FileInfo) uint32 { return info.Sys().(*syscall.Stat_t).Uid }
