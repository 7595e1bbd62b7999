package identity

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Names in a directory of certificates. A host needs the authority's certificate, the list of the revoked ones, and the
// pair of what it is; the authority's key stays where the authority is.
const (
	authorityCert = "ca.crt"
	authorityKey  = "ca.key"
	revokedName   = "crl.pem"
	certSuffix    = ".crt"
	keySuffix     = ".key"
)

// SystemDir is where certificates are looked for when nothing else is said.
const SystemDir = "/etc/farlog/tls"

// Files says where the certificates of one process are.
type Files struct {
	Authority string // certificates that sign the others'
	Cert, Key string // of this process
	Revoked   string // list of the revoked ones; "": nobody is

	// IsRevokedNeeded: without the list nothing is read, also at the start. Else who was shut out would be in again
	// when the list is forgotten beside a control plane that starts.
	IsRevokedNeeded bool
}

// In gives the files of a kind in a directory. A control plane, which lets others in, must have the list of the revoked
// ones there.
func In(dir string, kind Kind) Files {
	return Files{
		IsRevokedNeeded: kind == KindControl,
		Authority:       filepath.Join(dir, authorityCert), Revoked: filepath.Join(dir, revokedName),
		Cert: filepath.Join(dir, string(kind)+certSuffix), Key: filepath.Join(dir, string(kind)+keySuffix),
	}
}

// Find gives the files of the first of the kinds that has a certificate in a directory.
func Find(dir string, kinds ...Kind) (Files, error) {
	for _, kind := range kinds {
		files := In(dir, kind)
		_, err := os.Stat(files.Cert)
		if err == nil {
			return files, nil
		}
		if !errors.Is(err, os.ErrNotExist) {
			return Files{}, fmt.Errorf("certificates in %q: %w", dir, errors.Unwrap(err))
		}
	}
	return Files{}, fmt.Errorf("certificates in %q: expected %s%s there (farlog ca init and farlog ca issue make it)",
		dir, kinds[0], certSuffix)
}

// checkKeyMode refuses a key that others than its owner can read. One of root's may be read by a group: systemd's
// credentials and Kubernetes' secrets are so, for a process that is not root.
func checkKeyMode(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("key %q: %w", path, errors.Unwrap(err))
	}
	if !isKeyMode(info.Mode().Perm(), ownerOf(info), os.Geteuid()) {
		return fmt.Errorf("key %q can be read by others than its owner: chmod 600 %s", path, path)
	}
	return nil
}

func isKeyMode(mode os.FileMode, owner, user int) bool {
	if owner == 0 && user != 0 {
		mode &^= 0o040
	}
	return mode&0o077 == 0
}
