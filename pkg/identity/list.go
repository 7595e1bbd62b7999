package identity

import (
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
	return Listed{ID: ID(nameOf(cert)), Serial: fmt.Sprintf("%x", cert.SerialNumber), Starts: cert.NotBefore.UTC(), Expires: cert.NotAfter.UTC()}
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
	paths := []string{}
	for _, kind := range Kinds {
		paths = append(paths, In(dir, kind).Cert)
	}
	return list(filepath.Join(dir, authorityCert), filepath.Join(dir, revokedName), paths)
}

// ListFiles shows the certificates of one process, the authority's first.
func ListFiles(files Files) ([]Listed, error) {
	return list(files.Authority, files.Revoked, []string{files.Cert})
}

func list(authority, revocations string, paths []string) ([]Listed, error) {
	authorities, err := readCerts(authority)
	if err != nil {
		return nil, fmt.Errorf("authority: %w", err)
	}
	revoked := map[string]bool{}
	if revocations != "" {
		known, err := readRevoked(revocations, authorities)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		if err == nil {
			for _, entry := range known.RevokedCertificateEntries {
				revoked[entry.SerialNumber.String()] = true
			}
		}
	}
	var found []Listed
	for _, path := range append([]string{authority}, paths...) {
		certs, err := readCerts(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		one := NewListed(certs[0])
		one.File, one.Revoked = path, revoked[certs[0].SerialNumber.String()]
		found = append(found, one)
	}
	return found, nil
}
