package record

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// Encryption is how key and payload of an application's records are written.
type Encryption uint32

// The ways there are (docs/reference/format-encryption.md).
const (
	EncryptionNone      Encryption = 0
	EncryptionAES256GCM Encryption = 1
)

var encryptionNames = [...]string{"none", "aes-256-gcm"}

func (e Encryption) String() string {
	if int(e) < len(encryptionNames) {
		return encryptionNames[e]
	}
	return fmt.Sprintf("encryption(%d)", uint32(e))
}

// ParseEncryption is the inverse of Encryption.String.
func ParseEncryption(text string) (Encryption, error) {
	for number, name := range encryptionNames {
		if name == text {
			return Encryption(number), nil
		}
	}
	return 0, fmt.Errorf("encryption %q: expected %s", text, strings.Join(encryptionNames[:], " or "))
}

// Lengths of what encrypts a record.
const (
	EncryptionKeyLen   = 32
	EncryptionKeyIDLen = 8
	EnvelopeLen        = 44 // behind the ciphertext

	openingLen       = 16
	tagLen           = 16
	envelopeOpening  = tagLen
	envelopeKeyID    = envelopeOpening + openingLen
	envelopeKeyLen   = envelopeKeyID + EncryptionKeyIDLen
	envelopeScheme   = envelopeKeyLen + 2
	schemeAES256GCM  = 1
	encryptionKeyMax = 64
	keyIDText        = "farlog key id"
	keyInfoText      = "farlog aes-256-gcm"
)

// Why an encrypted record cannot be decrypted; use errors.Is.
var (
	ErrNoKey   = errors.New("no key that was given decrypts it")
	ErrDecrypt = errors.New("header, key or payload is not what was encrypted")
)

// EncryptionKey is a key of encrypted streams.
type EncryptionKey struct {
	id    [EncryptionKeyIDLen]byte
	bytes [EncryptionKeyLen]byte
}

// NewEncryptionKey makes a key of its bytes.
func NewEncryptionKey(raw [EncryptionKeyLen]byte) EncryptionKey {
	mac := hmac.New(sha256.New, raw[:])
	mac.Write([]byte(keyIDText))
	return EncryptionKey{id: [EncryptionKeyIDLen]byte(mac.Sum(nil)), bytes: raw}
}

// ID is what records name the key by: 16 hexadecimal digits of a hash.
func (k EncryptionKey) ID() string { return hex.EncodeToString(k.id[:]) }

// String is the id: a key is shown to nobody.
func (k EncryptionKey) String() string { return "key " + k.ID() }

// GoString is String.
func (k EncryptionKey) GoString() string { return k.String() }

// ParseEncryptionKeys reads the content of a key file: a key of 64 hexadecimal digits a line, the first of which
// encrypts; empty lines and those that begin with # are passed over. Errors give the number of a line, and nothing that
// is in it.
func ParseEncryptionKeys(text []byte) (keys []EncryptionKey, err error) {
	for number, line := range bytes.Split(text, []byte("\n")) {
		line = bytes.TrimRight(line, " \t\r")
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		var raw [EncryptionKeyLen]byte
		if n, err := hex.Decode(raw[:], line[:min(len(line), 2*len(raw))]); err != nil || n != len(raw) ||
			len(line) != 2*len(raw) {
			return nil, fmt.Errorf("line %d: %d characters that are no key: expected %d hexadecimal digits, such as "+
				"openssl rand -hex %d prints", number+1, len(line), 2*len(raw), len(raw))
		}
		keys = append(keys, NewEncryptionKey(raw))
	}
	if len(keys) == 0 || len(keys) > encryptionKeyMax {
		return nil, fmt.Errorf("it holds %d keys: expected 1 to %d, of %d hexadecimal digits a line", len(keys),
			encryptionKeyMax, 2*EncryptionKeyLen)
	}
	return keys, nil
}

// IsEncrypted reports whether key and payload are encrypted: Payload then is the ciphertext of both and an envelope.
func (h Header) IsEncrypted() bool { return h.Flags&FlagEncrypted != 0 }

// Decrypter decrypts the records of any streams. One goroutine at a time. Of a stream of which it has seen an encrypted
// record, by its salt, it takes no application's record that is not encrypted: making such a record needs no key.
type Decrypter struct {
	// IsClearRefused: no application's record that is not encrypted is taken of any stream.
	IsClearRefused bool

	keys    []EncryptionKey
	seen    map[uint64]bool // by salt: are the application's records encrypted?
	opening derivation      // that of aead
	aead    cipher.AEAD
}

// derivation is what the key of an opening is derived from.
type derivation struct {
	id      [EncryptionKeyIDLen]byte
	opening [openingLen]byte
	salt    uint64
}

// NewDecrypter makes one with these keys; none is right for who meets no encrypted records.
func NewDecrypter(keys []EncryptionKey) *Decrypter {
	return &Decrypter{keys: keys, seen: map[uint64]bool{}}
}

// ExpectEncrypted: the ring with this salt is encrypted.
func (d *Decrypter) ExpectEncrypted(salt uint64) { d.seen[salt] = true }

// salt is that of the record's stream: its trailer was checked.
func (r Record) salt() uint64 {
	return binary.LittleEndian.Uint64(r.Raw[len(r.Raw)-TrailerLen:]) ^ r.LSN
}

