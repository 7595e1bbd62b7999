package replica

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/farlog/farlog/pkg/record"
	"github.com/farlog/farlog/pkg/retry"
	"github.com/farlog/farlog/pkg/store"
)

// Defaults of Config.
const (
	PollIntervalDefault = 200 * time.Millisecond

	askAgain   = 2 * time.Second // when the first store did not answer
	pieceBytes = 256 << 10
	retryLeast = 200 * time.Millisecond
	retryMost  = 10 * time.Second
)

// Config of a replica.
type Config struct {
	Source       Source
	Store        *store.Store
	PollInterval time.Duration // between two questions to the first store for what has changed; 0 = 200 ms
	Logger       *slog.Logger  // nil = slog.Default()
	OnRound      func()        // called whenever the first store is asked again; nil = nobody is told

	pieceBytes int // what is appended at once; tests have small segments
}

// Progress is how far the replica of one stream is. Counts are since Run began.
type Progress struct {
	Stream   string
	Place    store.Place // of the last record that is synced here
	Records  uint64
	Bytes    uint64
	LagBytes int64 // synced at the first site and not here, when that was asked last; 0 unless IsLagKnown
	// since the last moment at which nothing was, as far as this process knows: since Run began at most
	LagAge time.Duration
	// IsLagKnown: the first site was asked since Run began.
	IsLagKnown bool
	LastError  string // "" while it goes well
}

// Replica follows the streams of one store.
type Replica struct {
	config Config

	mutex     sync.Mutex
	followers map[string]*follower
	failure   string    // why the first site does not answer
	mark      string    // of its last answer; Run's goroutine
	heardAt   time.Time // of the first site: when all of its streams were measured there

	asked     chan struct{} // closed when the first site was asked once
	askedOnce sync.Once
}

// follower copies one stream.
type follower struct {
	config   Config
	stream   string
	appender *store.Appender
	current  store.Generation // that the appender writes
	place    store.Place
	wakeup   chan struct{} // the first site has other records
	meter    *store.Meter  // of what is here; Run's goroutine

	mutex     sync.Mutex
	progress  Progress
	caughtUp  time.Time
	isSettled bool // the first site had nothing more, and has said of no change since

	isRunning bool // under the mutex of Replica: the first site has the stream
}

// New makes a replica; Run lets it work.
func New(config Config) *Replica {
	if config.PollInterval <= 0 {
		config.PollInterval = PollIntervalDefault
	}
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	if config.OnRound == nil {
		config.OnRound = func() {}
	}
	config.pieceBytes = pieceBytes
	return &Replica{
		config: config, followers: map[string]*follower{}, failure: "it has not been asked yet",
		asked: make(chan struct{}),
	}
}

// Run copies until ctx is done. What fails is tried again: a first site that does not answer, a disk that is full. One
// stream holds up no other.
func (r *Replica) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	r.recall()
	for ctx.Err() == nil {
		r.config.OnRound()
		pause := r.config.PollInterval
		if !r.ask(ctx, &running) {
			pause = max(pause, askAgain)
		}
		r.askedOnce.Do(func() { close(r.asked) })
		_ = retry.Sleep(ctx, pause) // the loop sees that it is over
	}
}

// Asked is closed once Run has asked the first site; Progress says what came of it.
func (r *Replica) Asked() <-chan struct{} { return r.asked }

