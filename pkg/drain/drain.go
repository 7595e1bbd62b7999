// Package drain takes whole records out of a ring and puts them into a store.
//
// There is one order, and the guarantee rests on it: append to the store, sync the store, then release the ring's
// head. While a batch goes that way the next one is only read and checked. A drain may die between any two steps: the
// next one reads the same records again and the store drops those it has, by (stream, epoch, lsn). A full disk stops
// the drain and nothing else: the ring fills, its writer gets FULL, and all goes on when there is space again. So does
// a ring on another host that cannot be reached.
package drain

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/store"
)

// Defaults of Config.
const (
	BatchBytesDefault   = 1 << 20
	PollIntervalDefault = time.Millisecond
)

// ErrStoreBehind: the ring's head says that records were stored which this store does not have.
var ErrStoreBehind = errors.New("store has less than the ring released")

// ErrSuperseded: another drain has come with this one's token, or has moved the ring's head. To open the ring again
// takes it from that one.
var ErrSuperseded = errors.New("another drain has taken this one's place")

// Config says what one drain drains, and where to.
type Config struct {
	RingURI  string
	RingUUID [16]byte               // refuse any other ring; zero = take what is there
	Token    *[farlog.TokenLen]byte // of a drain's grant, for a ring on another host
	Members  []farlog.Member        // of a stream with several rings: in place of RingUUID and Token
	// Stream is the stream's name in the store; "" = the one that the ring was formatted with.
	Stream string
	Store  *store.Store
	// LostLSN: what the ring released below it was in a store that is lost for good, and is not expected in this one,
	// which has nothing of the ring yet. 0 = nothing is lost.
	LostLSN uint64
	// BatchBytes is how much is read, appended and synced at once; 0 = 1 MiB. A drain with large batches has three
	// buffers of that size; a record that is larger gets its own. Drains with small ones share a few.
	BatchBytes int
	// PollInterval is the longest pause between two looks at an idle ring; 0 = 1 ms. When no record came for 100 ms it
	// is up to five times that, but not above 5 ms (unless PollInterval is), until the next one comes. With more than
	// 100 drains in the process it is at least 10 us for each of them.
	PollInterval time.Duration
	// Tails, when it is shared by many drains of rings at one target, takes one READ a round for all of them while they
	// are idle; nil = each looks at its ring.
	Tails  *Tails
	Logger *slog.Logger // nil = slog.Default()
	// IsRetry: the run before ended with an error. That this one has started is logged when it has looked at the ring
	// and not before: where it would end the same way at once, and again, the log would say nothing else.
	IsRetry bool
	// OnProgress is called from Run's goroutine after each batch, while the drain is stuck, and every 200 ms when idle.
	OnProgress func(Progress)
	// OnOpen is called from Run's goroutine with the stream's appender whenever it was opened; nil = nobody is told.
	OnOpen func(*store.Appender)

	afterAppend func(*drainer, farlog.Batch) // crash tests break the order of the steps here
}

// Progress is how far a drain has come. Counts are since Run began.
type Progress struct {
	Stream    string
	RingUUID  [16]byte
	StoredLSN uint64 // first LSN that is not yet synced in the store
	HeadLSN   uint64 // first LSN that is not yet released
	LastEpoch uint32 // of the last record stored

	// read from the ring and synced in the store, duplicates not counted; the ring's own records included
	Records    uint64
	Bytes      uint64
	Batches    uint64
	Duplicates uint64 // read again after a restart: the store had them

	AppendedLSN uint64        // the writer's last word, at most 200 ms old
	LagBytes    uint64        // appended, not yet released
	LagAge      time.Duration // how long the oldest undrained record waits, at most
	// UnconfirmedBytes are all that is left in the rings of a stream with several: no member is away, and fewer than
	// needed have them. The next writer decides what becomes of them.
	UnconfirmedBytes uint64

	BatchBytes   int           // of the last batch
	SyncDuration time.Duration // of the last batch: append and sync
	Retries      uint64        // attempts that failed for want of space, or of an answer from the ring's host
	LastError    string        // why the drain is stuck; "" when it is not
	// what stands still where the next record would be, and which check it fails; "" = nothing of that kind
	Suspect string

	Forged     uint64 // records that were refused, with a right checksum, because no writer makes them
	ForgedText string // which, for ten minutes after the last one; "" = none

	Members []farlog.MemberStatus // of a stream with several rings, in the order of its URI

	Anchor *store.Anchor // of the store's end, at most a second older than it; nil: the store has nothing
}

// Run drains one ring, or the rings of a stream that has several, into one stream until ctx is done (then it returns
// nil) or something fails that cannot be retried. A full disk is retried for ever, a ring on another host that does not
// answer for half a minute. The ring's drain lock and the stream's lock are held meanwhile.
//
// Errors: those of farlog.OpenReader and store.OpenStream, store.ErrGone and store.ErrMissing (the ring keeps what it
// has), ErrStoreBehind, ErrSuperseded, farlog.ErrCorrupt (the text names ring and lsn).
func Run(ctx context.Context, config Config) error {
	d, err := open(ctx, config)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	err = d.loop(ctx)
	if errors.Is(err, farlog.ErrHeld) {
		err = fmt.Errorf("%w: %w", ErrSuperseded, err)
	}
	if closeErr := d.close(); err == nil {
		err = closeErr
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}

func (c Config) withDefaults() Config {
	if c.BatchBytes <= 0 {
		c.BatchBytes = BatchBytesDefault
	}
	if c.PollInterval <= 0 {
		c.PollInterval = PollIntervalDefault
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.OnProgress == nil {
		c.OnProgress = func(Progress) {}
	}
	if c.OnOpen == nil {
		c.OnOpen = func(*store.Appender) {}
	}
	return c
}

// openReader takes the ring's drain lock and learns whose ring it is.
func openReader(config Config) (*farlog.Reader, store.Source, error) {
	options := farlog.ReaderOptions{Drain: true, Token: config.Token, Members: config.Members}
	if config.RingUUID != [16]byte{} {
		options.RingUUID = &config.RingUUID
	}
	reader, err := farlog.OpenReader(config.RingURI, options)
	if err != nil {
		return nil, store.Source{}, fmt.Errorf("open ring for draining: %w", err)
	}
	status, err := reader.Status()
	if err != nil {
		_ = reader.Close()
		return nil, store.Source{}, fmt.Errorf("read status of ring %q: %w", config.RingURI, err)
	}
	source := store.Source{
		StreamName:   status.StreamName,
		StreamID:     status.StreamID,
		RingUUID:     status.RingUUID,
		Salt:         status.Salt,
		Align:        status.Align,
		RecordLenMax: status.RecordLenMax,
	}
	if config.Stream != "" {
		source.StreamName = config.Stream
	}
	return reader, source, nil
}

// checkHead compares the store's end with the ring's head: what was released must be in this store.
func checkHead(config Config, source store.Source, headLSN uint64, last store.Checkpoint) error {
	if headLSN == 0 || last.OK && last.NextLSN >= headLSN || !last.OK && headLSN <= config.LostLSN {
		return nil
	}
	holds := "nothing of it"
	if last.OK {
		holds = fmt.Sprintf("it only up to lsn %d", last.NextLSN)
	}
	return fmt.Errorf("%w: ring %q (%s, stream %s) was drained up to lsn %d, but store %s holds %s; drain it into "+
		"the store that has the rest",
		ErrStoreBehind, config.RingURI, hex.EncodeToString(source.RingUUID[:4]), source.StreamName, headLSN,
		config.Store.Dir(), holds)
}
