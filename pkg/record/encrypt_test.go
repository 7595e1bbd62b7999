package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"regexp"
	"strings"
	"testing"
)

var (
	testKey     = NewEncryptionKey([EncryptionKeyLen]byte{0: 0, 1: 1, 2: 2, 30: 30, 31: 31})
	testOpening = [openingLen]byte{0xA0, 0xA1, 0xA2, 15: 0xAF}
)

// encrypted is a record as the C core encrypts it.
func encrypted(t *testing.T, key EncryptionKey, opening [openingLen]byte, h Header, recordKey, payload []byte,
	id Identity,
) []byte {
	t.Helper()
	h.Flags |= FlagEncrypted
	first := [4]byte{2: schemeAES256GCM}
	binary.LittleEndian.PutUint16(first[:], uint16(len(recordKey)))
	body := make([]byte, len(recordKey)+len(payload)+EnvelopeLen)
	raw, err := AppendTo(nil, h, nil, body, id)
	if err != nil {
		t.Fatal(err)
	}
	rec, err := Decode(raw, id)
	if err != nil {
		t.Fatal(err)
	}
	aead, err := key.aeadOf(derivation{id: key.id, opening: opening, salt: id.Salt})
	if err != nil {
		t.Fatal(err)
	}
	nonce, header := rec.nonceAndHeader(first)
	sealed := aead.Seal(nil, nonce, append(bytes.Clone(recordKey), payload...), header)
	body = append(append(append(append(body[:0], sealed...), opening[:]...), key.id[:]...), first[:]...)
	if raw, err = AppendTo(nil, h, nil, body, id); err != nil {
		t.Fatal(err)
	}
	return raw
}

func encryptedRecord(t *testing.T, mutate func(raw []byte)) Record {
	t.Helper()
	id := Identity{Salt: goldenSalt, Align: 64, RecordLenMax: 1024}
	raw := encrypted(t, testKey, testOpening, Header{LSN: 640, Epoch: 3, Seq: 9, TimestampNS: 1763700000123456789},
		[]byte("KEY1"), []byte("a payload"), id)
	if mutate != nil {
		mutate(raw)
	}
	rec, err := Decode(raw, id)
	if mutate == nil && err != nil {
		t.Fatal(err)
	}
	return rec
}

func TestDecrypt(t *testing.T) {
	other := NewEncryptionKey([EncryptionKeyLen]byte{1})
	rec := encryptedRecord(t, nil)
	if rec.KeyID() != testKey.ID() || rec.Flags.IsControl() || rec.Flags.String() != "ENCRYPTED" {
		t.Fatalf("key id %s, flags %s", rec.KeyID(), rec.Flags)
	}
	plain, err := NewDecrypter([]EncryptionKey{other, testKey}).Decrypt(rec)
	if err != nil || string(plain.Key) != "KEY1" || string(plain.Payload) != "a payload" {
		t.Fatalf("%q %q: %v", plain.Key, plain.Payload, err)
	}
	if !bytes.Equal(plain.Raw, rec.Raw) || plain.Header != rec.Header {
		t.Fatal("the stored record was changed")
	}
	for _, keys := range [][]EncryptionKey{nil, {other}} {
		if _, err = NewDecrypter(keys).Decrypt(rec); !errors.Is(err, ErrNoKey) || !strings.Contains(err.Error(),
			"lsn 640, epoch 3: no key that was given decrypts it: it is encrypted with key "+testKey.ID()) {
			t.Fatal(err)
		}
	}
	if strings.Contains(testKey.String(), "0001") || len(testKey.ID()) != 16 {
		t.Fatalf("a key is shown: %s", testKey)
	}
}

// Every bit of what is encrypted, of the envelope and of the header: whoever changes one makes the CRC right again.
func TestDecrypt_AnyBitChanged(t *testing.T) {
	id := Identity{Salt: goldenSalt, Align: 64, RecordLenMax: 1024}
	sound := encryptedRecord(t, nil)
	end := HeaderLen + len(sound.Payload)
	decrypter := NewDecrypter([]EncryptionKey{testKey})
	for bit := range 8 * end {
		if at := bit / 8; at < 8 || at >= crcOffset && at < HeaderLen {
			continue // what makes it a record at all, and the CRC
		}
		raw := bytes.Clone(sound.Raw)
		raw[bit/8] ^= 1 << (bit % 8)
		header, err := ParseHeader(raw)
		if err != nil || header.bodyLen() > len(raw)-OverheadLen {
			continue // no record
		}
		body := raw[HeaderLen : HeaderLen+header.bodyLen()]
		binary.LittleEndian.PutUint32(raw[crcOffset:], bodyCRC(raw, body, id))
		keyLen := int(header.KeyLen)
		header.CRC = binary.LittleEndian.Uint32(raw[crcOffset:])
		_, err = decrypter.Decrypt(Record{header, body[:min(keyLen, len(body))], body[min(keyLen, len(body)):], raw})
		if !errors.Is(err, ErrDecrypt) && !errors.Is(err, ErrNoKey) {
			t.Fatalf("bit %d of byte %d: %v", bit%8, bit/8, err)
		}
	}
}

