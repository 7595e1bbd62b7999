package drain

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/store"
)

// memberBench is a stream with three rings. A writer of one of them makes the records; the others get its bytes by copying the file.
type memberBench struct {
	*bench
	paths []string
}

func newMemberBench(t *testing.T) *memberBench {
	t.Helper()
	b := &memberBench{bench: &bench{T: t}}
	dir := t.TempDir()
	for i := range 3 {
		b.paths = append(b.paths, filepath.Join(dir, fmt.Sprint("ring", i)))
	}
	if err := farlog.Format("mem:"+b.paths[0], farlog.FormatOptions{SizeBytes: 0x3000 + 1<<18, RecordLenMax: 4 << 10, StreamName: "test/orders", StreamID: 3}); err != nil {
		t.Fatal(err)
	}
	b.uri = farlog.MembersURI(2, "mem:"+b.paths[0], "mem:"+b.paths[1], "mem:"+b.paths[2])
	var err error
	if b.store, err = store.Open(filepath.Join(t.TempDir(), "store"), store.Options{Create: true}); err != nil {
		t.Fatal(err)
	}
	return b
}

// write appends to the first ring, in an epoch of its own.
func (b *memberBench) write(payloads ...string) {
	b.Helper()
	var err error
	if b.writer, err = farlog.OpenWriter("mem:"+b.paths[0], farlog.WriterOptions{CountersDir: "none", Level: farlog.LevelVisible, Deadline: time.Second}); err != nil {
		b.Fatal(err)
	}
	b.append(payloads...)
	if err := b.writer.Close(); err != nil {
		b.Fatal(err)
	}
}

// copyTo makes a member of the first ring's bytes.
func (b *memberBench) copyTo(members ...int) {
	b.Helper()
	raw, err := os.ReadFile(b.paths[0])
	if err != nil {
		b.Fatal(err)
	}
	for _, i := range members {
		if err := os.WriteFile(b.paths[i], raw, 0o600); err != nil {
			b.Fatal(err)
		}
	}
}

func (b *memberBench) headOf(i int) uint64 {
	b.Helper()
	status, err := farlog.Inspect("mem:" + b.paths[i])
	if err != nil {
		b.Fatal(err)
	}
	return status.HeadLSN
}

// One drain empties all rings of a stream, and one that comes later as well.
func TestRun_StreamWithMembers(t *testing.T) {
	b := newMemberBench(t)
	var want []string
	for i := range 500 {
		want = append(want, fmt.Sprint(i, strings.Repeat("x", i%100)))
	}
	b.write(want...)
	b.copyTo(1)
	progress, stop := b.run(b.config())
	last := b.await(progress, "drained with two of three", func(p Progress) bool { return p.HeadLSN > 0 && p.LagBytes == 0 && len(p.Members) == 3 })
	if last.Members[0].State != farlog.MemberUp || last.Members[1].State != farlog.MemberUp || last.Members[2].State != farlog.MemberAway ||
		!strings.Contains(last.Members[2].Text, b.paths[2]) {
		t.Errorf("members %+v: expected the third to be away, by its name", last.Members)
	}
	b.copyTo(2)
	b.await(progress, "the third is there", func(p Progress) bool { return len(p.Members) == 3 && p.Members[2].State == farlog.MemberUp })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	for i := range b.paths {
		if head := b.headOf(i); head != last.HeadLSN {
			t.Errorf("ring %d: head %d, expected %d", i, head, last.HeadLSN)
		}
	}
	b.expectStored(want...)
}

// What too few members have is stored, and waits there: its place is not given away. The writer died before its last word.
func TestRun_MembersThatLackRecords(t *testing.T) {
	const hints, hintsEnd, data, shared = 0x2100, 0x2110, 0x3000, 256 // the epoch's first record and "one"
	b := newMemberBench(t)
	b.write("one", "two", "three")
	raw, err := os.ReadFile(b.paths[0])
	if err != nil {
		t.Fatal(err)
	}
	clear(raw[hints:hintsEnd])
	for _, path := range b.paths {
		if err := os.WriteFile(path, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		clear(raw[data+shared:])
	}
	progress, stop := b.run(b.config())
	last := b.await(progress, "all is stored", func(p Progress) bool { return p.Records == 4 }) // the first begins the epoch
	if last.HeadLSN > shared {
		t.Errorf("head %d: what one member alone has was given away", last.HeadLSN)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	for i := range b.paths {
		if head := b.headOf(i); head > shared {
			t.Errorf("ring %d: head %d: what one member alone has was given away", i, head)
		}
	}
	b.expectStored("one", "two", "three")
}
