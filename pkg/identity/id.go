// Package identity says who a process of farlog is, by its certificate, and finds out who another one is: an authority
// of its own, certificates that are read again when their files change, a list of the revoked ones, and the two ends of
// a mutual TLS connection. It decides nothing about what somebody may do; package control/access does.
package identity

import (
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
)

// Kind is what a process is, as its certificate says.
type Kind string

// The kinds, each with a certificate of its own: KIND.crt and KIND.key.
const (
	KindControl Kind = "control"
	KindTarget  Kind = "target"
	KindDrain   Kind = "drain"
	KindHost    Kind = "host"    // a trading host: its writers and readers
	KindReplica Kind = "replica" // copies the store of another site
	KindAdmin   Kind = "admin"
)

// Kinds lists them all.
var Kinds = []Kind{KindControl, KindTarget, KindDrain, KindHost, KindReplica, KindAdmin}

// NameAny is the name in a certificate that is good for any host.
const NameAny = "any"

const (
	scheme = "spiffe://"
	// kindPath stands before kind and name in the ids of our own authority, so that no other one's id means a kind by
	// accident.
	kindPath = "/farlog/"
)

// ID is who somebody is: the SPIFFE id among the URIs of a certificate; where there is none dns: and its first DNS
// name, or cn: and its common name.
type ID string

// NewID makes the id of a process: spiffe://DOMAIN/farlog/KIND/NAME.
func NewID(trustDomain string, kind Kind, name string) ID {
	return ID(scheme + trustDomain + kindPath + string(kind) + "/" + name)
}

// IDOf reads a certificate. More than one SPIFFE id makes it nobody's, as the SPIFFE standard has it.
func IDOf(certificate *x509.Certificate) (ID, error) {
	var found []string
	for _, uri := range certificate.URIs {
		if uri.Scheme == "spiffe" {
			found = append(found, uri.String())
		}
	}
	switch {
	case len(found) == 1:
		return ID(found[0]), nil
	case len(found) > 1:
		return "", fmt.Errorf("certificate has %d SPIFFE ids: expected at most one", len(found))
	case len(certificate.DNSNames) > 0:
		return ID("dns:" + certificate.DNSNames[0]), nil
	case certificate.Subject.CommonName != "":
		return ID("cn:" + certificate.Subject.CommonName), nil
	}
	return "", fmt.Errorf("certificate names nobody: expected a SPIFFE id among its URIs, a DNS name or a common name")
}

// Kind is what our own authority says of an id; false for the ids of others.
func (id ID) Kind() (kind Kind, name string, ok bool) {
	rest, ok := strings.CutPrefix(string(id), scheme)
	if !ok {
		return "", "", false
	}
	_, path, _ := strings.Cut(rest, "/")
	path, ok = strings.CutPrefix("/"+path, kindPath)
	if !ok {
		return "", "", false
	}
	first, name, ok := strings.Cut(path, "/")
	if !ok || name == "" || !slices.Contains(Kinds, Kind(first)) {
		return "", "", false
	}
	return Kind(first), name, true
}

// CheckName checks what an id may have for a trust domain or a name.
func CheckName(what, name string) error {
	isForeign := func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("._-", r))
	}
	if name == "" || len(name) > 128 || strings.IndexFunc(name, isForeign) >= 0 {
		return fmt.Errorf("%s %q: expected 1 to 128 letters, digits, '.', '_' or '-'", what, name)
	}
	return nil
}

// CheckDomain checks a trust domain: SPIFFE has small letters there.
func CheckDomain(name string) error {
	if name != strings.ToLower(name) {
		return fmt.Errorf("trust domain %q: expected small letters", name)
	}
	return CheckName("trust domain", name)
}