// Without a key anybody who can write to a ring or a store makes records that are not encrypted, with a CRC that is
// right. None is taken for one of an encrypted stream: by what was seen of it, by what its ring says, and where keys
// were given for just this stream.
func TestDecrypt_ClearRecordOfEncryptedStream(t *testing.T) {
	record := func(salt, lsn uint64, flags Flags) Record {
		id := Identity{Salt: salt, Align: 64, RecordLenMax: 1024}
		raw, err := AppendTo(nil, Header{LSN: lsn, Epoch: 3, Flags: flags}, nil, []byte("forged"), id)
		if err != nil {
			t.Fatal(err)
		}
		rec, err := Decode(raw, id)
		if err != nil {
			t.Fatal(err)
		}
		return rec
	}
	sound, clear := encryptedRecord(t, nil), record(goldenSalt, 1280, 0)
	heartbeat, other := record(goldenSalt, 1280, FlagHeartbeat), record(goldenSalt+1, 1280, 0)
	for _, test := range []struct {
		name     string
		expected bool // by its ring
		refused  bool // by the keys
		given    []Record
		want     string // of the last one; "" = it is taken
	}{
		{"after an encrypted one", false, false, []Record{sound, clear}, "lsn 1280, epoch 3: .* it is not encrypted"},
		{"before an encrypted one", false, false, []Record{clear, sound}, "lsn 640, epoch 3: .* it is encrypted, and"},
		{"of an encrypted ring", true, false, []Record{clear}, "it is not encrypted"},
		{"with keys for its stream", false, true, []Record{clear}, "it is not encrypted"},
		{"farlog's own", true, true, []Record{sound, heartbeat}, ""},
		{"of another stream", true, false, []Record{sound, other}, ""},
		{"of a stream that is not encrypted", false, false, []Record{clear, clear}, ""},
	} {
		d := NewDecrypter([]EncryptionKey{testKey})
		d.IsClearRefused = test.refused
		if test.expected {
			d.ExpectEncrypted(goldenSalt)
		}
		for i, rec := range test.given {
			_, err := d.Decrypt(rec)
			switch isLast := i == len(test.given)-1; {
			case !isLast || test.want == "":
				if err != nil {
					t.Errorf("%s: %v", test.name, err)
				}
			case !errors.Is(err, ErrDecrypt) || !regexp.MustCompile(test.want).MatchString(err.Error()):
				t.Errorf("%s: %v, expected %s", test.name, err, test.want)
			}
		}
	}
}

func TestParseEncryptionKeys(t *testing.T) {
	line := strings.Repeat("0f", EncryptionKeyLen)
	keys, err := ParseEncryptionKeys([]byte("# of this year\n" + line + "\r\n\n" + strings.ToUpper(line) + "  "))
	if err != nil || len(keys) != 2 || keys[0] != keys[1] {
		t.Fatalf("%v, %v", keys, err)
	}
	for text, want := range map[string]string{
		"":                            "it holds 0 keys",
		line + "\n" + line + "0":      "line 2: 65 characters that are no key",
		"\n0g" + line[2:]:             "line 2: 64 characters that are no key",
		strings.Repeat(line+"\n", 65): "it holds 65 keys: expected 1 to 64",
		line[:62]:                     "line 1: 62 characters",
	} {
		if _, err := ParseEncryptionKeys([]byte(text)); err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "0f0f") {
			t.Errorf("%v, expected %s", err, want)
		}
	}
}

// addEncrypted adds the record with a key once more, encrypted.
func (g *golden) addEncrypted(t *testing.T) {
	r := goldenRecords()[1]
	r.file = "record_encrypted.bin"
	raw := encrypted(t, testKey, testOpening, r.header, r.key, r.body, r.id)
	rec, err := Decode(raw, r.id)
	if err != nil {
		t.Fatal(err)
	}
	r.header.Flags, r.key, r.body = FlagEncrypted, nil, rec.Payload
	plain := goldenRecords()[1]
	g.addRecord(t, r)
	g.sayPlain(r.file, plain.key, plain.body)
}

func (g *golden) sayPlain(file string, key, payload []byte) {
	g.write(file, "encryption_key", hexOf(testKey.bytes[:]))
	g.write(file, "plain_key", hexOf(key))
	g.write(file, "plain_payload", hexOf(payload))
}