// recall begins with the streams that are here: until the first site answers, nobody knows how far they are behind, and
// that is told of each of them.
func (r *Replica) recall() {
	streams, err := r.config.Store.Streams()
	if err != nil {
		r.config.Logger.Error("streams of the second store cannot be listed", "store", r.config.Store.Dir(), "error",
			err)
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for _, stream := range streams {
		r.follower(stream)
	}
}

// follower is called with the mutex.
func (r *Replica) follower(stream string) *follower {
	f := r.followers[stream]
	if f == nil {
		f = &follower{
			config: r.config, stream: stream, caughtUp: time.Now(), wakeup: make(chan struct{}, 1),
			meter: r.config.Store.NewMeter(stream),
		}
		r.followers[stream] = f
	}
	return f
}

// ask waits for what has changed at the first site, and wakes those up who follow it.
func (r *Replica) ask(ctx context.Context, running *sync.WaitGroup) (isAnswered bool) {
	changes, err := r.config.Source.Changed(ctx, r.mark)
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if err != nil {
		if ctx.Err() == nil && r.failure != err.Error() {
			r.config.Logger.Error("first store does not answer, retrying", "error", err)
		}
		r.failure = err.Error()
		return false
	}
	r.failure, r.heardAt, r.mark = "", time.Now().Add(-changes.Age), changes.Mark
	for _, info := range changes.Streams {
		f := r.follower(info.Name)
		f.measure(info.Bytes)
		if f.isRunning {
			f.wake()
			continue
		}
		f.isRunning = true
		running.Go(func() { f.run(ctx) })
	}
	// which the first site does not have: there is nothing to follow
	maps.DeleteFunc(r.followers, func(_ string, f *follower) bool { return !f.isRunning })
	return true
}

// Progress gives that of all streams; failure says why the first site cannot be asked.
func (r *Replica) Progress() (list []Progress, failure string) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for _, f := range r.followers {
		p := f.report(r.heardAt)
		if p.LastError == "" {
			p.LastError = r.failure
		}
		list = append(list, p)
	}
	return list, r.failure
}

// measure compares what both sites have.
func (f *follower) measure(there int64) {
	here, err := f.meter.Bytes()
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return
	}
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.isSettled = f.isSettled && there == here
	f.progress.LagBytes, f.progress.IsLagKnown = max(0, there-here), true
}

// wake lets the stream be read.
func (f *follower) wake() {
	select {
	case f.wakeup <- struct{}{}:
	default:
	}
}

func (f *follower) report(heardAt time.Time) Progress {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	p := f.progress
	p.Stream = f.stream
	if f.isSettled && heardAt.After(f.caughtUp) {
		f.caughtUp = heardAt
	}
	p.LagAge = time.Since(f.caughtUp)
	return p
}

func (f *follower) run(ctx context.Context) {
	delays := retry.New(retryLeast, retryMost)
	for ctx.Err() == nil {
		err := f.follow(ctx)
		if closeErr := f.close(); err == nil {
			err = closeErr
		}
		if ctx.Err() != nil {
			return
		}
		f.mutex.Lock()
		isNew := f.progress.LastError != err.Error()
		if f.progress.LastError == "" {
			delays.Reset()
		}
		f.progress.LastError = err.Error()
		f.mutex.Unlock()
		if isNew {
			f.config.Logger.Error("replica of a stream is blocked, retrying", "stream", f.stream, "error", err)
		}
		_ = delays.Wait(ctx) // the loop sees that it is over
	}
}

// follow copies until something fails.
func (f *follower) follow(ctx context.Context) error {
	if err := f.findPlace(); err != nil {
		return err
	}
	for ctx.Err() == nil {
		next := f.place
		next.LSN++
		if f.place.Generation == 0 {
			next = store.Place{}
		}
		batch, err := f.config.Source.Read(ctx, f.stream, next)
		if err != nil {
			return err
		}
		if err := f.put(batch); err != nil {
			return err
		}
		if !batch.IsEnd {
			continue
		}
		f.settled()
		select {
		case <-ctx.Done():
		case <-f.wakeup:
		}
	}
	return ctx.Err()
}

// settled: the first store had nothing behind what is here.
func (f *follower) settled() {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.progress.LastError = ""
	f.progress.LagBytes, f.progress.IsLagKnown, f.caughtUp, f.isSettled = 0, true, time.Now(), true
}

