// Package consume reads a stream live, beside its drain: its history from a store, joined to what lies in its ring,
// each record once.
//
// A ring holds what is not yet drained. A consumer that is slower than writer and drain is overtaken there: it is told
// so, with the positions, and catches up from the store, where every drained record is. It holds no lock and slows
// nobody. Records are told apart by (generation, epoch, lsn): a later epoch's replace those of an earlier one that were
// never acknowledged.
package consume

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/record"
	"github.com/farlog/farlog/pkg/store"
)

// Start says where a consumer begins that has no position.
type Start int

// The starts.
const (
	StartHead   Start = iota // what is in the ring: the oldest record that is not drained
	StartEnd                 // what is appended from now on
	StartOldest              // the first record in the store
	StartPlace               // Config.Place, or the first behind it
	StartTime                // the first record at or after Config.Time
)

const bufferBytesDefault = 1 << 20

// Config of a consumer. Stream is needed with Store.
type Config struct {
	// "" = only what is in the store, as it comes; "farlog://NAME" leaves it to the host agent where the ring is
	RingURI string
	Token   *[farlog.TokenLen]byte // of a reader's grant, for a ring on another host
	// of a stream with several rings: what its grant says of each, in the order of RingURI; nil = nothing
	Members []farlog.Member
	Stream  string
	// nil = only what is in the ring: what was overtaken is lost for this consumer, and it says so
	Store  *store.Store
	Start  Start
	Place  store.Place
	Time   time.Time
	Filter Filter
	// where it has got to, kept in a file; nil = it is not kept. A position that is there goes before Start
	Position *Position
	// BufferBytes is how much is copied out of the ring at once; 0 = 1 MiB. One larger record makes it grow.
	BufferBytes int
	// Decrypter has the keys of encrypted records; nil: none, and the first one is an error.
	Decrypter *record.Decrypter
	// OnNotice is told of what is no record; it is called from Next. nil = nobody is.
	OnNotice func(Notice)

	beforeJoin func() // tests let the drain move between the end of the store and the ring
}

// Filter chooses records; the zero value takes the application's all.
type Filter struct {
	Classes   []uint16 // of any of them; empty = any class
	Keys      []string // with any of them; empty = any key or none
	IsControl bool     // farlog's own records (epochs, heartbeats, gaps) as well, whatever the classes and keys
}

func (f *Filter) isWanted(h record.Header, key []byte) bool {
	if h.Flags.IsControl() {
		return f.IsControl && !h.Flags.IsPad()
	}
	isWanted := len(f.Classes) == 0
	for _, class := range f.Classes {
		isWanted = isWanted || class == h.Class
	}
	if !isWanted || len(f.Keys) == 0 {
		return isWanted
	}
	return slices.Contains(f.Keys, string(key))
}

// Kind of a notice.
type Kind string

// The notices.
const (
	// NoticeOverrun: FromLSN to ToLSN was drained before it was read. It comes from the store, nothing is missing.
	NoticeOverrun Kind = "overrun"
	// NoticeLost: FromLSN to ToLSN was drained before it was read, and no store that the consumer has holds it.
	NoticeLost Kind = "lost"
	// NoticeRewound: from FromLSN on, records of earlier epochs are replaced. They were never acknowledged.
	NoticeRewound Kind = "rewound"
)

// Notice says what happened to a consumer's place in the stream.
type Notice struct {
	Kind           Kind
	FromLSN, ToLSN uint64
	Epoch          uint32 // with NoticeRewound: the one that goes on there
}

func (n Notice) String() string {
	switch n.Kind {
	case NoticeOverrun:
		return fmt.Sprintf("overtaken: lsn %d to %d were drained before they were read; they come from the store",
			n.FromLSN, n.ToLSN)
	case NoticeLost:
		return fmt.Sprintf("missed lsn %d to %d: they were drained before they were read, and are in no store that "+
			"was given", n.FromLSN, n.ToLSN)
	}
	return fmt.Sprintf("records from lsn %d on that were never acknowledged are undone; epoch %d goes on there",
		n.FromLSN, n.Epoch)
}

