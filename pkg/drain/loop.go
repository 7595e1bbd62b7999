package drain

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/loglimit"
	"github.com/farlog/farlog/pkg/record"
	"github.com/farlog/farlog/pkg/retry"
	"github.com/farlog/farlog/pkg/store"
)

const (
	pollIntervalMin  = 50 * time.Microsecond
	quietAfter       = 100 * time.Millisecond // without a record: looking every PollInterval would waste the processor
	quietFactor      = 5                      // how much longer the pauses may be then
	quietPauseMax    = 5 * time.Millisecond   // unless PollInterval itself is longer
	looksPerSecond   = 100_000                // at idle rings, of all drains of a process: with many each pauses longer
	statusInterval   = 200 * time.Millisecond
	anchorInterval   = time.Second
	retryIntervalMin = 50 * time.Millisecond
	retryIntervalMax = 2 * time.Second
)

// running counts the drains of this process.
var running atomic.Int64

// drainer is one running drain. One goroutine uses it, and beside it the one of ahead.
type drainer struct {
	config     Config
	source     store.Source
	reader     *farlog.Reader
	appender   *store.Appender
	buffers    buffers
	ahead      *ahead // nil: none
	encryption record.Encryption
	startLSN   uint64 // what lies below was in the store when the drain began
	watch      watch
	suspicion  suspicion
	isTold     bool // that it has started

	begunEpoch uint32 // of the last record that is no PAD; 0: none was read yet
	forgedText string // as Progress.ForgedText
	forgedAt   time.Time
	forgedLog  loglimit.Limiter

	progress     Progress
	statusAt     time.Time // when AppendedLSN was last looked up
	lastRecordAt time.Time // timestamp of the last record stored
	caughtUpAt   time.Time // when the ring was last seen empty
	anchoredAt   time.Time // when the last anchor was made
}

// open takes both locks and finds where to go on. It waits for space on the disk, as long as ctx allows.
func open(ctx context.Context, config Config) (*drainer, error) {
	config = config.withDefaults()
	reader, source, err := openReader(config)
	if err != nil {
		return nil, err
	}
	d := &drainer{config: config, source: source, reader: reader}
	d.progress.Stream, d.progress.RingUUID = source.StreamName, source.RingUUID
	if err := d.start(ctx); err != nil {
		_ = d.close()
		return nil, err
	}
	return d, nil
}

func (d *drainer) start(ctx context.Context) error {
	if err := d.retry(ctx, d.openAppender); err != nil {
		return err
	}
	status, err := d.reader.Status()
	if err != nil {
		return fmt.Errorf("read status of ring %q: %w", d.config.RingURI, err)
	}
	last := d.appender.Last()
	if err := checkHead(d.config, d.source, status.HeadLSN, last); err != nil {
		return err
	}
	d.startLSN, d.encryption = last.NextLSN, status.Encryption
	d.watch.nextLSN = status.HeadLSN
	d.progress.StoredLSN, d.progress.HeadLSN, d.progress.LastEpoch = last.NextLSN, status.HeadLSN, last.Epoch
	d.caughtUpAt = time.Now()
	d.suspicion.later(d.caughtUpAt)
	if !d.config.IsRetry {
		d.tell()
	}
	d.report()
	return nil
}

// tell logs, once, that the drain has started.
func (d *drainer) tell() {
	if !d.isTold {
		d.config.Logger.Info("drain started", "ring", d.config.RingURI, "stream", d.source.StreamName,
			"head_lsn", d.progress.HeadLSN, "stored_lsn", d.progress.StoredLSN, "last_epoch", d.progress.LastEpoch)
	}
	d.isTold = true
}

func (d *drainer) openAppender() error {
	if len(d.reader.Members()) > 1 {
		known, err := knownRing(d.config.Store, d.source)
		if err != nil {
			return err
		}
		d.source.RingUUID = known
	}
	appender, err := d.config.Store.OpenStream(d.source)
	if err != nil {
		return fmt.Errorf("open stream %s for appending: %w", d.source.StreamName, err)
	}
	d.appender = appender
	d.config.OnOpen(appender)
	return nil
}

