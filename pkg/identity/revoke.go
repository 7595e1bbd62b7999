package identity

import (
	"crypto/rand"
	"crypto/x509"
	"fmt"
	"math/big"
	"path/filepath"
	"slices"
	"time"

	"github.com/farlog/farlog/pkg/replace"
)

// Revoke adds certificates to the list. Whoever reads the list shuts them out within seconds.
func (a *Authority) Revoke(paths []string, now time.Time) ([]*x509.Certificate, error) {
	path := filepath.Join(a.Dir, revokedName)
	list, err := readRevoked(path, []*x509.Certificate{a.cert})
	if err != nil {
		return nil, err
	}
	entries := list.RevokedCertificateEntries
	var revoked []*x509.Certificate
	for _, path := range paths {
		certs, err := readCerts(path)
		if err != nil {
			return nil, err
		}
		if err := certs[0].CheckSignatureFrom(a.cert); err != nil {
			return nil, fmt.Errorf("certificate %q is not of the authority in %q, which alone can revoke it", path,
				a.Dir)
		}
		if certs[0].IsCA {
			return nil, fmt.Errorf("certificate %q is that of the authority itself, whose list nobody would believe "+
				"any more: expected one that it signed; farlog ca init makes another authority", path)
		}
		revoked = append(revoked, certs[0])
		isListed := func(entry x509.RevocationListEntry) bool {
			return entry.SerialNumber.Cmp(certs[0].SerialNumber) == 0
		}
		if !slices.ContainsFunc(entries, isListed) {
			entries = append(entries, x509.RevocationListEntry{
				SerialNumber:   certs[0].SerialNumber,
				RevocationTime: now,
			})
		}
	}
	if err := a.writeRevoked(entries, now); err != nil {
		return nil, err
	}
	return revoked, a.copyRevoked(paths)
}

// copyRevoked renews the lists that lie beside what the authority issued here, and beside certificates that were just
// revoked: who looks there is told.
func (a *Authority) copyRevoked(paths []string) error {
	dirs, err := dirsIn(a.Dir)
	if err != nil {
		return err
	}
	for _, path := range paths {
		dirs = append(dirs, filepath.Dir(path))
	}
	slices.Sort(dirs)
	for _, dir := range slices.Compact(dirs) {
		if _, err := readRevoked(filepath.Join(dir, revokedName), []*x509.Certificate{a.cert}); err != nil {
			continue // none, or of another authority
		}
		if err := a.copyTo(dir); err != nil {
			return fmt.Errorf("certificates are revoked in %q; the copy of the list in %q is not renewed: %w", a.Dir,
				dir, err)
		}
	}
	return nil
}

func (a *Authority) writeRevoked(entries []x509.RevocationListEntry, now time.Time) error {
	raw, err := x509.CreateRevocationList(rand.Reader, &x509.RevocationList{
		Number: big.NewInt(now.UnixNano()), ThisUpdate: now.Add(-clockSlack), NextUpdate: now.Add(revokedValidity),
		RevokedCertificateEntries: entries,
	}, a.cert, a.key)
	if err != nil {
		return fmt.Errorf("sign list of revoked certificates: %w", err)
	}
	return replace.File(filepath.Join(a.Dir, revokedName), encodePEM(pemRevoked, raw), 0o644)
}
