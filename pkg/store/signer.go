package store

import (
	"crypto/ed25519"
	"fmt"
	"sync"
	"time"
)

// Signer signs with a private key that this process does not have, such as that of a hardware security module.
type Signer interface {
	// Public is the key that checks the signatures; nil: that of the store. A new store needs it.
	Public() ed25519.PublicKey
	// Sign gives the Ed25519 signature of a statement, or an error, after a bounded time. Many goroutines may call it.
	Sign(statement []byte) ([]byte, error)
}

// After a failure nothing is signed for a pause, so that who waits for a signature does not wait again and again.
const (
	signPauseMin = time.Second
	signPauseMax = time.Minute
)

// signing is what a store, and all that are derived from it, know of their signer.
type signing struct {
	now func() time.Time

	mutex   sync.Mutex
	failure error // why the last attempt failed; nil: it did not
	pause   time.Duration
	retryAt time.Time
}

// resting gives the failure until it is time to try again.
func (x *signing) resting() error {
	x.mutex.Lock()
	defer x.mutex.Unlock()
	if x.failure == nil || !x.now().Before(x.retryAt) {
		return nil
	}
	return x.failure
}

func (x *signing) note(err error) {
	x.mutex.Lock()
	defer x.mutex.Unlock()
	x.failure = err
	if err == nil {
		x.pause = 0
		return
	}
	x.pause = min(max(2*x.pause, signPauseMin), signPauseMax)
	x.retryAt = x.now().Add(x.pause)
}

// SigningFailure says why the last attempt to sign failed; nil when it did not. Appenders go on meanwhile: their
// segments grow beyond the configured size.
func (s *Store) SigningFailure() error {
	s.signing.mutex.Lock()
	defer s.signing.mutex.Unlock()
	return s.signing.failure
}

// Sign signs a statement about the store with its newest key. After a failure it gives the same error at once for a
// pause of up to a minute. Errors: ErrSigning, with the cause: only who may append may sign.
func (s *Store) Sign(statement []byte) ([]byte, error) {
	signature, _, err := s.signAtLeast(statement, 0)
	return signature, err
}

// signAtLeast signs with no older key than the one with that number, and says with which.
func (s *Store) signAtLeast(statement []byte, least uint64) (signature []byte, number uint64, err error) {
	if err := s.signing.resting(); err != nil {
		return nil, 0, err
	}
	signature, err = s.trySign(statement)
	if err == nil {
		number, err = s.keyNumber(statement, signature)
	}
	switch {
	case err != nil:
	case number == 0:
		err = fmt.Errorf("%w: the signature that was made is of no key of the store, expected one of key %s: "+
			"check the key or the signing command", ErrInvalid, KeyID(s.Keys()[len(s.Keys())-1]))
	case number < least:
		err = fmt.Errorf("%w: it is signed by key %d of the store already, and key %d is here: give the newer one",
			ErrInvalid, least, number)
	default:
		err = s.makeDurable(number)
	}
	if err != nil {
		err = fmt.Errorf("%w: store %s: %w", ErrSigning, s.dir, err)
	}
	s.signing.note(err)
	return signature, number, err
}

func (s *Store) trySign(statement []byte) ([]byte, error) {
	if s.options.Signer != nil {
		if err := s.CheckKey(); err != nil {
			return nil, err
		}
		return s.options.Signer.Sign(statement)
	}
	key, err := s.privateKey()
	if err != nil {
		return nil, err
	}
	return ed25519.Sign(key, statement), nil
}