// knownRing is the ring by which the store knows a stream with several: the first member's when it was begun. Another
// ring may have been put in its place since; a stream that is re-created has another salt.
func knownRing(into *store.Store, source store.Source) (known [16]byte, err error) {
	reader, err := into.OpenReader(source.StreamName, store.ReaderOptions{IsOpenFast: true})
	if errors.Is(err, store.ErrNotFound) {
		return source.RingUUID, nil
	}
	if err != nil { // whoever took this for nothing would begin another generation
		return known, fmt.Errorf("ring that the store has of stream %s: %w", source.StreamName, err)
	}
	defer reader.Close()
	generations := reader.Generations()
	if n := len(generations); n > 0 && generations[n-1].Salt == source.Salt &&
		generations[n-1].StreamID == source.StreamID {
		return generations[n-1].RingUUID, nil
	}
	return source.RingUUID, nil
}

func (d *drainer) close() error {
	var err error
	if d.appender != nil {
		err = d.appender.Close()
		if err != nil {
			err = fmt.Errorf("close stream %s: %w", d.source.StreamName, err)
		}
	}
	d.awaitAhead()
	d.leavePage()
	_ = d.reader.Close()
	return err
}

// pauses are those between looks at an idle ring: short at first, because records come in bursts, then twice as long
// each time up to longest, and up to quiet in a ring that stays idle.
type pauses struct {
	longest time.Duration
	quiet   time.Duration
	now     time.Duration
	total   time.Duration // since the last record
}

// newPauses gives those of one of so many drains.
func newPauses(longest time.Duration, drains int64) pauses {
	longest = max(longest, time.Duration(drains)*time.Second/looksPerSecond)
	return pauses{
		longest: longest,
		quiet:   max(longest, min(quietFactor*longest, quietPauseMax)),
		now:     min(pollIntervalMin, longest),
	}
}

func (p *pauses) next() time.Duration {
	pause := p.now
	p.total += pause
	longest := p.longest
	if p.total >= quietAfter {
		longest = p.quiet
	}
	p.now = min(2*pause, longest)
	return pause
}

// loop steps until ctx is done. It pauses only when the ring has nothing.
func (d *drainer) loop(ctx context.Context) error {
	running.Add(1)
	defer running.Add(-1)
	idle := newPauses(d.config.PollInterval, running.Load())
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		isIdle, err := d.step(ctx)
		if err != nil {
			return err
		}
		d.tell()
		if !isIdle {
			idle = newPauses(d.config.PollInterval, running.Load())
			continue
		}
		timer.Reset(idle.next())
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
	}
	return nil
}