// findPlace looks up the last record that is synced here: it is the whole memory of a replica. Only the last generation
// is read, from its mark on.
func (f *follower) findPlace() error {
	f.place = store.Place{}
	reader, err := f.config.Store.OpenReader(f.stream, store.ReaderOptions{IncludeSuperseded: true, IsOpenFast: true})
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	known := reader.Generations()
	if err := reader.Close(); err != nil || len(known) == 0 {
		return err
	}
	if err := f.open(known[len(known)-1]); err != nil {
		return err
	}
	return nil
}

// open begins or goes on with a generation. What the appender found whole counts, and nothing else.
func (f *follower) open(generation store.Generation) error {
	if err := f.close(); err != nil {
		return err
	}
	appender, err := f.config.Store.OpenStream(generation.Source)
	if err != nil {
		return err
	}
	f.appender, f.current = appender, generation
	f.place = store.Place{Generation: generation.Number}
	if last := appender.Last(); last.OK {
		f.place.Epoch, f.place.LSN = last.Epoch, last.LSN
	}
	return nil
}

func (f *follower) close() error {
	if f.appender == nil {
		return nil
	}
	err := f.appender.Close()
	f.appender = nil
	return err
}

// put checks and stores a batch, and syncs it.
func (f *follower) put(batch Batch) error {
	if len(batch.Records) == 0 {
		return nil
	}
	last, count, err := check(batch)
	if err != nil {
		return fmt.Errorf("stream %s, from the first site: %w", f.stream, err)
	}
	if f.current.Number == 0 && batch.Generation.Number > 1 {
		return fmt.Errorf(
			"%w: stream %s begins with generation %d at the first site, and this store has nothing of it: "+
				"a replica that begins there would count generations from 1; begin with a copy of the first store's "+
				"directory",
			store.ErrRemoved,
			f.stream,
			batch.Generation.Number,
		)
	}
	if f.appender == nil || f.current.Source != batch.Generation.Source {
		if f.current.Number != 0 && batch.Generation.Number != f.current.Number+1 && f.appender != nil {
			return fmt.Errorf("stream %s: generation %d at the first site after %d here", f.stream,
				batch.Generation.Number, f.current.Number)
		}
		if err := f.open(batch.Generation); err != nil {
			return err
		}
	}
	if err := f.appendAll(batch); err != nil {
		return err
	}
	if err := f.appender.Sync(); err != nil {
		return err
	}
	f.place = store.Place{Generation: batch.Generation.Number, Epoch: last.Epoch, LSN: last.LSN}
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.progress.Place, f.progress.LastError = f.place, ""
	f.progress.Records += count
	f.progress.Bytes += uint64(len(batch.Records))
	f.progress.LagBytes = max(0, f.progress.LagBytes-int64(len(batch.Records)))
	return nil
}

// appendAll appends in pieces that fit into any segment.
func (f *follower) appendAll(batch Batch) error {
	rest := batch.Records
	for len(rest) > 0 {
		used := 0
		for used < len(rest) {
			h, err := record.ParseHeader(rest[used:])
			if err != nil {
				return err // check has looked at it: cannot be
			}
			length := int(h.StoredLen(batch.Generation.Align))
			if used > 0 && used+length > max(f.config.pieceBytes, 4096) {
				break
			}
			used += length
		}
		if _, _, err := f.appender.Append(rest[:used:used]); err != nil {
			return err
		}
		rest = rest[used:]
	}
	return nil
}

// check makes every record prove itself: what came over a wire or from another disk is believed as little as what a
// ring holds.
func check(batch Batch) (last record.Header, count uint64, err error) {
	id := batch.Generation.Identity()
	for rest := batch.Records; len(rest) > 0; {
		rec, err := record.Decode(rest, id)
		if errors.Is(err, record.ErrShort) {
			err = fmt.Errorf("%w: %w", io.ErrUnexpectedEOF, err)
		}
		if err != nil {
			return last, count, fmt.Errorf("behind lsn %d: %w", last.LSN, err)
		}
		last = rec.Header
		if !rec.Flags.IsPad() {
			count++
		}
		rest = rest[len(rec.Raw):]
	}
	return last, count, nil
}
