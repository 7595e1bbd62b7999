package drain

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/internal/testenv"
	"github.com/farlog/farlog/pkg/store"
)

const (
	wakeupTime   = time.Second // for which records come at each rate
	turnsMax     = 500         // appends a second; at higher rates each is of several records
	waitsOfBatch = 3           // in each ring: the end of the drain's own WRITE may end one, and the answer the next

	// Percent of the batches, over verbs: a nap of 1 ms may end just before its answer comes, and is not looked at at
	// once.
	verbsExpiredMax = 20
)

// A drain of a ring on another host is woken by what it waits for. What this proves, and how: while records come, at
// rates at which each is drained alone and at rates at which many are drained at once, no wait of the drain ends
// because its time is over. Such a wait lasted five seconds with its answer at hand. Waits and READs are counted, and
// nothing is timed. Each batch has one confirmation to wait for in each ring; an event may end a wait before it.
func TestRun_WaitsOfAFarDrainEndByEvents(t *testing.T) {
	checkWaitsAtEachRate(t, "ofi:tcp://127.0.0.1:0", func() string { return testenv.MemoryDir(t) }, 0)
}

// The same by an RDMA device here, at whose address the target listens: the testbed has one.
func TestRun_WaitsOfAVerbsDrainEndByEvents(t *testing.T) {
	address := os.Getenv("FARLOG_TEST_VERBS")
	if address == "" {
		t.Skip("set FARLOG_TEST_VERBS to the address of an RDMA device here (SoftRoCE will do)")
	}
	checkWaitsAtEachRate(t, "verbs://"+address+":0", t.TempDir, verbsExpiredMax)
}

func checkWaitsAtEachRate(t *testing.T, listen string, newDir func() string, expiredMax uint64) {
	t.Helper()
	for _, members := range []int{1, 3} {
		for _, rate := range []int{50, 100, 1_000, 10_000} {
			t.Run(fmt.Sprintf("%d rings, %d records a second", members, rate), func(t *testing.T) {
				config, writer := newFarStream(t, listen, newDir, members)
				d, err := open(context.Background(), config)
				if err != nil {
					t.Fatal(err)
				}
				defer d.close()
				ctx, cancel := context.WithTimeout(context.Background(), waitMax)
				defer cancel()
				var last atomic.Uint64
				d.config.OnProgress = func(p Progress) {
					if end := last.Load(); end != 0 && p.HeadLSN >= end {
						cancel()
					}
				}
				ended := make(chan error, 1)
				go func() { ended <- d.loop(ctx) }()
				last.Store(appendAtRate(t, writer, rate))
				if err := <-ended; err != nil {
					t.Fatal(err)
				}
				checkWaits(t, d, members, last.Load(), expiredMax)
			})
		}
	}
}

func checkWaits(t *testing.T, d *drainer, members int, endLSN, expiredMax uint64) {
	t.Helper()
	if d.progress.HeadLSN < endLSN {
		t.Fatalf("drained up to lsn %d in %s, expected %d", d.progress.HeadLSN, waitMax, endLSN)
	}
	waits, expired := d.reader.Waits()
	t.Logf("%d records in %d batches: %d waits, %d of them expired, %d READs", d.progress.Records, d.progress.Batches,
		waits, expired, d.reader.Reads())
	if waits == 0 {
		t.Error("the drain never waited: nothing is proved about what ends its waits")
	}
	if expired*100 > uint64(members)*d.progress.Batches*expiredMax {
		t.Errorf("%d of %d waits ended because their time was over, expected at most %d %% of %d batches of %d rings",
			expired, waits, expiredMax, d.progress.Batches, members)
	}
	if limit := waitsOfBatch * uint64(members) * d.progress.Batches; waits > limit && expiredMax == 0 {
		t.Errorf("%d waits for %d batches of %d rings, expected at most %d", waits, d.progress.Batches, members, limit)
	}
}

// appendAtRate gives the end of the last record. A machine that cannot keep up appends fewer.
func appendAtRate(t *testing.T, writer *farlog.Writer, rate int) (endLSN uint64) {
	t.Helper()
	entries := make([]farlog.Entry, max(1, rate/turnsMax))
	for i := range entries {
		entries[i] = farlog.Entry{Data: []byte("record"), Class: 1}
	}
	positions := make([]farlog.Position, len(entries))
	start := time.Now()
	for i := 0; i == 0 || time.Since(start) < wakeupTime; i++ {
		if _, _, err := writer.AppendBatch(entries, waitMax, positions); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Until(start.Add(time.Duration((i+1)*len(entries)) * time.Second / time.Duration(rate))))
	}
	return positions[len(positions)-1].EndLSN
}

// newFarStream is a stream with one ring or several, which a target in this process serves to a writer and a drain.
func newFarStream(t *testing.T, listen string, newDir func() string, count int) (Config, *farlog.Writer) {
	t.Helper()
	b := newFarBenchAt(t, listen, 0, nil)
	opened, err := store.Open(filepath.Join(t.TempDir(), "store"), store.Options{Create: true, SegmentBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	uris, drains, writers := make([]string, count), make([]farlog.Member, count), make([]farlog.Member, count)
	for i := range count {
		name := fmt.Sprintf("ring%d", i)
		drains[i].Token, writers[i].Token = [farlog.TokenLen]byte{1, byte(i)}, [farlog.TokenLen]byte{2, byte(i)}
		uris[i] = b.target.URI() + "/" + name +
			"?flush=target-cpu&wait=block" // the answer is a word, without a completion
		b.serve(newDir(), name, farlog.TargetGrant{Role: farlog.GrantDrain, Token: drains[i].Token},
			farlog.TargetGrant{Role: farlog.GrantWriter, Epoch: 2, Token: writers[i].Token})
	}
	config := Config{
		RingURI: uris[0], Store: opened, Token: &drains[0].Token, Tails: NewTails(),
		Logger: slog.New(slog.DiscardHandler),
	}
	options := farlog.WriterOptions{Epoch: 2, Token: &writers[0].Token, Level: farlog.LevelVisible, CountersDir: "none"}
	if count > 1 {
		config.RingURI = farlog.MembersURI(count/2+1, uris...)
		config.Token, config.Tails, config.Members = nil, nil, drains
		options.Token, options.Members = nil, writers
	}
	writer, err := farlog.OpenWriter(config.RingURI, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { writer.Close() })
	return config, writer
}

// serve makes a ring in a folder that is no disk: its flush might take as long as a wait.
func (b *farBench) serve(dir, name string, grants ...farlog.TargetGrant) {
	b.Helper()
	near := "mem:" + filepath.Join(dir, name)
	options := farlog.FormatOptions{SizeBytes: 0x3000 + 1<<20, RecordLenMax: 4 << 10, StreamName: "far", Salt: 7}
	if err := farlog.Format(near, options); err != nil {
		b.Fatal(err)
	}
	if err := b.target.Serve(name, near, "tenant"); err != nil {
		b.Fatal(err)
	}
	for _, grant := range grants {
		if err := b.target.Grant(name, grant); err != nil {
			b.Fatal(err)
		}
	}
}
