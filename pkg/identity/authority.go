package identity

import (
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/farlog/farlog/pkg/replace"
	"github.com/farlog/farlog/pkg/safefile"
)

const (
	// TrustDomainDefault is that of an authority that was not told another.
	TrustDomainDefault = "farlog"
	// ValidityDefault is how long a certificate is good for.
	ValidityDefault = 90 * 24 * time.Hour

	authorityValidity = 10 * 365 * 24 * time.Hour
	revokedValidity   = 10 * 365 * 24 * time.Hour
	clockSlack        = 5 * time.Minute // hosts' clocks differ
	serialBits        = 127
)

const (
	pemCert    = "CERTIFICATE"
	pemKey     = "PRIVATE KEY"
	pemRevoked = "X509 CRL"
)

// Authority signs certificates. Its own key lies in its directory and is read only to sign.
type Authority struct {
	Dir  string
	cert *x509.Certificate
	key  crypto.Signer
}

// Order is what a new certificate shall say.
type Order struct {
	Kind     Kind
	Name     string        // NameAny: good for any host
	Hosts    []string      // DNS names and addresses, for clients that check those: Prometheus, curl
	Validity time.Duration // 0 = ValidityDefault
}

// InitAuthority makes an authority with an empty list of revoked certificates. It changes nothing where there is one
// already.
func InitAuthority(dir, trustDomain string, now time.Time) (*Authority, error) {
	if err := CheckDomain(trustDomain); err != nil {
		return nil, err
	}
	for _, name := range []string{authorityCert, authorityKey} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			return nil, fmt.Errorf("authority in %q: %s is there already: give another directory, or issue from this "+
				"one (farlog ca issue)", dir, name)
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make directory %q: %w", dir, errors.Unwrap(err))
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("draw key: %w", err)
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "farlog authority " + trustDomain},
		URIs:      []*url.URL{{Scheme: "spiffe", Host: trustDomain}},
		NotBefore: now.Add(-clockSlack), NotAfter: now.Add(authorityValidity),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign authority: %w", err)
	}
	cert, err := x509.ParseCertificate(raw)
	if err != nil {
		return nil, err
	}
	a := &Authority{Dir: dir, cert: cert, key: key}
	// The certificate comes last: without it nobody takes what is there for an authority.
	if err := errors.Join(writeKey(filepath.Join(dir, authorityKey), key), a.writeRevoked(nil, now)); err != nil {
		return nil, err
	}
	return a, replace.File(filepath.Join(dir, authorityCert), encodePEM(pemCert, raw), 0o644)
}

// OpenAuthority reads one that InitAuthority made.
func OpenAuthority(dir string) (*Authority, error) {
	certs, err := readCerts(filepath.Join(dir, authorityCert))
	if err != nil {
		return nil, fmt.Errorf("authority in %q: %w (farlog ca init makes one)", dir, err)
	}
	path := filepath.Join(dir, authorityKey)
	if err := checkKeyMode(path); err != nil {
		return nil, err
	}
	raw, _, err := safefile.Read(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(raw)
	if block == nil || block.Type != pemKey {
		return nil, fmt.Errorf("key %q: expected PEM with a %s", path, pemKey)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	signer, ok := key.(crypto.Signer)
	if err != nil || !ok {
		return nil, fmt.Errorf("key %q: expected a PKCS #8 key that can sign", path)
	}
	if public, ok := signer.Public().(interface{ Equal(crypto.PublicKey) bool }); !ok ||
		!public.Equal(certs[0].PublicKey) {
		return nil, fmt.Errorf("key %q is not that of %s", path, filepath.Join(dir, authorityCert))
	}
	return &Authority{Dir: dir, cert: certs[0], key: signer}, nil
}

// TrustDomain is that of the ids in its certificates.
func (a *Authority) TrustDomain() string {
	if len(a.cert.URIs) == 1 && a.cert.URIs[0].Scheme == "spiffe" {
		return a.cert.URIs[0].Host
	}
	return TrustDomainDefault
}

// Issue signs a certificate with a new key and writes both into dir, with the authority's certificate and list of
// revoked ones beside them: all that a host of this kind needs. A pair that is there is replaced.
func (a *Authority) Issue(dir string, order Order, now time.Time) (*x509.Certificate, error) {
	if !slices.Contains(Kinds, order.Kind) {
		return nil, fmt.Errorf("kind %q: expected one of %v", order.Kind, Kinds)
	}
	if err := CheckName("name", order.Name); err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("draw key: %w", err)
	}
	template, err := a.template(order, now)
	if err != nil {
		return nil, err
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, fmt.Errorf("sign certificate: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make directory %q: %w", dir, errors.Unwrap(err))
	}
	files := In(dir, order.Kind)
	if err := errors.Join(a.copyTo(dir), writeKey(files.Key, key),
		replace.File(files.Cert, encodePEM(pemCert, raw), 0o644)); err != nil {
		return nil, err
	}
	return x509.ParseCertificate(raw)
}

func (a *Authority) template(order Order, now time.Time) (*x509.Certificate, error) {
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	id, err := url.Parse(string(NewID(a.TrustDomain(), order.Kind, order.Name)))
	if err != nil {
		return nil, err
	}
	validity := order.Validity
	validity = cmp.Or(validity, ValidityDefault)
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: string(order.Kind) + " " + order.Name},
		URIs:      []*url.URL{id},
		NotBefore: now.Add(-clockSlack), NotAfter: now.Add(validity),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if template.NotAfter.After(a.cert.NotAfter) {
		if validity > ValidityDefault { // which nobody has to have asked for
			return nil, fmt.Errorf("validity %s: expected no more than %s, when the authority in %q ends", validity,
				a.cert.NotAfter.UTC().Format(time.RFC3339), a.Dir)
		}
		template.NotAfter = a.cert.NotAfter
	}
	if order.Kind != KindAdmin && order.Kind != KindHost {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth) // its API or its metrics
	}
	for _, host := range order.Hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else if err := CheckName("host", host); err != nil {
			return nil, err
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return template, nil
}

