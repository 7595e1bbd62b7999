package consume_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farlog/farlog/pkg/consume"
	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/record"
)

// Whoever can write to an encrypted ring, and has no key, puts a record of his own in the place of another one: nobody
// gets it, with keys or without, and a consumer ends before it.
func TestConsumer_ClearRecordInEncryptedRing(t *testing.T) {
	dir := t.TempDir()
	path, keyFile := filepath.Join(dir, "a.ring"), filepath.Join(dir, "key")
	key := record.NewEncryptionKey([record.EncryptionKeyLen]byte{1})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(keyFile, []byte("01"+strings.Repeat("00", record.EncryptionKeyLen-1)), 0o600))
	must(farlog.Format("mem:"+path, farlog.FormatOptions{
		SizeBytes: record.DataOffset + 64<<10, StreamName: "desk7/orders", Encryption: record.EncryptionAES256GCM,
	}))
	writer, err := farlog.OpenWriter("mem:"+path, farlog.WriterOptions{
		CountersDir: "none", Level: farlog.LevelPosted, KeyFile: keyFile,
	})
	must(err)
	for range 3 {
		_, err := writer.Append(farlog.Entry{Data: []byte("buy 100")}, waitMax)
		must(err)
	}
	status, err := farlog.Inspect("mem:" + path)
	must(err)
	must(writer.Close())
	lsn := forgeSecond(t, path, record.Identity{
		Salt: status.Salt, Align: status.Align, RecordLenMax: status.RecordLenMax,
	})
	for _, keys := range [][]record.EncryptionKey{{key}, nil} {
		consumer, err := consume.Open(consume.Config{
			RingURI: "mem:" + path, Stream: "desk7/orders", Decrypter: record.NewDecrypter(keys),
		})
		must(err)
		defer consumer.Close()
		item, err := consumer.Next()
		if keys == nil {
			if !errors.Is(err, record.ErrNoKey) {
				t.Errorf("without a key: %q, %v", item.Payload, err)
			}
			continue
		}
		if err != nil || string(item.Payload) != "buy 100" {
			t.Fatalf("%q, %v", item.Payload, err)
		}
		for range 2 {
			if item, err = consumer.Next(); !errors.Is(err, record.ErrDecrypt) ||
				!strings.Contains(err.Error(), "it is not encrypted") {
				t.Errorf("record at lsn %d: %q, %v", lsn, item.Payload, err)
			}
		}
	}
}

// forgeSecond puts a record that is not encrypted in the place of the second one of the application.
func forgeSecond(t *testing.T, path string, id record.Identity) (lsn uint64) {
	t.Helper()
	region, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at, seen := record.DataOffset, 0
	for {
		header, err := record.ParseHeader(region[at:])
		if err != nil {
			t.Fatal(err)
		}
		length := int(header.StoredLen(id.Align))
		if seen += min(1, int(header.Flags&record.FlagEncrypted)); seen < 2 {
			at += length
			continue
		}
		header.Flags = 0
		forged, err := record.AppendTo(nil, header, nil, bytes.Repeat([]byte{'!'}, int(header.PayloadLen)), id)
		if err != nil || len(forged) != length {
			t.Fatalf("%d bytes in place of %d, %v", len(forged), length, err)
		}
		copy(region[at:], forged)
		if err := os.WriteFile(path, region, 0o600); err != nil {
			t.Fatal(err)
		}
		return header.LSN
	}
}
