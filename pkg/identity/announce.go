package identity

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// A control plane that listens at a loopback address needs no authority that somebody has set up: it makes its own, and
// announces the directory to the programs of the same user on the same host by a symbolic link with the name of its
// address.

// localValidity is how long the certificates of such an authority are good for; they are renewed when a third of it is
// left.
const localValidity = 30 * 24 * time.Hour

// EnsureLocal makes an authority and a certificate of each kind in dir, or renews what is there and soon ends.
func EnsureLocal(dir string, now time.Time) error {
	a, err := OpenAuthority(dir)
	if errors.Is(err, os.ErrNotExist) {
		a, err = InitAuthority(dir, TrustDomainDefault, now)
	}
	if err != nil {
		return err
	}
	if _, err := a.Renew(dir, localValidity, now.Add(localValidity/3), now); err != nil {
		return err
	}
	for _, kind := range Kinds {
		if _, err := os.Stat(In(dir, kind).Cert); err == nil {
			continue
		}
		order := Order{
			Kind: kind, Name: NameAny, Hosts: []string{"localhost", "127.0.0.1", "::1"},
			Validity: localValidity,
		}
		if _, err := a.Issue(dir, order, now); err != nil {
			return err
		}
	}
	return nil
}

// announceDirs are where announcements may be, best first: that of the user's session, that of the user among the
// temporary files.
func announceDirs() []string {
	var dirs []string
	if session := os.Getenv("XDG_RUNTIME_DIR"); session != "" {
		dirs = append(dirs, filepath.Join(session, "farlog"))
	}
	return append(dirs, filepath.Join(os.TempDir(), fmt.Sprintf("farlog-%d", os.Geteuid())))
}

// Announce tells programs of this user where the certificates for a control plane at a loopback address are. What it
// returns takes that back.
func Announce(address, dir string) (withdraw func() error, err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, announced := range announceDirs() {
		path := filepath.Join(announced, announcedName(address))
		err := errors.Join(makeOwn(announced), link(path, dir))
		if err == nil {
			prune(announced)
			return func() error { return unlink(path, dir) }, nil
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("announce certificates for %s: %w", address, errors.Join(errs...))
}

// Unannounce takes back what an earlier control plane has announced for an address and, being killed, could not.
func Unannounce(address string) error {
	var errs []error
	for _, announced := range announceDirs() {
		if info, err := os.Lstat(announced); err == nil && isOwn(info) {
			errs = append(errs, removeIfThere(filepath.Join(announced, announcedName(address))))
		}
	}
	return errors.Join(errs...)
}

// Announced gives the directory that a control plane at this address has announced; "" when none has.
func Announced(address string) (string, error) {
	for _, announced := range announceDirs() {
		info, err := os.Lstat(announced)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		dir, err := os.Readlink(filepath.Join(announced, announcedName(address)))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if !isOwn(info) {
			return "", notOwn(announced)
		}
		if err != nil {
			return "", err
		}
		if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
			continue // of one that is gone with its directory
		}
		return dir, nil
	}
	return "", nil
}

func announcedName(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

func makeOwn(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !isOwn(info) {
		return notOwn(dir)
	}
	return nil
}

func notOwn(dir string) error {
	return fmt.Errorf("directory %q: expected one of this user's alone (mode 0700): somebody else could say in it "+
		"which certificates are to be trusted", dir)
}

// link puts a symbolic link in the place of the one before.
func link(path, dir string) error {
	part := fmt.Sprintf("%s.part-%d", path, os.Getpid())
	if err := errors.Join(removeIfThere(part), os.Symlink(dir, part)); err != nil {
		return err
	}
	return os.Rename(part, path)
}

// prune removes the announcements of control planes that are gone with their directories.
func prune(announced string) {
	links, _ := filepath.Glob(filepath.Join(announced, "*"))
	for _, path := range links {
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			_ = os.Remove(path)
		}
	}
}

// unlink leaves alone what another control plane has announced since.
func unlink(path, dir string) error {
	if now, err := os.Readlink(path); err != nil || now != dir {
		return nil
	}
	return removeIfThere(path)
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// Choice is what a program was told about its certificates; empty fields are settings that were not given.
type Choice struct {
	Dir                           string // with the names of farlog ca
	Authority, Cert, Key, Revoked string // files, each for itself
	// address of the control plane that is to be reached; of several the first counts
	Control   string
	Kinds     []Kind // of the certificates that this program may have, best first
	SystemDir string // "" = SystemDir
	Logger    *slog.Logger
}

// IsGiven reports whether anything was said.
func (c Choice) IsGiven() bool {
	return c.Dir != "" || c.Cert != "" || c.Key != "" || c.Authority != ""
}

// Files finds the certificates: those that were given, those that a control plane of this user on this host has
// announced, those of the system.
func (c Choice) Files() (Files, error) {
	switch {
	case c.Cert != "" || c.Key != "" || c.Authority != "":
		files := Files{
			Authority: c.Authority, Cert: c.Cert, Key: c.Key, Revoked: c.Revoked,
			IsRevokedNeeded: c.Revoked != "",
		}
		return files, nil
	case c.Dir != "":
		return Find(c.Dir, c.Kinds...)
	}
	if first, _, _ := strings.Cut(c.Control, ","); IsLoopback(first) {
		dir, err := Announced(first)
		if err != nil {
			return Files{}, err
		}
		if dir != "" {
			return Find(dir, c.Kinds...)
		}
	}
	dir := c.SystemDir
	dir = cmp.Or(dir, SystemDir)
	entries, err := os.ReadDir(dir)
	if isEmpty := err == nil && len(entries) == 0; !isEmpty && !errors.Is(err, os.ErrNotExist) { // empty: of a package
		return Find(dir, c.Kinds...)
	}
	return Files{}, fmt.Errorf("%w for control plane %s: give --tls-dir (farlog ca init makes certificates)",
		ErrNoCertificates, c.Control)
}

// Finder gives the keeper of the files that are found at each call: the same one as long as the files are the same
// ones.
func (c Choice) Finder() func() (*Keeper, error) {
	var held keeperSlot
	return func() (*Keeper, error) {
		files, err := c.Files()
		if err != nil {
			return nil, err
		}
		return held.of(files, c.Logger)
	}
}