// Item is one record. Its bytes are good until the next call.
type Item struct {
	record.Header
	Key, Payload []byte
	Place        store.Place // in the stream; of a ring that no store knows the generation is 1
	IsLive       bool        // it came from the ring
}

// Stats counts what a consumer met since it was opened.
type Stats struct {
	Records  uint64 // given
	Skipped  uint64 // read and not wanted by the filter
	Overruns uint64
	Lost     uint64 // bytes that were nowhere to be had
	LagBytes uint64 // appended and not yet read, as the ring was looked at last; 0 while it reads the store
	IsLive   bool
}

// Consumer reads one stream. One goroutine at a time.
type Consumer struct {
	config  Config
	reader  *farlog.Reader // nil while it reads the store
	history *store.Reader  // nil while it reads the ring; both nil: the store is to be opened at its place
	align   uint32         // of the ring
	stored  store.Generation

	place   store.Place // of the last record read; zero = none
	nextLSN uint64      // behind it, in its generation
	isPlace bool        // place means something
	isNext  bool        // nextLSN does: where the first record was to be looked for, or behind the last one
	since   uint64      // nothing before this time, until there was something
	buf     []byte
	batch   []byte // of buf, not yet given
	behind  bool   // the store was at its end, and the ring's head is behind that
	stats   Stats
	raw     record.Record // the last one, as it is stored
	failed  error         // it could not be decrypted: for good
}

