package drain

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/store"
)

// A ring on blocks goes round several times while its drain keeps up and is replaced once: the writer has its space
// from the credit alone.
func TestRun_RingOnBlocksGoesRound(t *testing.T) {
	b := &bench{T: t, path: filepath.Join(t.TempDir(), "orders.blocks")}
	b.uri = "nvme:" + b.path
	err := farlog.Format(b.uri, farlog.FormatOptions{
		SizeBytes: 0x3000 + 1<<20, RecordLenMax: 64 << 10,
		StreamName: "test/orders", StreamID: 3,
	})
	if errors.Is(err, farlog.ErrUnsupported) {
		t.Skipf("no io_uring with direct I/O here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if b.writer, err = farlog.OpenWriter(b.uri, farlog.WriterOptions{
		CountersDir: "none", Level: farlog.LevelVisible,
		Deadline: 30 * time.Second,
	}); err != nil {
		t.Fatal(err)
	}
	b.Cleanup(func() { b.writer.Close() })
	if b.store, err = store.Open(filepath.Join(t.TempDir(), "store"), store.Options{Create: true}); err != nil {
		t.Fatal(err)
	}
	var want []string
	for i := range 1200 {
		want = append(want, fmt.Sprintf("%d %s", i, strings.Repeat("x", i*37%5000)))
	}
	_, stop := b.run(b.config())
	b.append(want[:600]...)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	progress, stop := b.run(b.config())
	b.append(want[600:]...)
	b.await(progress, "drained", b.isDrained)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if cursors := b.writer.Cursors(); cursors.AppendedLSN < 3*cursors.CapacityBytes {
		t.Errorf("the ring of %d bytes took %d: expected three laps", cursors.CapacityBytes, cursors.AppendedLSN)
	}
	b.expectStored(want...)
}
