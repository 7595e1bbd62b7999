package drain

import (
	"bytes"
	"encoding/binary"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/record"
	"github.com/farlog/farlog/pkg/store"
)

// scribble is what somebody who may write into a ring puts where its next record would be: a header with the right
// magic and LSN.
type scribble struct {
	epoch, payloadLen uint32
	seq               uint64
	keyLen            uint16
}

func (s scribble) bytes(lsn uint64) []byte {
	raw := make([]byte, 256)
	le := binary.LittleEndian
	copy(raw, "FLG1\x01\x07")
	le.PutUint64(raw[8:], lsn)
	le.PutUint32(raw[16:], s.epoch)
	le.PutUint32(raw[20:], s.payloadLen)
	le.PutUint64(raw[24:], s.seq)
	le.PutUint16(raw[46:], s.keyLen)
	return raw
}

// place writes at a ring's LSN past its writer.
func (b *bench) place(lsn uint64, raw []byte) {
	b.Helper()
	file, err := os.OpenFile(b.path, os.O_RDWR, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteAt(raw, int64(record.DataOffset+lsn)); err != nil {
		b.Fatal(err)
	}
}

// TestRun_NamesWhatIsScribbled: each is named by the check that it fails, the rings beside it go on, and so does this
// one with its next record.
func TestRun_NamesWhatIsScribbled(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		scribble scribble
		text     string
	}{
		"length": {
			scribble{1, 0x7fffffff, 2, 0},
			"payload length 2147483647 and key length 0; expected a record of 65536 bytes at most",
		},
		"key length": {scribble{1, 100, 2, 0xffff}, "payload length 100 and key length 65535"},
		"epoch up":   {scribble{8, 100, 2, 0}, "epoch 8; expected 1 at least and 1 at most"},
		"epoch down": {scribble{0, 100, 2, 0}, "epoch 0; expected 1"},
		"seq":        {scribble{1, 100, 7, 0}, "seq 7; expected 2"},
		"checksum":   {scribble{1, 100, 2, 0}, "192 bytes with trailer 0; expected"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, store.Options{})
			beside := newBench(t, store.Options{})
			var log bytes.Buffer
			config := b.config()
			config.Logger = slog.New(slog.NewTextHandler(&log, nil))
			progress, stop := b.run(config)
			besideProgress, stopBeside := beside.run(beside.config())
			b.append("one")
			b.await(progress, "the first is stored", func(p Progress) bool { return p.Records == 2 })
			b.place(b.writer.Cursors().AppendedLSN, c.scribble.bytes(b.writer.Cursors().AppendedLSN))
			p := b.await(progress, "the scribble is told of", func(p Progress) bool { return p.Suspect != "" })
			if !strings.Contains(p.Suspect, c.text) {
				t.Errorf("%q, expected %q in it", p.Suspect, c.text)
			}
			beside.append("one")
			beside.await(besideProgress, "the ring beside it goes on",
				func(p Progress) bool { return p.Records == 2 && p.Suspect == "" })
			b.append("two")
			b.await(progress, "the next record is stored",
				func(p Progress) bool { return p.Records == 3 && p.Suspect == "" })
			if err := errors.Join(stop(), stopBeside()); err != nil {
				t.Error(err)
			}
			if count := strings.Count(log.String(), "where the next record would be"); count != 1 {
				t.Errorf("told %d times, expected once:\n%s", count, log.String())
			}
		})
	}
}

// TestRun_SaysWhyARecordIsUnreadable: of one that was acknowledged the error names the check as well.
func TestRun_SaysWhyARecordIsUnreadable(t *testing.T) {
	b := newBench(t, store.Options{})
	b.append("one")
	lsn := b.writer.Cursors().AppendedLSN
	b.append("two", "three")
	if err := b.writer.Close(); err != nil { // its last words are the hints
		t.Fatal(err)
	}
	b.place(lsn, scribble{1, 0x7fffffff, 2, 0}.bytes(lsn))
	err := Run(t.Context(), b.config())
	if !errors.Is(err, farlog.ErrCorrupt) || !strings.Contains(err.Error(),
		"(payload length 2147483647 and key length 0; expected") {
		t.Errorf("%v, expected ErrCorrupt that names the length", err)
	}
	b.expectStored("one")
}
