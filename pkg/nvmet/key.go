package nvmet

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
)

// Key is a secret of DH-HMAC-CHAP in its standard form, DHHC-1:HH:BASE64:, where HH says by which hash it is
// transformed (00 none, 01 SHA-256, 02 SHA-384, 03 SHA-512) and the base 64 holds the secret and its CRC-32. No way of
// printing it prints it; Reveal does.
type Key struct{ text string }

// hashes are those of DH-HMAC-CHAP: how the kernel calls one, the number in a key, and the length of a secret of that
// strength.
var hashes = []struct {
	name, kernel, number string
	secretLen            int
}{
	{"sha256", "hmac(sha256)", "01", 32},
	{"sha384", "hmac(sha384)", "02", 48},
	{"sha512", "hmac(sha512)", "03", 64},
}

// dhgroups are those of the specification, by the kernel's names. null: no Diffie-Hellman exchange.
var dhgroups = []string{"null", "ffdhe2048", "ffdhe3072", "ffdhe4096", "ffdhe6144", "ffdhe8192"}

const keyPrefix = "DHHC-1:"

// NewKey draws a secret of a hash's strength.
func NewKey(hash string) (Key, error) {
	for _, one := range hashes {
		if one.name == hash {
			secret := make([]byte, one.secretLen)
			rand.Read(secret)
			return formKey(one.number, secret), nil
		}
	}
	return Key{}, fmt.Errorf("hash %q: expected %s", hash, strings.Join(hashNames(), ", "))
}

func formKey(number string, secret []byte) Key {
	sum := binary.LittleEndian.AppendUint32(slices.Clone(secret), crc32.ChecksumIEEE(secret))
	return Key{keyPrefix + number + ":" + base64.StdEncoding.EncodeToString(sum) + ":"}
}

// ParseKey checks form, length and checksum. The error never has the key in it.
func ParseKey(text string) (Key, error) {
	errForm := errors.New("expected a key such as nvme gen-dhchap-key prints: DHHC-1:, two digits from 00 to 03, a " +
		"colon, base 64, a colon")
	number, encoded, ok := strings.Cut(strings.TrimPrefix(text, keyPrefix), ":")
	encoded, isEnded := strings.CutSuffix(encoded, ":")
	if !ok || !isEnded || !strings.HasPrefix(text, keyPrefix) ||
		!slices.Contains([]string{"00", "01", "02", "03"}, number) {
		return Key{}, errForm
	}
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return Key{}, errForm
	}
	secret := raw[:max(len(raw)-4, 0)]
	if !slices.Contains([]int{32, 48, 64}, len(secret)) {
		return Key{}, fmt.Errorf("the secret of the key has %d bytes: expected 32, 48 or 64", len(secret))
	}
	if crc32.ChecksumIEEE(secret) != binary.LittleEndian.Uint32(raw[len(secret):]) {
		return Key{}, errors.New("the checksum of the key does not match: a character was changed or lost")
	}
	return Key{text}, nil
}

// Reveal is the key itself, for the kernel and for the file of its owner.
func (k Key) Reveal() string { return k.text }

// IsNone tells that there is no key.
func (k Key) IsNone() bool { return k.text == "" }

func (k Key) String() string {
	if k.IsNone() {
		return "(none)"
	}
	return secretShown
}

// GoString keeps %#v from printing it.
func (k Key) GoString() string { return k.String() }

func hashNames() (names []string) {
	for _, one := range hashes {
		names = append(names, one.name)
	}
	return names
}

// kernelHash is the kernel's name of a hash.
func kernelHash(name string) string {
	for _, one := range hashes {
		if one.name == name {
			return one.kernel
		}
	}
	return name
}
