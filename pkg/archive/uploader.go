package archive

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/farlog/farlog/pkg/retention"
	"github.com/farlog/farlog/pkg/retry"
	"github.com/farlog/farlog/pkg/store"
)

// PollIntervalDefault is the pause between two looks at a store that had nothing new.
const PollIntervalDefault = 5 * time.Second

const (
	pauseShortest = time.Second // between tries of a stream that failed
	pauseLongest  = time.Minute
	streamsAtOnce = 4
	extendedEvery = 24 * time.Hour
	putAhead      = time.Hour // what a put may take: an order's period begins when its manifest is there
	lookInterval  = time.Hour // after which the archive is asked again what it has; retention believes it for a day
)

// Config of an Uploader.
type Config struct {
	Store        *store.Store
	Bucket       *Bucket
	Keep         Period        // each object is locked so long from when it is put
	PollInterval time.Duration // 0 = PollIntervalDefault
	Logger       *slog.Logger  // nil = slog.Default()
	// Started is called by Run once this process is the store's; its error ends Run. nil: nobody has to know.
	Started func() error
}

// Progress is how far the archive of one stream is. Counts are since the Uploader was made.
type Progress struct {
	Stream   string    `json:"stream"`
	Archived uint64    `json:"archived_segment"` // the newest that is committed and read back; 0 = none
	Sealed   uint64    `json:"sealed_segment"`   // the newest that the store has sealed
	Segments uint64    `json:"segments"`         // committed
	Objects  uint64    `json:"objects"`          // put or found, and read back
	Bytes    uint64    `json:"bytes"`            // of those
	LagBytes int64     `json:"lag_bytes"`        // of sealed segments that are not committed
	Oldest   uint64    `json:"oldest_segment"`   // of those; 0 = none
	SealedAt time.Time `json:"oldest_sealed_at"` // when it was sealed
	IsKnown  bool      `json:"lag_known"`        // the archive and the store were asked
	Error    string    `json:"error,omitempty"`
}

// Lag is how long the oldest sealed segment that is not committed waits.
func (p Progress) Lag(now time.Time) time.Duration {
	if p.Oldest == 0 {
		return 0
	}
	return max(0, now.Sub(p.SealedAt))
}

// Uploader archives the sealed segments of all streams of a store. One process a store: it holds a lock in the store.
type Uploader struct {
	config Config
	writer *Writer

	mutex       sync.Mutex
	extendedAt  time.Time // when all locks were last as the journal orders; zero: they may not be
	isExtendDue bool      // a segment or an order needs it sooner
	sharedUntil time.Time // Extended.shared of then
	notExtended string    // why locks are not as ordered
	streams     map[string]*streamUpload
	failure     string // why the streams are not known, or the archive not claimed
}

// streamUpload is one stream; its own goroutine at a time has it, progress is under the mutex of Uploader.
type streamUpload struct {
	progress Progress
	isAsked  bool // committed is what the archive has
	askedAt  time.Time
	committed
	delays  retry.Delays
	retryAt time.Time
}

// NewUploader makes an Uploader; Once or Run lets it work.
func NewUploader(config Config) *Uploader {
	if config.PollInterval <= 0 {
		config.PollInterval = PollIntervalDefault
	}
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	u := &Uploader{config: config, streams: map[string]*streamUpload{}, failure: "the archive has not been asked yet"}
	u.writer = NewWriter(config.Store, config.Bucket, config.Keep)
	u.writer.wrote = u.count
	return u
}

func (u *Uploader) count(stream string, v Version) {
	u.mutex.Lock()
	defer u.mutex.Unlock()
	s := u.streams[stream]
	s.progress.Objects++
	s.progress.Bytes += uint64(v.Size)
}

// Progress gives that of all streams, by name; failure says why nothing is known.
func (u *Uploader) Progress() (list []Progress, failure string) {
	u.mutex.Lock()
	defer u.mutex.Unlock()
	for _, s := range u.streams {
		list = append(list, s.progress)
	}
	slices.SortFunc(list, func(a, b Progress) int {
		if a.Stream < b.Stream {
			return -1
		}
		return 1
	})
	return list, cmp.Or(u.failure, u.notExtended)
}

