package store

import (
	"crypto/ed25519"
	"fmt"
	"slices"
)

// signedAfter checks a chain of signatures: each is of a trusted key of the store, and of no older one than the one
// before. last is the number of that key.
func (v *verifier) signedAfter(last *uint64) checker {
	return func(statement, signature []byte) error {
		number, err := v.store.keyNumber(statement, signature)
		if err != nil {
			return err
		}
		if number == 0 {
			return errUnknownKey
		}
		key := v.store.Keys()[number-1]
		isKey := func(trusted ed25519.PublicKey) bool { return trusted.Equal(key) }
		if len(v.options.PublicKeys) > 0 && !slices.ContainsFunc(v.options.PublicKeys, isKey) {
			return fmt.Errorf("key %d of the store, %s, has made it, which is none of the public keys that were given",
				number, KeyID(key))
		}
		if number < *last {
			return fmt.Errorf("key %d of the store has made it, and key %d the one before", number, *last)
		}
		*last = number
		return nil
	}
}

// noteKey reports from which segment on another key signed.
func (v *verifier) noteKey(h segmentHeader) {
	if keys := v.report.Keys; !h.isSigned() || len(keys) > 0 && keys[len(keys)-1].Number == v.headerKey {
		return
	}
	v.report.Keys = append(v.report.Keys, KeyReport{
		Number: v.headerKey, ID: KeyID(v.store.Keys()[v.headerKey-1]), Segment: h.Number,
	})
}
