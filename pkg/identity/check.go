package identity

import (
	"crypto/x509"
	"errors"
	"fmt"
	"sync"
	"time"
)

// goodChainsMax bounds what is kept of connections that are gone.
const goodChainsMax = 4096

// goodChains are those of connections that were found good by one material, so that each call and each look at a watch
// does not verify signatures again: with some hundred connections that were a tenth of a core. It goes with its
// material, that is with each change of an authority or of the list.
type goodChains struct {
	mutex sync.Mutex
	spans map[**x509.Certificate]span // by where a connection keeps its chain
}

// span is the time in which a chain is good.
type span struct{ from, until time.Time }

func (s span) has(now time.Time) bool { return !now.Before(s.from) && !now.After(s.until) }

func (g *goodChains) has(chain []*x509.Certificate, now time.Time) bool {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	found, ok := g.spans[&chain[0]]
	return ok && found.has(now)
}

func (g *goodChains) keep(chain []*x509.Certificate, good span) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if g.spans == nil || len(g.spans) >= goodChainsMax {
		g.spans = map[**x509.Certificate]span{}
	}
	g.spans[&chain[0]] = good
}

// checkAgain is check of a connection that was let in: the chain is where the connection keeps it.
func (m *material) checkAgain(chain []*x509.Certificate, usage x509.ExtKeyUsage, now time.Time) error {
	if len(chain) > 0 && m.good.has(chain, now) {
		return nil
	}
	good, err := m.verify(chain, usage, now)
	if err == nil {
		m.good.keep(chain, good)
	}
	return err
}

// check finds out whether a peer's certificates are good now: of our authority, in their time, for this use, not
// revoked.
func (m *material) check(chain []*x509.Certificate, usage x509.ExtKeyUsage, now time.Time) error {
	_, err := m.verify(chain, usage, now)
	return err
}

// verify is check that tells in what time it would say the same.
func (m *material) verify(chain []*x509.Certificate, usage x509.ExtKeyUsage, now time.Time) (span, error) {
	if len(chain) == 0 {
		return span{}, errors.New("no certificate was given")
	}
	intermediates := x509.NewCertPool()
	for _, one := range chain[1:] {
		intermediates.AddCert(one)
	}
	chains, err := chain[0].Verify(x509.VerifyOptions{
		Roots: m.roots, Intermediates: intermediates, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage},
	})
	if err != nil {
		return span{}, fmt.Errorf("certificate of %s: %w", nameOf(chain[0]), err)
	}
	for _, one := range chain {
		if m.revoked[string(one.RawIssuer)+one.SerialNumber.String()] {
			return span{}, fmt.Errorf("certificate of %s is revoked", nameOf(one))
		}
	}
	return common(chains[0]), nil
}

// common is the time in which all certificates of a way to an authority are good.
func common(way []*x509.Certificate) span {
	s := span{from: way[0].NotBefore, until: way[0].NotAfter}
	for _, one := range way[1:] {
		if one.NotBefore.After(s.from) {
			s.from = one.NotBefore
		}
		if one.NotAfter.Before(s.until) {
			s.until = one.NotAfter
		}
	}
	return s
}