// Run archives until ctx is done. What fails is tried again, with pauses; one stream holds up no other. Errors: those
// of Claim that need another start, and a second process: what a probe or a policy at the storage mends is waited for.
func (u *Uploader) Run(ctx context.Context) error {
	unlock, err := u.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if u.config.Started != nil {
		if err := u.config.Started(); err != nil {
			return err
		}
	}
	delays := retry.New(pauseShortest, pauseLongest)
	for {
		err := u.claim(ctx)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return nil
		}
		if !isUncertain(err) && !errors.Is(err, ErrNotProved) && !errors.Is(err, ErrRefused) &&
			!errors.Is(err, ErrDenied) {
			return err
		}
		u.config.Logger.Error("archive cannot be claimed, retrying", "archive", u.config.Bucket.String(), "error", err)
		_ = delays.Wait(ctx) // the loop sees that it is over
	}
	var extending sync.WaitGroup
	extending.Go(func() { u.keepExtended(ctx) })
	defer extending.Wait()
	for ctx.Err() == nil {
		_ = u.pass(ctx, false) // each stream's error is in its progress, and logged
		_ = retry.Sleep(ctx, u.config.PollInterval)
	}
	return nil
}

// Once archives what is sealed now. Errors: those of Claim, a second process, and all of streams.
func (u *Uploader) Once(ctx context.Context) error {
	unlock, err := u.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if err := u.claim(ctx); err != nil {
		return err
	}
	return errors.Join(u.pass(ctx, true), u.extend(ctx))
}

func (u *Uploader) lock() (func(), error) {
	name := u.config.Store.Dir() + "/archive.lock"
	lock, err := store.OS.Lock(name, "farlog-archive to "+u.config.Bucket.String())
	if err != nil {
		return nil, fmt.Errorf("archive %s: lock %s: %w", u.config.Store.Dir(), name, err)
	}
	return func() { _ = lock.Close() }, nil // the process's end would do
}

func (u *Uploader) claim(ctx context.Context) error {
	err := u.writer.Claim(ctx)
	if err != nil && ctx.Err() == nil && !isUncertain(err) {
		err = errors.Join(err, u.withdrawAll())
	}
	u.mutex.Lock()
	defer u.mutex.Unlock()
	if u.failure = ""; err != nil {
		u.failure = err.Error()
	}
	return err
}

