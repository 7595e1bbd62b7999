package identity

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/farlog/farlog/pkg/safefile"
)

// lookInterval bounds how often the files are looked at: a change is in force that much later at most.
const lookInterval = time.Second

// Keeper holds the certificates of one process and reads them again when their files change. Files that do not fit
// together yet, as in the middle of a change, leave in force what was read before. All of it may be called from many
// goroutines.
type Keeper struct {
	files  Files
	logger *slog.Logger
	now    func() time.Time

	mutex   sync.Mutex
	looked  time.Time
	seen    [4]stamp
	current *material
	failure string // of the last reading; "" = none

	isListRefused bool // the list in its file is older than the one in force

	tell func(Reading) // nil = nobody is told
	told map[FileKind]told
}

// stamp tells one state of a file from another.
type stamp struct {
	modified time.Time
	size     int64
	inode    uint64
}

// material is what the files say, read at once and checked.
type material struct {
	pair        tls.Certificate
	leaf        *x509.Certificate
	id          ID
	authorities []*x509.Certificate
	roots       *x509.CertPool
	revoked     map[string]bool // by issuer and serial number
	list        *x509.RevocationList
	good        goodChains
}

// NewKeeper reads the files. logger hears of later changes and of what is wrong with them.
func NewKeeper(files Files, logger *slog.Logger) (*Keeper, error) {
	k := &Keeper{files: files, logger: logger, now: time.Now}
	if _, err := k.load(); err != nil {
		return nil, err
	}
	return k, nil
}

// Files are those that it reads.
func (k *Keeper) Files() Files { return k.files }

// ID is who this process is.
func (k *Keeper) ID() ID {
	now, err := k.load()
	if err != nil {
		return ""
	}
	return now.id
}

// NotAfter is when this process's own certificate ends.
func (k *Keeper) NotAfter() time.Time {
	now, err := k.load()
	if err != nil {
		return time.Time{}
	}
	return now.leaf.NotAfter
}

// load gives what is in force. It fails only while nothing was ever read.
func (k *Keeper) load() (*material, error) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	now := k.now()
	if k.current != nil && now.Sub(k.looked) < lookInterval && !now.Before(k.looked) {
		return k.current, nil
	}
	k.looked = now
	seen := k.look()
	if k.current != nil && seen == k.seen && k.failure == "" {
		return k.current, nil
	}
	next, err := k.files.read(k.current != nil && k.current.revoked != nil)
	if err != nil {
		return k.keep(err)
	}
	why := next.keepNewerList(k.current)
	if k.current != nil && k.seen != seen {
		k.logger.Info("certificates reloaded", "id", next.id, "file", k.files.Cert, "expires",
			next.leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	if why != nil && why.Error() != k.failure {
		k.logger.Warn("an older list of revoked certificates is refused, keeping the newer one",
			"error", why)
	}
	k.current, k.seen, k.failure, k.isListRefused = next, seen, textOf(why), why != nil
	k.tellRead(next, why)
	return next, nil
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// IsListRefused reports whether the list of revoked certificates in its file is older than the one in force, which was
// there before.
func (k *Keeper) IsListRefused() bool {
	if _, err := k.load(); err != nil {
		return false
	}
	k.mutex.Lock()
	defer k.mutex.Unlock()
	return k.isListRefused
}

// keepNewerList leaves in force what was revoked before when the list that was read now is older: a copy from some time
// ago, put there by mistake or by somebody who was shut out since, would let them in again. Lists of different
// authorities are not to be compared.
func (m *material) keepNewerList(before *material) error {
	if before == nil || before.list == nil || m.list == nil ||
		string(before.list.RawIssuer) != string(m.list.RawIssuer) || !isOlder(m.list, before.list) {
		return nil
	}
	found := m.list
	m.list, m.revoked = before.list, before.revoked
	return fmt.Errorf("the list of revoked certificates that is there now is of %s, number %v, the one in force of "+
		"%s, number %v: copy the newest crl.pem from the authority",
		found.ThisUpdate.UTC().Format(time.RFC3339), found.Number, m.list.ThisUpdate.UTC().Format(time.RFC3339),
		m.list.Number)
}

// isOlder compares by the lists' numbers, which an authority only raises, and by time where one has none.
func isOlder(a, b *x509.RevocationList) bool {
	if a.Number != nil && b.Number != nil {
		return a.Number.Cmp(b.Number) < 0
	}
	return a.ThisUpdate.Before(b.ThisUpdate)
}

// keep goes on with what was read before; each reason is told once.
func (k *Keeper) keep(err error) (*material, error) {
	if k.current == nil {
		return nil, err
	}
	if text := err.Error(); text != k.failure {
		k.failure = text
		k.logger.Warn("certificates cannot be reloaded, keeping the present ones", "error", err)
	}
	k.tellRead(nil, err)
	return k.current, nil
}

func (k *Keeper) look() (seen [4]stamp) {
	for i, path := range []string{k.files.Authority, k.files.Cert, k.files.Key, k.files.Revoked} {
		if info, err := os.Stat(path); err == nil {
			seen[i] = stamp{modified: info.ModTime(), size: info.Size(), inode: inodeOf(info)}
		}
	}
	return seen
}

// read reads the files. A list of revoked certificates that was there once must be there.
func (f Files) read(needsRevoked bool) (*material, error) {
	authorities, err := readCerts(f.Authority)
	if err != nil {
		return nil, fmt.Errorf("authority: %w", err)
	}
	if err := checkKeyMode(f.Key); err != nil {
		return nil, err
	}
	pair, err := f.pair()
	if err != nil {
		return nil, fmt.Errorf("certificate %q and key %q: %w", f.Cert, f.Key, err)
	}
	leaf := pair.Leaf
	id, err := IDOf(leaf)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Cert, err)
	}
	m := &material{pair: pair, leaf: leaf, id: id, authorities: authorities, roots: x509.NewCertPool()}
	for _, authority := range authorities {
		m.roots.AddCert(authority)
	}
	if f.Revoked == "" {
		return m, nil
	}
	list, err := readRevoked(f.Revoked, authorities)
	if errors.Is(err, os.ErrNotExist) {
		if !needsRevoked && !f.IsRevokedNeeded {
			return m, nil
		}
		return nil, fmt.Errorf("list of revoked certificates %q is not there, and without it revoked certificates "+
			"would be accepted: copy crl.pem from the authority, where farlog ca makes and keeps it", f.Revoked)
	}
	if err != nil {
		return nil, err
	}
	m.list = list
	m.revoked = make(map[string]bool, len(list.RevokedCertificateEntries))
	for _, entry := range list.RevokedCertificateEntries {
		m.revoked[string(list.RawIssuer)+entry.SerialNumber.String()] = true
	}
	return m, nil
}

// pair reads the process's certificate and its key.
func (f Files) pair() (tls.Certificate, error) {
	cert, _, err := safefile.Read(f.Cert)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, _, err := safefile.Read(f.Key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(cert, key)
}

func nameOf(cert *x509.Certificate) string {
	id, err := IDOf(cert)
	if err != nil {
		return cert.Subject.String()
	}
	return string(id)
}

// Dir is where the certificate lies, for people.
func (f Files) Dir() string { return filepath.Dir(f.Cert) }
