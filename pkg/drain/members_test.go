package drain

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/record"
	"github.com/farlog/farlog/pkg/store"
)

// memberBench is a stream with three rings. A writer of one of them makes the records; the others get its bytes by
// copying the file.
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
	if err := farlog.Format("mem:"+b.paths[0], farlog.FormatOptions{
		SizeBytes: 0x3000 + 1<<18, RecordLenMax: 4 << 10,
		StreamName: "test/orders", StreamID: 3,
	}); err != nil {
		t.Fatal(err)
	}
	b.save(0, b.load(0))
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
	if b.writer, err = farlog.OpenWriter("mem:"+b.paths[0],
		farlog.WriterOptions{CountersDir: "none", Level: farlog.LevelVisible, Deadline: 30 * time.Second}); err != nil {
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
		b.save(i, raw)
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
	last := b.await(progress, "drained with two of three",
		func(p Progress) bool { return p.HeadLSN > 0 && p.LagBytes == 0 && len(p.Members) == 3 })
	if last.Members[0].State != farlog.MemberUp || last.Members[1].State != farlog.MemberUp ||
		last.Members[2].State != farlog.MemberAway ||
		!strings.Contains(last.Members[2].Text, b.paths[2]) {
		t.Errorf("members %+v: expected the third to be away, by its name", last.Members)
	}
	b.copyTo(2)
	b.await(progress, "the third is there", func(p Progress) bool {
		return len(p.Members) == 3 &&
			p.Members[2].State == farlog.MemberUp
	})
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

// A drain that died between its releases leaves heads apart. All that any member released was in the store that is
// lost: another store takes the rest, from the furthest head on, and refuses the stream when less than that was given
// up.
func TestRun_MembersWhoseStoreIsLost(t *testing.T) {
	b := newMemberBench(t)
	b.write("one", "two", "three")
	b.copyTo(1, 2)
	behind := b.load(2)
	progress, stop := b.run(b.config())
	head := b.await(progress, "drained", func(p Progress) bool { return p.HeadLSN > 0 && p.LagBytes == 0 }).HeadLSN
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	b.write("four", "five")
	b.copyTo(1)
	copy(behind[data:], b.load(0)[data:]) // the third has all records, and its head is where it was
	b.save(2, behind)
	if b.headOf(0) != head || b.headOf(1) != head || b.headOf(2) != 0 {
		t.Fatal(b.headOf(0), b.headOf(1), b.headOf(2))
	}
	var err error
	if b.store, err = store.Open(filepath.Join(t.TempDir(), "second"), store.Options{Create: true}); err != nil {
		t.Fatal(err)
	}
	slices.Reverse(b.paths)
	b.uri = farlog.MembersURI(2, "mem:"+b.paths[0], "mem:"+b.paths[1], "mem:"+b.paths[2])
	config := b.config()
	for _, lost := range []uint64{0, head - 1} {
		config.LostLSN = lost
		if err := Run(context.Background(), config); !errors.Is(err, ErrStoreBehind) {
			t.Fatalf("given up below lsn %d: %v, expected ErrStoreBehind", lost, err)
		}
	}
	config.LostLSN = head
	progress, stop = b.run(config)
	b.await(progress, "the rest is drained", func(p Progress) bool { return p.HeadLSN > head && p.LagBytes == 0 })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	b.expectStored("four", "five")
}

// What too few members have is not drained: a takeover may put something else in its place. The writer died before its
// last word. The drain tells how much it is.
func TestRun_MembersThatLackRecords(t *testing.T) {
	const shared = 256 // the epoch's first record and "one"
	b := newMemberBench(t)
	b.write("one", "two", "three")
	raw := b.load(0)
	status, err := farlog.Inspect("mem:" + b.paths[0])
	if err != nil {
		b.Fatal(err)
	}
	clear(raw[hints:hintsEnd])
	for i := range b.paths {
		b.save(i, raw)
		clear(raw[data+shared:])
	}
	progress, stop := b.run(b.config())
	b.await(progress, "what all have is stored", func(p Progress) bool { return p.HeadLSN == shared })
	b.await(progress, "the rest is told to be unconfirmed",
		func(p Progress) bool { return p.UnconfirmedBytes == status.AppendedLSN-shared })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	b.expectStored("one")
}

// One that is away may have what the others lack: only when all tell is it known that a record was not acknowledged.
func TestUnconfirmed(t *testing.T) {
	up, behind := farlog.MemberStatus{State: farlog.MemberUp, HeldLSN: 384}, farlog.MemberStatus{State: farlog.MemberUp}
	for name, one := range map[string]struct {
		members []farlog.MemberStatus
		want    uint64
	}{
		"one ring":           {nil, 0},
		"held back by one":   {[]farlog.MemberStatus{behind, up, behind}, 128},
		"stored meanwhile":   {[]farlog.MemberStatus{behind, {State: farlog.MemberUp, HeldLSN: 256}}, 0},
		"of an epoch before": {[]farlog.MemberStatus{behind, behind, {State: farlog.MemberStale, HeldLSN: 384}}, 0},
		"another is away":    {[]farlog.MemberStatus{behind, up, {State: farlog.MemberAway}}, 0},
	} {
		if got := unconfirmed(one.members, 256); got != one.want {
			t.Errorf("%s: %d, expected %d", name, got, one.want)
		}
	}
}

const hints, hintsEnd, data = 0x2100, 0x2110, 0x3000 // where they lie in a ring

func (b *memberBench) writeTo(i int, epoch uint32, payloads ...string) {
	b.Helper()
	var err error
	if b.writer, err = farlog.OpenWriter("mem:"+b.paths[i],
		farlog.WriterOptions{
			CountersDir: "none", Level: farlog.LevelVisible, Deadline: 30 * time.Second,
			Epoch: epoch,
		}); err != nil {
		b.Fatal(err)
	}
	b.append(payloads...)
	if err := b.writer.Close(); err != nil {
		b.Fatal(err)
	}
}

func (b *memberBench) load(i int) []byte {
	b.Helper()
	raw, err := os.ReadFile(b.paths[i])
	if err != nil {
		b.Fatal(err)
	}
	return raw
}

// save puts bytes into a ring, which keeps a uuid of its own: a ring and its copy are no two members.
func (b *memberBench) save(i int, raw []byte) {
	b.Helper()
	raw = slices.Clone(raw)
	for _, off := range []int{0, 0x1000} {
		superblock := raw[off : off+512]
		if binary.LittleEndian.Uint64(superblock) != 0 {
			superblock[31] = byte(i)
			binary.LittleEndian.PutUint32(superblock[508:], record.CRC32C(0, superblock[:508]))
		}
	}
	if err := os.WriteFile(b.paths[i], raw, 0o600); err != nil {
		b.Fatal(err)
	}
}

// The first writer leaves r on A alone; the second begins its epoch in that place on B and C, and its first record gets
// to B alone; the third comes by A and C, finds r and goes on behind it. Whatever a drain has seen of the second one
// meanwhile: r is in the store, and then what the third one wrote. As long as r is as that first record, and longer.
func TestRun_EpochThatWasGoneBackOn(t *testing.T) {
	for name, r := range map[string]string{"as long": "r", "longer": strings.Repeat("longer", 30)} {
		t.Run(name, func(t *testing.T) {
			const shared = 256
			b := newMemberBench(t)
			b.write("base", r)
			a := b.load(0)
			clear(a[hints:hintsEnd])
			b.save(0, a)
			prefix := slices.Clone(a)
			clear(prefix[data+shared:])
			b.save(1, prefix)
			b.writeTo(1, 2)
			second := b.load(1)
			clear(second[hints:hintsEnd])
			b.save(1, second)
			c := slices.Clone(second)
			clear(c[data+shared:])
			b.save(2, c)
			if err := os.Remove(b.paths[0]); err != nil {
				t.Fatal(err)
			}
			_, stop := b.run(b.config())
			time.Sleep(300 * time.Millisecond) // for a drain that would give out what B alone has
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(b.paths[1]); err != nil {
				t.Fatal(err)
			}
			b.save(0, a)
			b.writeTo(0, 3, "after")
			b.save(2, b.load(0))
			status, err := farlog.Inspect("mem:" + b.paths[0])
			if err != nil {
				t.Fatal(err)
			}
			progress, stop := b.run(b.config())
			b.await(progress, "all of it is drained", func(p Progress) bool { return p.HeadLSN == status.AppendedLSN })
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			b.expectStored("base", r, "after")
		})
	}
}
