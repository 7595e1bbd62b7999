package identity

import (
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Listed is a certificate as people see it.
type Listed struct {
	File    string    `json:"file,omitempty"`
	ID      ID        `json:"id"`
	Serial  string    `json:"serial"`
	Starts  time.Time `json:"starts"`
	Expires time.Time `json:"expires"`
	Revoked bool      `json:"revoked"`
}

// NewListed shows one certificate.
func NewListed(cert *x509.Certificate) Listed {
	return Listed{
		ID: ID(nameOf(cert)), Serial: fmt.Sprintf("%x", cert.SerialNumber), Starts: cert.NotBefore.UTC(),
		Expires: cert.NotAfter.UTC(),
	}
}

// State is good, expired, not valid yet or revoked.
func (l Listed) State(now time.Time) string {
	switch {
	case l.Revoked:
		return "revoked"
	case now.After(l.Expires):
		return "expired"
	case now.Before(l.Starts):
		return "not valid yet"
	}
	return "good"
}

// List shows the certificates in a directory, the authority's first.
func List(dir string) ([]Listed, error) {
	found, _, err := list(filepath.Join(dir, authorityCert), filepath.Join(dir, revokedName), pathsIn(dir))
	return found, err
}

func pathsIn(dirs ...string) (paths []string) {
	for _, dir := range dirs {
		for _, kind := range Kinds {
			paths = append(paths, In(dir, kind).Cert)
		}
	}
	return paths
}

// ListIssued is List, and in an authority's own directory also shows those that lie in directories there, one for each
// host; last what is revoked and lies nowhere.
func ListIssued(dir string) ([]Listed, error) {
	if _, err := os.Lstat(filepath.Join(dir, authorityKey)); err != nil {
		return List(dir)
	}
	inside, err := dirsIn(dir)
	if err != nil {
		return nil, err
	}
	found, revoked, err := list(filepath.Join(dir, authorityCert), filepath.Join(dir, revokedName),
		pathsIn(append([]string{dir}, inside...)...))
	if err != nil {
		return nil, err
	}
	for _, one := range found {
		delete(revoked, one.Serial)
	}
	for _, serial := range slices.Sorted(maps.Keys(revoked)) {
		found = append(found, Listed{ID: ID("serial " + serial), Serial: serial, Revoked: true})
	}
	return found, nil
}

// dirsIn are the directories in a directory.
func dirsIn(dir string) (dirs []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		if entry.IsDir() {
			dirs = append(dirs, filepath.Join(dir, entry.Name()))
		}
	}
	return dirs, nil
}

// ListFiles shows the certificates of one process, the authority's first.
func ListFiles(files Files) ([]Listed, error) {
	found, _, err := list(files.Authority, files.Revoked, []string{files.Cert})
	return found, err
}

// list also gives the serial numbers that are revoked.
func list(authority, revocations string, paths []string) (found []Listed, revoked map[string]bool, err error) {
	authorities, err := readCerts(authority)
	if err != nil {
		return nil, nil, fmt.Errorf("authority: %w", err)
	}
	revoked = map[string]bool{}
	if revocations != "" {
		known, err := readRevoked(revocations, authorities)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, nil, err
		}
		if err == nil {
			for _, entry := range known.RevokedCertificateEntries {
				revoked[fmt.Sprintf("%x", entry.SerialNumber)] = true
			}
		}
	}
	for _, path := range append([]string{authority}, paths...) {
		certs, err := readCerts(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		one := NewListed(certs[0])
		one.File, one.Revoked = path, revoked[one.Serial]
		found = append(found, one)
	}
	return found, revoked, nil
}