// Open stands where the position, or else Start, says. Errors: those of farlog.OpenReader and store.OpenReader;
// store.ErrInvalid.
func Open(config Config) (*Consumer, error) {
	if config.RingURI == "" && config.Store == nil {
		return nil, fmt.Errorf("%w: consumer of stream %q: expected a ring, a store, or both", store.ErrInvalid,
			config.Stream)
	}
	if config.BufferBytes <= 0 {
		config.BufferBytes = bufferBytesDefault
	}
	if config.OnNotice == nil {
		config.OnNotice = func(Notice) {}
	}
	if config.Decrypter == nil {
		config.Decrypter = record.NewDecrypter(nil)
	}
	c := &Consumer{config: config, buf: make([]byte, config.BufferBytes)}
	if err := c.start(); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

func (c *Consumer) start() error {
	if p := c.config.Position; p != nil && p.isThere() {
		c.place, c.nextLSN, c.isPlace, c.isNext = p.saved.Place(), p.saved.NextLSN, true, true
		return c.openHistory(behind(c.place))
	}
	switch c.config.Start {
	case StartOldest:
		return c.openHistory(store.Place{})
	case StartPlace:
		c.place, c.nextLSN, c.isPlace, c.isNext = before(c.config.Place), c.config.Place.LSN, true, true
		return c.openHistory(c.config.Place)
	case StartTime:
		c.since = record.TimestampOf(c.config.Time)
		return c.openHistory(store.Place{})
	}
	if c.config.RingURI == "" {
		return c.openHistory(store.Place{})
	}
	if err := c.openRing(c.config.Start == StartEnd); err != nil {
		return err
	}
	return c.findGeneration(c.config.Start == StartEnd)
}

func behind(p store.Place) store.Place {
	p.LSN++
	return p
}

// before is a place before the given one with no record between.
func before(p store.Place) store.Place {
	switch {
	case p.LSN > 0:
		p.LSN--
	case p.Epoch > 0:
		p.Epoch, p.LSN = p.Epoch-1, ^uint64(0)
	}
	return p
}

// Close closes ring and store; a position that was not committed is not kept.
func (c *Consumer) Close() error {
	var errs []error
	if c.reader != nil {
		errs = append(errs, c.reader.Close())
	}
	if c.history != nil {
		errs = append(errs, c.history.Close())
	}
	c.reader, c.history = nil, nil
	return errors.Join(errs...)
}

// Grant is what the control plane has granted again to a reader: as in Config. One ring's token is in Members as well.
type Grant struct {
	RingURI string
	Token   *[farlog.TokenLen]byte
	Members []farlog.Member
}

// Renew takes another grant of the same stream, before or after the one before has ended: with it the ring is opened
// again when it was left, and a target that was restarted is come to. As Next, not beside it.
func (c *Consumer) Renew(grant Grant) error {
	c.config.RingURI, c.config.Token, c.config.Members = grant.RingURI, grant.Token, nil
	if grant.Token == nil {
		c.config.Members = grant.Members
	}
	if c.reader == nil {
		return nil // it is opened with that
	}
	for _, member := range grant.Members {
		if member.Token == [farlog.TokenLen]byte{} {
			continue // on this host
		}
		if err := c.reader.Renew(member.RingUUID, member.Token); err != nil {
			return fmt.Errorf("renew the grant for ring %x: %w", member.RingUUID, err)
		}
	}
	return nil
}

// Stats gives the counts.
func (c *Consumer) Stats() Stats {
	stats := c.stats
	stats.IsLive = c.reader != nil
	if c.reader != nil {
		if status, err := c.reader.Status(); err == nil && status.AppendedLSN > c.nextLSN {
			stats.LagBytes = status.AppendedLSN - c.nextLSN
		}
	}
	return stats
}

// Commit keeps the position behind the last record that Next gave. After a crash the records since the last Commit come
// again.
func (c *Consumer) Commit() error {
	if c.config.Position == nil || !c.isPlace {
		return nil
	}
	return c.config.Position.save(store.Position{
		Stream: c.config.Stream, Generation: c.place.Generation, Epoch: c.place.Epoch,
		LSN: c.place.LSN, NextLSN: c.nextLSN,
	})
}

// Next gives the next record that is wanted. farlog.ErrNotYet: there is none at present; call again. Errors:
// store.ErrCorrupt, farlog.ErrCorrupt, farlog.ErrIO (a ring on another host did not answer: call again), farlog.ErrHeld
// (another client came with this one's token); for good, record.ErrNoKey and record.ErrDecrypt.
func (c *Consumer) Next() (Item, error) {
	for {
		item, err := c.nextDecrypted()
		if err != nil {
			return Item{}, err
		}
		if item.TimestampNS < c.since {
			continue
		}
		if c.config.Filter.isWanted(item.Header, item.Key) {
			c.since = 0
			c.stats.Records++
			return item, nil
		}
		if !item.Flags.IsPad() {
			c.stats.Skipped++
		}
	}
}

// nextDecrypted goes no further than a record that it cannot decrypt: a position that is committed stays before it.
func (c *Consumer) nextDecrypted() (Item, error) {
	if c.failed != nil {
		return Item{}, c.failed
	}
	place, nextLSN, isPlace := c.place, c.nextLSN, c.isPlace
	item, err := c.next()
	if err != nil || item.Flags.IsControl() {
		return item, err
	}
	rec, err := c.config.Decrypter.Decrypt(c.raw)
	if err != nil {
		c.place, c.nextLSN, c.isPlace = place, nextLSN, isPlace
		c.failed = err
		return Item{}, err
	}
	item.Key, item.Payload = rec.Key, rec.Payload
	return item, nil
}

func (c *Consumer) next() (Item, error) {
	for {
		if c.reader != nil {
			if item, isThere, err := c.fromRing(); isThere || err != nil {
				return item, err
			}
			continue
		}
		if c.history == nil {
			if err := c.openHistory(behind(c.place)); err != nil {
				return Item{}, err
			}
			continue
		}
		item, err := c.history.Next()
		if err == nil {
			c.behind = false
			c.noteRewound(item.Place())
			c.moveTo(item.Place(), item.LSN+item.Extent(c.alignOf(item.Generation)))
			c.raw = item.Record
			return Item{Header: item.Header, Key: item.Key, Payload: item.Payload, Place: c.place}, nil
		}
		if !errors.Is(err, io.EOF) {
			return Item{}, err
		}
		if c.config.RingURI == "" {
			return Item{}, farlog.ErrNotYet
		}
		if c.config.beforeJoin != nil {
			c.config.beforeJoin()
		}
		if err := c.join(); err != nil {
			return Item{}, err
		}
	}
}

func (c *Consumer) moveTo(place store.Place, nextLSN uint64) {
	c.place, c.nextLSN, c.isPlace, c.isNext = place, nextLSN, true, true
}