// pass archives what is sealed, several streams at once. isNow: also of streams that rest after an error.
func (u *Uploader) pass(ctx context.Context, isNow bool) error {
	names, err := u.config.Store.Streams()
	u.mutex.Lock()
	if u.failure = ""; err != nil {
		u.failure = err.Error()
	}
	var due []*streamUpload
	for _, name := range names {
		s := u.streams[name]
		if s == nil {
			s = &streamUpload{progress: Progress{Stream: name}, delays: retry.New(pauseShortest, pauseLongest)}
			u.streams[name] = s
		}
		if isNow || !time.Now().Before(s.retryAt) {
			due = append(due, s)
		}
	}
	u.mutex.Unlock()
	if err != nil {
		return err
	}
	errs := make([]error, len(due))
	var running sync.WaitGroup
	free := make(chan struct{}, streamsAtOnce)
	for i, s := range due {
		free <- struct{}{}
		running.Go(func() {
			errs[i] = u.stream(ctx, s)
			<-free
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

// stream archives one stream, and keeps what came of it.
func (u *Uploader) stream(ctx context.Context, s *streamUpload) error {
	err := u.archive(ctx, s)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		if !s.isAsked && !isUncertain(err) {
			err = errors.Join(err, u.withdraw(s.progress.Stream))
		}
		err = fmt.Errorf("archive stream %s: %w", s.progress.Stream, err)
		s.isAsked = false // ask again what the archive has
		s.retryAt = time.Now().Add(s.delays.NextBackOff())
	} else {
		s.delays.Reset()
	}
	u.mutex.Lock()
	defer u.mutex.Unlock()
	before := s.progress.Error
	s.progress.Error = ""
	if err != nil {
		s.progress.Error = err.Error()
	}
	if s.progress.Error != "" && s.progress.Error != before {
		u.config.Logger.Error("archive of a stream is blocked, retrying", "error", err)
	}
	return err
}

func (u *Uploader) archive(ctx context.Context, s *streamUpload) error {
	stream := s.progress.Stream
	sealed, err := u.config.Store.Sealed(stream)
	if err != nil {
		return err
	}
	if err := u.look(ctx, s, sealed); err != nil {
		return err
	}
	waiting, err := u.waiting(s, sealed)
	if err != nil {
		return err
	}
	u.measure(s, waiting)
	if err := u.putBases(ctx, s, sealed); err != nil {
		return err
	}
	var journal Journal
	if len(waiting) > 0 {
		if journal, err = u.config.Bucket.ReadJournal(ctx); err != nil {
			return err
		}
	}
	for i, m := range waiting {
		if err := u.look(ctx, s, sealed); err != nil {
			return err
		}
		if want := s.next(sealed.First); m.Segment != want {
			return fmt.Errorf("%w: the archive goes to segment %d, the store begins with %d: it is not archived any "+
				"further; archive this store under another prefix", ErrGap, want-1, m.Segment)
		}
		now := u.writer.now()
		_, ordered := journal.required(coveredBy(m, now.Add(putAhead)), now, holdRenew)
		until := maxTime(u.config.Keep.After(now), ordered)
		if err := u.writer.putSegment(ctx, stream, m, s.manifest, until); err != nil {
			return err
		}
		u.lockedUntil(ordered, u.writer.now().Sub(now))
		s.lock(until)
		if err := u.took(s, m.Segment); err != nil {
			return err
		}
		if journal, err = u.followJournal(ctx, journal); err != nil {
			return err
		}
		u.measure(s, waiting[i+1:])
	}
	return nil
}

// look asks what the archive has, after an error and once in lookInterval.
func (u *Uploader) look(ctx context.Context, s *streamUpload, sealed store.Sealed) (err error) {
	now := u.writer.now()
	if age := now.Sub(s.askedAt); s.isAsked && age >= 0 && age < lookInterval {
		return nil
	}
	s.isAsked = false
	if s.committed, err = u.writer.committed(ctx, s.progress.Stream, sealed.First); err != nil {
		return err
	}
	s.askedAt = now
	if err := u.confirmed(s, sealed); err != nil {
		return err
	}
	s.isAsked = true
	return nil
}

// waiting are the manifests of what is sealed and not committed.
func (u *Uploader) waiting(s *streamUpload, sealed store.Sealed) ([]store.Manifest, error) {
	list, err := waiting(u.config.Store, s.progress.Stream, sealed, s.last)
	if err != nil {
		return nil, err
	}
	u.mutex.Lock()
	defer u.mutex.Unlock()
	s.progress.IsKnown, s.progress.Sealed = true, newest(sealed)
	return list, nil
}

func waiting(from *store.Store, stream string, sealed store.Sealed, last uint64) (list []store.Manifest, err error) {
	for _, number := range sealed.Segments {
		if number <= last {
			continue
		}
		m, _, err := from.ReadManifest(stream, number)
		if err != nil {
			return nil, err
		}
		list = append(list, m)
	}
	return list, nil
}

func newest(sealed store.Sealed) uint64 {
	if len(sealed.Segments) == 0 {
		return 0
	}
	return sealed.Segments[len(sealed.Segments)-1]
}

// putBases says in an archive that begins behind the first segment where it begins.
func (u *Uploader) putBases(ctx context.Context, s *streamUpload, sealed store.Sealed) error {
	if s.last != 0 || len(sealed.Segments) == 0 {
		return nil
	}
	if err := u.writer.putIdentity(ctx, u.config.Keep.After(u.writer.now())); err != nil {
		return err
	}
	for _, number := range sealed.Bases {
		if s.bases[number] {
			continue
		}
		v, err := u.writer.putFile(ctx, store.BaseFile(s.progress.Stream, number), u.config.Keep.After(u.writer.now()))
		if err != nil {
			return err
		}
		u.count(s.progress.Stream, v)
		s.bases[number] = true
	}
	return nil
}

// took counts a segment that was committed and read back, and says so in the store: then retention may remove it.
func (u *Uploader) took(s *streamUpload, number uint64) error {
	_, raw, err := u.config.Store.ReadManifest(s.progress.Stream, number)
	if err != nil {
		return err
	}
	digest := sha256.Sum256(raw)
	s.manifest, s.last = hex.EncodeToString(digest[:]), number
	if s.first == 0 {
		s.first = number
	}
	u.mutex.Lock()
	s.progress.Segments++
	u.mutex.Unlock()
	return u.say(s)
}

// say writes how far the stream is archived.
func (u *Uploader) say(s *streamUpload) error {
	u.mutex.Lock()
	s.progress.Archived = s.last
	u.mutex.Unlock()
	return retention.Archived{
		Stream: s.progress.Stream, Segment: s.last, ManifestSHA256: s.manifest,
		Archive: u.config.Bucket.String(), ConfirmedAt: s.askedAt.UTC().Format(time.RFC3339),
		LockedUntil: s.lockedUntil.UTC().Format(time.RFC3339),
	}.Save(u.config.Store)
}

// withdraw says in the store that nothing of a stream is archived: a look at the archive gave a definite error, and
// what was said before holds no more. The next look that succeeds says it again.
func (u *Uploader) withdraw(stream string) error {
	was, err := retention.LoadArchived(u.config.Store, stream)
	if err == nil && was.Segment == 0 {
		return nil
	}
	u.mutex.Lock()
	if s := u.streams[stream]; s != nil {
		s.progress.Archived = 0
	}
	u.mutex.Unlock()
	return retention.Archived{
		Stream: stream, Archive: u.config.Bucket.String(), ConfirmedAt: u.writer.now().UTC().Format(time.RFC3339),
	}.Save(u.config.Store)
}

func (u *Uploader) withdrawAll() error {
	streams, err := u.config.Store.Streams()
	errs := []error{err}
	for _, stream := range streams {
		errs = append(errs, u.withdraw(stream))
	}
	return errors.Join(errs...)
}

// confirmed compares what the archive has with the store, and says it, also when it is less than was said before.
func (u *Uploader) confirmed(s *streamUpload, sealed store.Sealed) error {
	if s.first > sealed.First {
		return fmt.Errorf("%w: stream %s: the archive begins with segment %d, the store with %d, expected the archive "+
			"to have all between: archive this store under another prefix", ErrNotAnArchive, s.progress.Stream,
			s.first, sealed.First)
	}
	if s.last != 0 && s.last >= sealed.First {
		_, raw, err := u.config.Store.ReadManifest(s.progress.Stream, s.last)
		if err != nil {
			return err
		}
		if digest := sha256.Sum256(raw); hex.EncodeToString(digest[:]) != s.manifest {
			return fmt.Errorf("%w: stream %s: the manifest of segment %d has SHA-256 %s in the archive and %x in the "+
				"store", ErrConflict, s.progress.Stream, s.last, s.manifest, digest)
		}
	}
	return u.say(s)
}

// measure says what waits.
func (u *Uploader) measure(s *streamUpload, waiting []store.Manifest) {
	u.mutex.Lock()
	defer u.mutex.Unlock()
	s.progress.measure(waiting)
}

func (p *Progress) measure(waiting []store.Manifest) {
	p.LagBytes, p.Oldest, p.SealedAt = 0, 0, time.Time{}
	for _, m := range waiting {
		p.LagBytes += m.UsedBytes
	}
	if len(waiting) > 0 {
		p.Oldest = waiting[0].Segment
		p.SealedAt, _ = time.Parse(time.RFC3339Nano, waiting[0].SealedAt) // signed; zero is a long lag
	}
}