// checkSeen: the application's records of one ring are encrypted, or none of them is.
func (d *Decrypter) checkSeen(r Record) error {
	if len(r.Raw) < OverheadLen {
		return fmt.Errorf("%w: %d bytes, expected a whole record", ErrDecrypt, len(r.Raw))
	}
	wasEncrypted, isSeen := d.seen[r.salt()]
	if !isSeen {
		wasEncrypted = r.IsEncrypted()
		d.seen[r.salt()] = wasEncrypted
	}
	switch {
	case !r.IsEncrypted() && (wasEncrypted || d.IsClearRefused):
		return fmt.Errorf("%w: it is not encrypted, expected all records of this stream to be: somebody without a key "+
			"wrote it; read a stream or a generation that was not encrypted without a key", ErrDecrypt)
	case r.IsEncrypted() && !wasEncrypted:
		return fmt.Errorf("%w: it is encrypted, and records of the same ring before it were not: somebody without a "+
			"key wrote those", ErrDecrypt)
	}
	return nil
}

// envelope is what stands behind the ciphertext.
type envelope struct {
	derivation
	sealed []byte // ciphertext and tag
	first  [4]byte
	keyLen int
}

func (r Record) envelope() (envelope, error) {
	at := len(r.Payload) - EnvelopeLen
	if at < 0 || len(r.Key) != 0 || len(r.Raw) < OverheadLen {
		return envelope{}, fmt.Errorf("%w: clear key of %d and payload of %d bytes, expected no key and at least %d "+
			"bytes", ErrDecrypt, len(r.Key), len(r.Payload), EnvelopeLen)
	}
	raw := r.Payload[at:]
	e := envelope{
		derivation: derivation{
			id:      [EncryptionKeyIDLen]byte(raw[envelopeKeyID:]),
			opening: [openingLen]byte(raw[envelopeOpening:]),
			salt:    r.salt(),
		},
		sealed: r.Payload[:at+tagLen],
		first:  [4]byte(raw[envelopeKeyLen:]),
		keyLen: int(binary.LittleEndian.Uint16(raw[envelopeKeyLen:])),
	}
	if scheme := binary.LittleEndian.Uint16(raw[envelopeScheme:]); scheme != schemeAES256GCM {
		return envelope{}, fmt.Errorf("%w: scheme %d, expected %d", ErrDecrypt, scheme, schemeAES256GCM)
	}
	if e.keyLen > at {
		return envelope{}, fmt.Errorf("%w: a key of %d bytes in a ciphertext of %d", ErrDecrypt, e.keyLen, at)
	}
	return e, nil
}

// KeyID is the id of the key that a record is encrypted with; "" = none that can be read.
func (r Record) KeyID() string {
	if e, err := r.envelope(); r.IsEncrypted() && err == nil {
		return hex.EncodeToString(e.id[:])
	}
	return ""
}

// aeadOf derives the key of an opening.
func (k EncryptionKey) aeadOf(d derivation) (cipher.AEAD, error) {
	info := binary.LittleEndian.AppendUint64([]byte(keyInfoText), d.salt)
	derived, err := hkdf.Key(sha256.New, k.bytes[:], d.opening[:], string(info), EncryptionKeyLen)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(derived)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// takeKey makes aead that of the record's opening.
func (d *Decrypter) takeKey(of derivation) error {
	if d.aead != nil && d.opening == of {
		return nil
	}
	for _, key := range d.keys {
		if key.id != of.id {
			continue
		}
		aead, err := key.aeadOf(of)
		if err == nil {
			d.aead, d.opening = aead, of
		}
		return err
	}
	return fmt.Errorf("%w: it is encrypted with key %x, and none of the %d keys given has that id", ErrNoKey, of.id,
		len(d.keys))
}

// nonceAndHeader are what the ciphertext is bound to.
func (r Record) nonceAndHeader(first [4]byte) (nonce, header []byte) {
	nonce = binary.LittleEndian.AppendUint64(nil, r.LSN)
	nonce = binary.LittleEndian.AppendUint32(nonce, uint32(r.TimestampNS))
	header = append(bytes.Clone(r.Raw[:crcOffset]), first[:]...)
	return nonce, header
}

// Decrypt gives a record with Key and Payload as they were appended, in memory of their own; Raw and header stay those
// of the stored record. farlog's own records, and those of streams that are not encrypted, are given back as they are.
// Errors: ErrNoKey, ErrDecrypt.
func (d *Decrypter) Decrypt(r Record) (Record, error) {
	if r.Flags.IsControl() {
		return r, nil
	}
	if err := d.checkSeen(r); err != nil {
		return r, fmt.Errorf("record at lsn %d, epoch %d: %w", r.LSN, r.Epoch, err)
	}
	if !r.IsEncrypted() {
		return r, nil
	}
	e, err := r.envelope()
	if err == nil {
		err = d.takeKey(e.derivation)
	}
	if err != nil {
		return r, fmt.Errorf("record at lsn %d, epoch %d: %w", r.LSN, r.Epoch, err)
	}
	nonce, header := r.nonceAndHeader(e.first)
	plain, err := d.aead.Open(nil, nonce, e.sealed, header)
	if err != nil {
		return r, fmt.Errorf("record at lsn %d, epoch %d: %w: it was changed, or put in the place of another one",
			r.LSN, r.Epoch, ErrDecrypt)
	}
	r.Key, r.Payload = plain[:e.keyLen:e.keyLen], plain[e.keyLen:]
	return r, nil
}
