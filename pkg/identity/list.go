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
	authorities, err := readCerts(filepath.Join(dir, authorityCert))
	if err != nil {
		return nil, fmt.Errorf("authority: %w", err)
	}
	revoked := map[string]bool{}
	list, err := readRevoked(filepath.Join(dir, revokedName), authorities)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if err == nil {
		for _, entry := range list.RevokedCertificateEntries {
			revoked[entry.SerialNumber.String()] = true
		}
	}
	paths := []string{filepath.Join(dir, authorityCert)}
	for _, kind := range Kinds {
		paths = append(paths, In(dir, kind).Cert)
	}
	var found []Listed
	for _, path := range paths {
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
