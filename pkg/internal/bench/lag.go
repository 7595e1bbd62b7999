package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/farlog/farlog/pkg/drain"
	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/store"
)

// The time from the acknowledgement of a record until the store has synced it, of a drain of remote rings, at rates at
// which each record is drained alone and at rates at which many are drained at once. The tests of pkg/drain count
// what ends the drain's waits; this measures the time.
const (
	lagSampleCount = 2_000 // at the least, so that two are beyond the 99.9th percentile
	lagLength      = 5 * time.Second
	lagTimeout     = 30 * time.Second
	lagListen      = "ofi:tcp://127.0.0.1:0" // FARLOG_BENCH_LISTEN: another one, such as verbs://10.0.1.1:0
)

// lagStream is a stream with one or more remote rings, its writer, and what its drain needs.
type lagStream struct {
	target *farlog.Target
	writer *farlog.Writer
	config drain.Config
	dir    string
}

func openLagStream(memberCount int) (_ *lagStream, err error) {
	s := &lagStream{}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.dir, err = os.MkdirTemp(shmDir(), "farlog-bench-lag-"); err != nil {
		return nil, err
	}
	listen := os.Getenv("FARLOG_BENCH_LISTEN")
	if listen == "" {
		listen = lagListen
	}
	if s.target, err = farlog.OpenTarget(listen); err != nil {
		return nil, err
	}
	uris := make([]string, memberCount)
	drains, writers := make([]farlog.Member, memberCount), make([]farlog.Member, memberCount)
	for i := range memberCount {
		drains[i].Token, writers[i].Token = [farlog.TokenLen]byte{1, byte(i)}, [farlog.TokenLen]byte{2, byte(i)}
		name := fmt.Sprintf("ring%d", i)
		if err = s.serve(name, drains[i].Token, writers[i].Token); err != nil {
			return nil, err
		}
		uris[i] = s.target.URI() + "/" + name + "?flush=target-cpu&wait=block"
	}
	return s, s.open(uris, drains, writers)
}

func (s *lagStream) serve(name string, drain, writer [farlog.TokenLen]byte) error {
	local := "mem:" + filepath.Join(s.dir, name)
	options := farlog.FormatOptions{SizeBytes: 0x3000 + 16<<20, RecordLenMax: 4 << 10, StreamName: "lag", Salt: 7}
	return errors.Join(
		farlog.Format(local, options),
		s.target.Serve(name, local, "tenant"),
		s.target.Grant(name, farlog.TargetGrant{Role: farlog.GrantDrain, Token: drain}),
		s.target.Grant(name, farlog.TargetGrant{Role: farlog.GrantWriter, Epoch: 2, Token: writer}))
}

// open opens the writer, and a store on the disk for the drain.
func (s *lagStream) open(uris []string, drains, writers []farlog.Member) error {
	dir, err := diskDir()
	if err != nil {
		return err
	}
	opened, err := store.Open(filepath.Join(dir, "store"), store.Options{Create: true})
	if err != nil {
		return err
	}
	s.config = drain.Config{
		RingURI: uris[0], Store: opened, Token: &drains[0].Token, Tails: drain.NewTails(),
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
	options := farlog.WriterOptions{
		Epoch: 2, Token: &writers[0].Token, Level: farlog.LevelVisible, CountersDir: "none",
	}
	if len(uris) > 1 {
		s.config.RingURI = farlog.MembersURI(len(uris)/2+1, uris...)
		s.config.Token, s.config.Tails, s.config.Members = nil, nil, drains
		options.Token, options.Members = nil, writers
	}
	s.writer, err = farlog.OpenWriter(s.config.RingURI, options)
	return err
}

func (s *lagStream) close() {
	if s.writer != nil {
		s.writer.Close()
	}
	if s.target != nil {
		s.target.Close()
	}
	if s.config.Store != nil {
		os.RemoveAll(filepath.Dir(s.config.Store.Dir()))
	}
	os.RemoveAll(s.dir)
}

// lags matches acknowledgements, by the end of each, with the drain's progress.
type lags struct {
	mu      sync.Mutex
	waiting []acknowledged // in the order of the log
	found   []time.Duration
}

type acknowledged struct {
	endLSN uint64
	at     time.Time
}

func (l *lags) acknowledge(endLSN uint64, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = append(l.waiting, acknowledged{endLSN, at})
}

// store notes what is stored below an LSN, and reports how many acknowledgements have been stored in all.
func (l *lags) store(storedLSN uint64) int {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.waiting) > 0 && l.waiting[0].endLSN <= storedLSN {
		l.found = append(l.found, max(0, now.Sub(l.waiting[0].at)))
		l.waiting = l.waiting[1:]
	}
	return len(l.found)
}

// lagAtRate appends single records at a rate, and gives the lag of each.
func lagAtRate(memberCount, rate int) ([]time.Duration, error) {
	s, err := openLagStream(memberCount)
	if err != nil {
		return nil, err
	}
	defer s.close()
	count := max(lagSampleCount, int(lagLength.Seconds())*rate)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var seen lags
	s.config.OnProgress = func(p drain.Progress) {
		if seen.store(p.StoredLSN) >= count {
			cancel()
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- drain.Run(ctx, s.config) }()
	payload := make([]byte, payloadLen)
	start := time.Now()
	for i := range count {
		time.Sleep(time.Until(start.Add(time.Duration(i) * time.Second / time.Duration(rate))))
		position, err := s.writer.Append(farlog.Entry{Data: payload, Class: 1}, lagTimeout)
		if err != nil {
			return nil, errors.Join(err, context.Cause(ctx))
		}
		seen.acknowledge(position.EndLSN, time.Now())
	}
	defer time.AfterFunc(lagTimeout, cancel).Stop()
	if err := <-ended; err != nil {
		return nil, err
	}
	if len(seen.found) < count {
		return nil, fmt.Errorf(
			"%d of %d records were stored %s after the last was acknowledged",
			len(seen.found),
			count,
			lagTimeout,
		)
	}
	return seen.found, nil
}

func benchLag() error {
	for _, memberCount := range []int{1, 3} {
		for _, rate := range []int{50, 100, 1_000, 10_000} {
			found, err := lagAtRate(memberCount, rate)
			if err != nil {
				return fmt.Errorf("%d rings, %d records/s: %w", memberCount, rate, err)
			}
			slices.Sort(found)
			at := func(share float64) float64 {
				return float64(found[int(share*float64(len(found)-1))].Microseconds()) / 1e3
			}
			err = report(result{
				Name: fmt.Sprintf(
					"lag.%d.%d p99.9",
					memberCount,
					rate,
				), Ours: at(0.999), Unit: "ms", Flush: "target-cpu",
				Level: "stored",
				Note: fmt.Sprintf(
					"acknowledged until stored, %d remote rings, %d records/s; p50 %.2f, p99 %.2f, max %.2f ms",
					memberCount,
					rate,
					at(0.5),
					at(0.99),
					at(1),
				),
			}, 0)
			if err != nil {
				return err
			}
		}
	}
	return nil
}