// step moves one batch all the way, or reports that there is none. The next one may be read meanwhile, but nothing is
// done with it before this one is released.
func (d *drainer) step(ctx context.Context) (isIdle bool, err error) {
	if d.isQuiet() {
		d.idle()
		return true, nil
	}
	if d.appender != nil && d.appender.Missing() != nil {
		return false, d.appender.Missing()
	}
	batch, err := d.next()
	if d.isAway(err) {
		batch, err = d.readWhenBack(ctx, err)
	}
	if errors.Is(err, farlog.ErrNotYet) {
		d.idle()
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if batch, err = d.refuseForged(ctx, batch); err != nil {
		return false, err
	}
	d.readAhead(batch)
	started := time.Now()
	err = d.retry(ctx, func() error { return d.persist(batch) })
	d.progress.SyncDuration = time.Since(started)
	d.awaitAhead()
	if err != nil || d.isUndone(batch) {
		return false, err
	}
	if err := d.release(ctx, batch); err != nil {
		return false, fmt.Errorf("release ring %q up to lsn %d: %w", d.config.RingURI, batch.NextLSN, err)
	}
	d.account(batch)
	return false, nil
}

// read takes all that is there, up to the buffer's size: what came while the last batch was synced goes out with one
// sync.
func (d *drainer) read() (farlog.Batch, error) {
	buffer := takeBuffer(d.buffers.class, d.config.BatchBytes)
	batch, err := d.reader.Read(buffer.bytes)
	var large *farlog.TooLargeError
	if errors.As(err, &large) && large.Need <= int(d.source.RecordLenMax) {
		buffer = &readBuffer{make([]byte, large.Need), buffer.class}
		batch, err = d.reader.Read(buffer.bytes)
	}
	d.watch.looked(batch, err)
	if err == nil {
		batch.Bytes = d.buffers.keep(buffer, batch.Bytes, time.Now())
		return batch, nil
	}
	putBuffer(buffer)
	switch {
	case errors.Is(err, farlog.ErrNotYet):
		return batch, err
	case errors.Is(err, farlog.ErrCorrupt):
		why := "it can be read by now"
		if found, suspectErr := d.reader.Suspect(); suspectErr == nil {
			why = found.Text
		}
		return batch,
			fmt.Errorf("ring %q, stream %s: the record at lsn %d is unreadable although it was acknowledged (%s): %w",
				d.config.RingURI, d.source.StreamName, batch.FirstLSN, why, err)
	case errors.Is(err, farlog.ErrIO) && !d.isFar():
		return batch, fmt.Errorf("ring %q, stream %s: it cannot be read at lsn %d or behind it: check its disk "+
			"or memory, for a namespace over the network its connection, and the kernel's log (dmesg); when it does "+
			"not come back: farlog ring salvage '%s': %w",
			d.config.RingURI, d.source.StreamName, d.progress.HeadLSN, d.config.RingURI, err)
	}
	return batch, fmt.Errorf("read ring %q: %w", d.config.RingURI, err)
}

// persist makes a batch durable in the store. It may be repeated with the same batch: the store drops what it has.
func (d *drainer) persist(batch farlog.Batch) error {
	if d.appender == nil {
		if err := d.openAppender(); err != nil {
			return err
		}
		// The stream's directory may be another one than before: a store that lacks what was released begins again with
		// any record.
		if err := checkHead(d.config, d.source, d.progress.HeadLSN, d.appender.Last()); err != nil {
			return err
		}
	}
	duplicates, err := d.appendWhole(batch.Bytes)
	if err != nil {
		return fmt.Errorf("append lsn %d to %d: %w", batch.FirstLSN, batch.NextLSN, err)
	}
	if d.config.afterAppend != nil {
		d.awaitAhead()
		d.config.afterAppend(d, batch)
	}
	if err := d.appender.Sync(); err != nil {
		return fmt.Errorf("sync after lsn %d: %w", batch.NextLSN, err)
	}
	if batch.FirstLSN >= d.startLSN {
		duplicates = 0 // of an attempt before this one
	}
	d.progress.Duplicates += uint64(duplicates)
	d.progress.Records += batch.RecordCount - min(uint64(duplicates), batch.RecordCount)
	return nil
}

// appendWhole appends a batch. One that is larger than a segment goes in halves, cut between two records.
func (d *drainer) appendWhole(batch []byte) (duplicates int, err error) {
	_, duplicates, err = d.appender.Append(batch)
	if !errors.Is(err, store.ErrTooLarge) {
		return duplicates, err
	}
	cut := d.cutNearMiddle(batch)
	if cut == 0 {
		return duplicates, err
	}
	first, err := d.appendWhole(batch[:cut])
	if err != nil {
		return first, err
	}
	second, err := d.appendWhole(batch[cut:])
	return first + second, err
}

// cutNearMiddle gives the offset of the first record at or behind the middle of a batch; 0 when it is of one record
// alone.
func (d *drainer) cutNearMiddle(batch []byte) int {
	at, last := 0, 0
	for at < len(batch) {
		header, err := record.ParseHeader(batch[at:])
		if err != nil {
			return 0 // the reader checked it: cannot be
		}
		last = at
		at += int(header.StoredLen(d.source.Align))
		if at >= len(batch)/2 && at < len(batch) {
			return at
		}
	}
	return last
}

// retry repeats what fails for want of space, with growing pauses, and says so meanwhile. Any other error ends it.
func (d *drainer) retry(ctx context.Context, attempt func() error) error {
	delays := retry.New(retryIntervalMin, retryIntervalMax)
	for {
		err := attempt()
		if err == nil {
			d.recovered()
			return nil
		}
		isBroken := errors.Is(err, store.ErrBroken) && !errors.Is(err, store.ErrGone)
		if isBroken && d.appender != nil {
			_ = d.appender.Close() // says again what broke it
			d.appender = nil
		}
		if !isBroken && !errors.Is(err, store.ErrNoSpace) {
			return err
		}
		d.stuck("drain is stuck, will go on by itself when there is space", err)
		d.look(time.Now())
		d.report()
		if err := delays.Wait(ctx); err != nil {
			return err
		}
	}
}

// stuck says so once, and keeps the reason for whoever asks.
func (d *drainer) stuck(text string, err error) {
	if d.progress.LastError == "" {
		d.config.Logger.Error(text, "stream", d.source.StreamName, "ring", d.config.RingURI, "store",
			d.config.Store.Dir(), "error", err)
	}
	d.progress.LastError = err.Error()
	d.progress.UnconfirmedBytes = 0 // what could be stored waits as well
	d.progress.Retries++
}

func (d *drainer) recovered() {
	if d.progress.LastError != "" {
		d.config.Logger.Info("drain goes on", "stream", d.source.StreamName, "retries", d.progress.Retries)
	}
	d.progress.LastError = ""
}

func (d *drainer) idle() {
	now := time.Now()
	d.caughtUpAt = now
	d.suspect(now)
	if now.Sub(d.statusAt) >= statusInterval {
		d.buffers.rest(now)
		d.look(now)
		d.progress.UnconfirmedBytes = unconfirmed(d.progress.Members, d.progress.HeadLSN)
		d.report()
	}
}

func (d *drainer) account(batch farlog.Batch) {
	p := &d.progress
	p.StoredLSN, p.HeadLSN, p.LastEpoch = batch.NextLSN, batch.NextLSN, batch.LastEpoch
	p.Bytes += uint64(len(batch.Bytes))
	p.Batches++
	p.BatchBytes = len(batch.Bytes)
	d.lastRecordAt = batch.LastTimestamp
	p.Suspect, p.UnconfirmedBytes = "", 0
	d.suspicion.later(time.Now())
	if batch.Rewound {
		d.config.Logger.Warn("a power cut undid unacknowledged records that were already drained: they are superseded",
			"stream", d.source.StreamName, "from_lsn", batch.FirstLSN, "epoch", batch.LastEpoch)
	}
	if now := time.Now(); now.Sub(d.statusAt) >= statusInterval {
		d.look(now)
	}
	d.report()
}

// look asks the ring how far its writer is; of a quiet one the page has just told.
func (d *drainer) look(now time.Time) {
	d.awaitAhead()
	d.progress.Members = d.reader.Members()
	if d.watch.isQuiet {
		d.statusAt = now
		return
	}
	if status, err := d.reader.Status(); err == nil {
		d.progress.AppendedLSN = status.AppendedLSN
		d.statusAt = now
	}
}

// anchor commits to the store's end, now and then: it waits until the last batch is hashed.
func (d *drainer) anchor() {
	if d.appender == nil || time.Since(d.anchoredAt) < anchorInterval {
		return
	}
	d.anchoredAt = time.Now()
	if anchor, ok := d.appender.Anchor(); ok {
		d.progress.Anchor = &anchor
	}
}

func (d *drainer) report() {
	d.anchor()
	p := &d.progress
	p.AppendedLSN = max(p.AppendedLSN, p.HeadLSN)
	p.LagBytes = p.AppendedLSN - p.HeadLSN
	p.LagAge, p.ForgedText = 0, d.forgedNow()
	if p.LagBytes > 0 {
		since := d.caughtUpAt
		if d.lastRecordAt.After(since) {
			since = d.lastRecordAt
		}
		p.LagAge = max(0, time.Since(since))
	}
	d.config.OnProgress(*p)
}
