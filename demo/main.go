// Command demo shows farlog at work, and proves what it shows: real order messages go through `farlog append` into a
// ring, a drain stores them, drain and writer are killed in mid-flow, and at the end every acknowledged record is
// looked up in the store. `make demo` builds the programs and runs it. Linux only, as farlog is.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/farlog/farlog/pkg/farlog"
)

const (
	streamName   = "demo/orders"
	ringSize     = "64MiB"
	markerName   = "farlog-demo"
	startTimeout = 30 * time.Second
	drainTimeout = 2 * time.Minute
	stopTimeout  = 15 * time.Second
)

type options struct {
	records      uint64
	burst        time.Duration
	dataDir      string
	binDir       string
	recording    string
	level        string
	paceSeed     uint64
	burstSeconds float64
}

func main() {
	var o options
	flag.Uint64Var(&o.records, "records", 1_000_000, "records to append, at least")
	flag.Float64Var(&o.burstSeconds, "burst-seconds", 20,
		"seconds at the burst shape of the published capture, before full speed")
	flag.StringVar(&o.dataDir, "data-dir", "build/demo",
		"directory of ring, store and daemons; emptied at the start, kept at the end")
	flag.StringVar(&o.level, "level", "persistent", "durability level of acknowledgements: visible or persistent")
	flag.StringVar(&o.binDir, "bin-dir", "bin", "directory of farlog and farlogd")
	flag.StringVar(&o.recording, "recording", "testdata/fix/orders.fixlog.zst",
		"recording that the messages are made from")
	flag.Uint64Var(&o.paceSeed, "pace-seed", 1, "seed of the burst shape")
	flag.Parse()
	o.burst = time.Duration(o.burstSeconds * float64(time.Second))

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "demo: %v\n", err)
		os.Exit(1)
	}
}

func (o *options) validate() error {
	switch {
	case flag.NArg() > 0:
		return fmt.Errorf("unexpected argument %q: the demo takes flags only", flag.Arg(0))
	case o.records == 0:
		return errors.New("--records 0: expected at least 1")
	case o.burst < 0:
		return fmt.Errorf("--burst-seconds %g: expected zero or more", o.burstSeconds)
	case o.level != "visible" && o.level != "persistent":
		return fmt.Errorf("--level %q: expected visible or persistent", o.level)
	}
	for _, name := range []string{"farlog", "farlogd"} {
		if _, err := os.Stat(filepath.Join(o.binDir, name)); err != nil {
			return fmt.Errorf("%w: build it first: go build -o %s/ ./cmd/farlog ./cmd/farlogd", err, o.binDir)
		}
	}
	return nil
}

// clearDataDir removes what the last demo left, and nothing that a demo did not make.
func clearDataDir(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	marker := filepath.Join(dir, markerName)
	if _, err := os.Stat(marker); err != nil && len(entries) > 0 {
		return fmt.Errorf("--data-dir %s: it holds something else than an earlier demo; expected an empty or a new "+
			"directory", dir)
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(marker, []byte("made by the demo of farlog, which empties this directory when it starts\n"),
		0o644)
}

func run(ctx context.Context, o options) error {
	if err := o.validate(); err != nil {
		return err
	}
	if err := clearDataDir(o.dataDir); err != nil {
		return err
	}
	feed, err := newFeed(o)
	if err != nil {
		return err
	}
	site := newSite(o)
	defer site.killAll() // whatever happens, nothing of ours runs on
	began := time.Now()
	if err := site.start(ctx); err != nil {
		return err
	}
	show := newShow(site, feed, o.records)
	if err := appendAll(ctx, o, site, feed, show); err != nil {
		return err
	}
	if err := show.waitDrained(ctx); err != nil {
		return err
	}
	site.printStatus(ctx)
	if err := site.stopAll(); err != nil {
		return err
	}
	return conclude(ctx, o, site, feed, began)
}

// appendAll feeds the burst phase, then the rest at full speed, while drain and writer are killed.
func appendAll(ctx context.Context, o options, site *site, feed *feed, show *show) error {
	fed, chaos := make(chan struct{}), make(chan error, 1)
	go func() { chaos <- show.run(ctx, fed) }()
	err := feedPhases(ctx, o, site, feed, show)
	close(fed)
	return errors.Join(err, <-chaos)
}

func feedPhases(ctx context.Context, o options, site *site, feed *feed, show *show) error {
	if o.burst > 0 {
		say("appending at the burst shape of the published capture: 1,724/s on average, up to 186 in a millisecond")
		show.enter(phaseBurst, o.burst)
		if err := feed.run(ctx, site, phaseBurst); err != nil {
			return err
		}
		show.latencies("at the burst shape")
	}
	if feed.acknowledgedCount() < o.records {
		say("appending as fast as it can until %s records are acknowledged", grouped(o.records))
		show.enter(phaseFull, 0)
		if err := feed.run(ctx, site, phaseFull); err != nil {
			return err
		}
		show.latencies("at full speed")
	}
	return nil
}

// conclude proves what the demo claims.
func conclude(ctx context.Context, o options, site *site, feed *feed, began time.Time) error {
	storeDir := site.storeDir()
	say("verifying the store from its first byte to its last")
	verifyErr := site.show(ctx, "verify", storeDir)
	result, err := compare(storeDir, feed)
	if err != nil {
		return err
	}
	say("one order's life:")
	if err := site.show(ctx, "order", feed.orderKey(), "--store", storeDir, "--stream", streamName); err != nil {
		return err
	}
	say("done in %s; the data stays in %s. Look into it:", time.Since(began).Round(time.Second), o.dataDir)
	farlogPath := filepath.Join(o.binDir, "farlog")
	say("  %s verify %s", farlogPath, storeDir)
	say("  %s dump %s | less", farlogPath, storeDir)
	say("  %s order %s --store %s --stream %s", farlogPath, feed.orderKey(), storeDir, streamName)
	fmt.Printf("acknowledged=%d stored=%d missing=%d duplicated=%d torn=%d\n", result.acknowledged, result.stored,
		result.missing,
		result.duplicated, result.torn)
	switch {
	case verifyErr != nil:
		return fmt.Errorf("verify store %s: %w", storeDir, verifyErr)
	case result.missing+result.duplicated+result.torn > 0 || result.stored < result.acknowledged:
		return fmt.Errorf("the store does not hold what was acknowledged: %s", result.firstFault)
	case result.acknowledged < o.records:
		return fmt.Errorf("%d records were acknowledged, expected %d", result.acknowledged, o.records)
	}
	return nil
}

// clearLine takes a progress bar off the terminal.
const clearLine = "\r\x1b[K"

var isTerminal = func() bool {
	info, err := os.Stdout.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}()

func say(format string, args ...any) {
	if isTerminal {
		format = clearLine + format
	}
	fmt.Printf(format+"\n", args...)
}

// ringStatus is cheap while the writer lives, and otherwise a scan of what is not drained.
func ringStatus(uri string) (farlog.Status, error) { return farlog.Inspect(uri) }
