package farlog

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/record"
)

// A ring on blocks is read by the pure-Go decoder as its writer and drain left it.
func TestBlocks_ImageShowsWhatWasAppended(t *testing.T) {
	path := filepath.Join(t.TempDir(), "blocks")
	uri := "nvme:" + path
	if err := Format(uri, FormatOptions{SizeBytes: ringSize, StreamName: "test/blocks"}); errors.Is(err,
		ErrUnsupported) {
		t.Skipf("no io_uring with direct I/O here: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	// a real disk, beside other tests
	w := openWriter(t, uri, WriterOptions{Level: LevelVisible, Deadline: 30 * time.Second})
	for _, text := range []string{"one", "two", "three"} {
		if _, err := w.Append(Entry{Data: []byte(text)}, 0); err != nil {
			t.Fatal(err)
		}
	}
	r, err := OpenReader(uri, ReaderOptions{Drain: true})
	if err != nil {
		t.Fatal(err)
	}
	batch, err := r.Read(make([]byte, 8192))
	if err != nil || batch.RecordCount != 4 {
		t.Fatalf("read %d records, %v; expected the EPOCH record and three", batch.RecordCount, err)
	}
	status, err := r.Status()
	if err != nil {
		t.Fatal(err)
	}
	lba := status.Contract.AtomicUnit
	second := uint64(lba) // the commit of the EPOCH record takes one LBA
	if err := r.Release(second, 1, 1); err != nil {
		t.Fatal(err)
	}
	r.Close()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := Fence(uri, 3); err != nil {
		t.Fatal(err)
	}
	checkImage(t, path, lba, second)
}

// checkImage: the bytes of a ring that was fenced at 3 and released to LSN second hold three records behind that.
func checkImage(t *testing.T, path string, lba uint32, second uint64) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	image, err := record.OpenImage(file, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	if image.Superblock.BlockLen != lba || image.EpochMin != 3 || image.Head.HeadLSN != second ||
		image.CreditLSN != second {
		t.Errorf("image: block_len %d, epoch_min %d, head %d, credit %d; expected %d, 3, %d, %d",
			image.Superblock.BlockLen, image.EpochMin,
			image.Head.HeadLSN, image.CreditLSN, lba, second, second)
	}
	if image.DurableHintLSN != 4*second || image.TailHintLSN != 4*second {
		t.Errorf("image: hints %d and %d; expected %d after a clean close", image.TailHintLSN, image.DurableHintLSN,
			4*second)
	}
	walker := image.Walk()
	for _, text := range []string{"one", "two", "three"} {
		rec, err := nextRecord(walker)
		if err != nil || string(rec.Payload) != text {
			t.Fatalf("walk: %q, %v; expected %q", rec.Payload, err, text)
		}
	}
	if _, err := nextRecord(walker); !errors.Is(err, io.EOF) {
		t.Fatalf("walk: %v; expected the end", err)
	}
}

// nextRecord passes over the PADs with which commits end.
func nextRecord(walker *record.Walker) (record.Record, error) {
	for {
		rec, err := walker.Next()
		if err != nil || !rec.Flags.IsPad() {
			return rec, err
		}
	}
}
