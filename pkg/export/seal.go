package export

import (
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
)

const (
	sealFormat   = "farlog-bundle-seal"
	sealVersion  = 1
	sealBytesMax = 1 << 16
)

// seal is what seal.json says: the hash of bundle.json, and a signature of it where a key was given.
type seal struct {
	Format    string `json:"format"`
	Version   int    `json:"version"`
	SHA256    string `json:"sha256"`
	PublicKey string `json:"public_key"` // hexadecimal; "" = not signed
	Signature string `json:"signature"`  // Ed25519 over the bytes of bundle.json
}

func newSeal(bundle []byte, key ed25519.PrivateKey) seal {
	digest := sha256.Sum256(bundle)
	s := seal{Format: sealFormat, Version: sealVersion, SHA256: hex.EncodeToString(digest[:])}
	if key != nil {
		s.PublicKey = hex.EncodeToString(key.Public().(ed25519.PublicKey))
		s.Signature = hex.EncodeToString(ed25519.Sign(key, bundle))
	}
	return s
}

// check gives the key that has signed; nil: none has.
func (s seal) check(bundle []byte) (ed25519.PublicKey, error) {
	digest := sha256.Sum256(bundle)
	switch {
	case s.Format != sealFormat || s.Version != sealVersion:
		return nil, fmt.Errorf("format %q version %d, expected %q version %d", s.Format, s.Version, sealFormat,
			sealVersion)
	case s.SHA256 != hex.EncodeToString(digest[:]):
		return nil, fmt.Errorf("SHA-256 of %s is %x, the seal says %s", BundleFile, digest, s.SHA256)
	case s.PublicKey == "" && s.Signature == "":
		return nil, nil
	}
	public, errKey := hex.DecodeString(s.PublicKey)
	signature, errSignature := hex.DecodeString(s.Signature)
	isForm := hex.EncodeToString(public) == s.PublicKey && hex.EncodeToString(signature) == s.Signature
	if err := errors.Join(errKey, errSignature); err != nil || !isForm || len(public) != ed25519.PublicKeySize {
		return nil, errors.New("expected a public key and a signature in hexadecimal, a to f as small letters")
	}
	if !ed25519.Verify(public, bundle, signature) {
		return nil, fmt.Errorf("signature of %s does not match", BundleFile)
	}
	return public, nil
}

// ReadKey reads a private key that signs bundles: Ed25519, PKCS#8, PEM. Errors: ErrInvalid, or of the file system.
func ReadKey(name string) (ed25519.PrivateKey, error) {
	raw, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(raw)
	if block == nil {
		return nil, fmt.Errorf("%w: key %s: it is not PEM: expected an Ed25519 key, such as openssl genpkey "+
			"-algorithm ed25519 makes", ErrInvalid, name)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%w: key %s: %w", ErrInvalid, name, err)
	}
	private, isEd25519 := key.(ed25519.PrivateKey)
	if !isEd25519 {
		return nil, fmt.Errorf("%w: key %s: %T, expected an Ed25519 key", ErrInvalid, name, key)
	}
	return private, nil
}