// copyTo puts what every host needs beside its pair.
func (a *Authority) copyTo(dir string) error {
	if filepath.Clean(dir) == filepath.Clean(a.Dir) {
		return nil
	}
	revoked, err := os.ReadFile(filepath.Join(a.Dir, revokedName))
	if err != nil {
		return fmt.Errorf("list of revoked certificates: %w", err)
	}
	return errors.Join(replace.File(filepath.Join(dir, authorityCert), encodePEM(pemCert, a.cert.Raw), 0o644),
		replace.File(filepath.Join(dir, revokedName), revoked, 0o644))
}

// Renew gives every certificate of this authority in a directory a new key and a new time, with what it said before. It
// returns those that it made. before limits it to those that end before that time; zero: all.
func (a *Authority) Renew(dir string, validity time.Duration, before, now time.Time) ([]*x509.Certificate, error) {
	var made []*x509.Certificate
	for _, kind := range Kinds {
		certs, err := readCerts(In(dir, kind).Cert)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return made, err
		}
		old := certs[0]
		if old.CheckSignatureFrom(a.cert) != nil || !before.IsZero() && old.NotAfter.After(before) {
			continue
		}
		order, err := orderOf(old)
		if err != nil {
			return made, fmt.Errorf("%s: %w", In(dir, kind).Cert, err)
		}
		order.Validity = validity
		one, err := a.Issue(dir, order, now)
		if err != nil {
			return made, err
		}
		made = append(made, one)
	}
	return made, nil
}

// orderOf is what a certificate was made by.
func orderOf(cert *x509.Certificate) (Order, error) {
	id, err := IDOf(cert)
	if err != nil {
		return Order{}, err
	}
	kind, name, ok := id.Kind()
	if !ok {
		return Order{}, fmt.Errorf("id %s: expected %sDOMAIN%sKIND/NAME", id, scheme, kindPath)
	}
	order := Order{Kind: kind, Name: name, Hosts: slices.Clone(cert.DNSNames)}
	for _, ip := range cert.IPAddresses {
		order.Hosts = append(order.Hosts, ip.String())
	}
	return order, nil
}

func newSerial() (*big.Int, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), serialBits))
	if err != nil {
		return nil, fmt.Errorf("draw serial number: %w", err)
	}
	return serial.Add(serial, big.NewInt(1)), nil
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return replace.File(path, encodePEM(pemKey, raw), 0o600)
}

func encodePEM(kind string, raw []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw})
}

// readCerts reads a file of at least one certificate; the first is the process's own, or the authority's.
func readCerts(path string) ([]*x509.Certificate, error) {
	raw, _, err := safefile.Read(path)
	if err != nil {
		return nil, err
	}
	var certs []*x509.Certificate
	for block, rest := pem.Decode(raw); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != pemCert {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %q: %w", path, err)
		}
		certs = append(certs, cert)
	}
	if len(certs) == 0 {
		return nil, fmt.Errorf("certificate %q: expected PEM with a %s", path, pemCert)
	}
	return certs, nil
}

// readRevoked reads the list of one of the authorities.
func readRevoked(path string, authorities []*x509.Certificate) (*x509.RevocationList, error) {
	raw, _, err := safefile.Read(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(raw)
	if block == nil || block.Type != pemRevoked {
		return nil, fmt.Errorf("list of revoked certificates %q: expected PEM with an %s", path, pemRevoked)
	}
	list, err := x509.ParseRevocationList(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("list of revoked certificates %q: %w", path, err)
	}
	for _, authority := range authorities {
		if list.CheckSignatureFrom(authority) == nil {
			return list, nil
		}
	}
	return nil, fmt.Errorf("list of revoked certificates %q is signed by none of the authorities (%s)", path,
		strings.TrimSpace(authorities[0].Subject.CommonName))
}
