package consume

import (
	"errors"
	"fmt"

	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/record"
	"github.com/farlog/farlog/pkg/store"
)

// openHistory goes to the store, to the first record at or behind a place. Without a store the ring has to do.
func (c *Consumer) openHistory(p store.Place) error {
	if c.config.Store == nil {
		return c.openRing(false)
	}
	history, err := c.config.Store.OpenReader(c.config.Stream, store.ReaderOptions{IncludeControl: true})
	if errors.Is(err, store.ErrNotFound) && c.config.RingURI != "" && !c.isNext {
		return c.openRing(false) // nothing was drained yet
	}
	if err != nil {
		return err
	}
	switch {
	case !c.isPlace && c.since != 0:
		err = history.SeekTime(c.config.Time)
	case !c.isPlace && c.isNext:
		err = history.SeekLSN(c.nextLSN) // overtaken before it had read anything
	default:
		err = history.SeekPlace(p)
	}
	if err != nil {
		_ = history.Close()
		return err
	}
	c.history, c.behind = history, false
	return nil
}

// findGeneration is for a consumer that begins in the ring: where that stands in the stream, should it have to go to
// the store.
func (c *Consumer) findGeneration(isEnd bool) error {
	status, err := c.reader.Status()
	if err != nil {
		return fmt.Errorf("read status of ring %q: %w", c.config.RingURI, err)
	}
	c.place.Generation, c.nextLSN, c.isNext = 1, status.HeadLSN, true
	if isEnd {
		c.nextLSN = status.AppendedLSN
	}
	if c.config.Store == nil {
		return nil
	}
	history, err := c.config.Store.OpenReader(c.config.Stream,
		store.ReaderOptions{IncludeSuperseded: true, IsOpenFast: true})
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	defer history.Close()
	c.place.Generation, _ = c.generationOf(status, history.Generations())
	return nil
}

// openRing opens the ring at its head, or at its end. What has been read of it is passed over by fromRing.
func (c *Consumer) openRing(isEnd bool) error {
	options := farlog.ReaderOptions{
		Start: farlog.StartHead, Token: c.config.Token, Members: c.config.Members,
		KeyFile: farlog.NoKeyFile, // records of the store are decrypted here, and so are those of the ring
	}
	if isEnd {
		options.Start = farlog.StartTail
	}
	reader, err := farlog.OpenReader(c.config.RingURI, options)
	if err != nil {
		return err
	}
	status, err := reader.Status()
	if err != nil {
		_ = reader.Close()
		return fmt.Errorf("read status of ring %q: %w", c.config.RingURI, err)
	}
	if status.Encryption != record.EncryptionNone {
		c.config.Decrypter.ExpectEncrypted(status.Salt)
	}
	c.reader, c.align, c.batch = reader, status.Align, nil
	return nil
}

// join is called at the end of the store: what comes next is in the ring, unless that was drained further meanwhile.
// The ring is read from its head on, and not from the store's end: after a power cut the log may have gone back behind
// it.
func (c *Consumer) join() error {
	if err := c.openRing(false); err != nil {
		return err
	}
	status, err := c.reader.Status()
	if err != nil {
		c.leaveRing()
		return fmt.Errorf("read status of ring %q: %w", c.config.RingURI, err)
	}
	generation, nextLSN := c.generationOf(status, c.history.Generations())
	if status.HeadLSN > nextLSN {
		c.leaveRing()
		if !c.behind {
			c.behind = true // the store has it: it was synced before the head moved
			return nil
		}
		return fmt.Errorf("%w: ring %q was drained up to lsn %d, store %s has stream %s only up to lsn %d: it is "+
			"drained into another store, or store is damaged",
			store.ErrNotFound, c.config.RingURI, status.HeadLSN, c.config.Store.Dir(), c.config.Stream, nextLSN)
	}
	if generation != c.place.Generation {
		c.place, c.nextLSN, c.isNext = store.Place{Generation: generation}, 0, true
	}
	err = c.history.Close()
	c.history = nil
	return err
}

func (c *Consumer) leaveRing() {
	_ = c.reader.Close()
	c.reader = nil
}

// generationOf tells which generation of the stream the ring is, and up to where that was read.
func (c *Consumer) generationOf(status farlog.Status, known []store.Generation) (generation, nextLSN uint64) {
	if len(known) == 0 {
		return 1, 0
	}
	last := known[len(known)-1]
	if !c.isRingOf(status, last) {
		return last.Number + 1, 0
	}
	if c.place.Generation != last.Number {
		return last.Number, 0
	}
	return last.Number, c.nextLSN
}

// isRingOf reports whether what is read is this generation's. Of a stream with several rings another one may be the
// first by now than when the store began it: all of them have its salt, and a stream that is re-created has another
// one.
func (c *Consumer) isRingOf(status farlog.Status, known store.Generation) bool {
	if len(c.reader.Members()) > 1 {
		return known.Salt == status.Salt && known.StreamID == status.StreamID
	}
	return known.Salt == status.Salt && known.RingUUID == status.RingUUID
}

func (c *Consumer) alignOf(generation uint64) uint32 {
	if c.stored.Number != generation {
		for _, one := range c.history.Generations() {
			if one.Number == generation {
				c.stored = one
			}
		}
	}
	return c.stored.Align
}

// fromRing gives the next record of the ring that has not been read. False without an error: look again.
func (c *Consumer) fromRing() (Item, bool, error) {
	for len(c.batch) > 0 {
		h, err := record.ParseHeader(c.batch)
		if err != nil {
			return Item{}, false, fmt.Errorf("batch of ring %q: %w", c.config.RingURI, err)
		}
		raw := c.batch[:h.StoredLen(c.align)]
		c.batch = c.batch[len(raw):]
		place := store.Place{Generation: max(c.place.Generation, 1), Epoch: h.Epoch, LSN: h.LSN}
		if c.isPlace && !c.place.IsBefore(place) {
			continue
		}
		c.noteRewound(place)
		c.moveTo(place, h.LSN+h.Extent(c.align))
		item := Item{Header: h, Place: place, IsLive: true}
		if !h.Flags.IsPad() {
			keyEnd := record.HeaderLen + int(h.KeyLen)
			item.Key, item.Payload = raw[record.HeaderLen:keyEnd:keyEnd], raw[keyEnd:keyEnd+int(h.PayloadLen)]
			c.raw = record.Record{Header: h, Key: item.Key, Payload: item.Payload, Raw: raw}
		}
		return item, true, nil
	}
	return Item{}, false, c.readRing()
}

// noteRewound says that the log went back behind what was read, before the first record that is there now, in the ring
// or, when that was drained meanwhile, in the store.
func (c *Consumer) noteRewound(next store.Place) {
	if c.isPlace && c.place.LSN != 0 && next.LSN < c.nextLSN && next.Epoch > c.place.Epoch &&
		next.Generation == c.place.Generation {
		c.config.OnNotice(Notice{Kind: NoticeRewound, FromLSN: next.LSN, Epoch: next.Epoch})
	}
}

func (c *Consumer) readRing() error {
	batch, err := c.reader.Read(c.buf)
	var large *farlog.TooLargeError
	switch {
	case errors.As(err, &large):
		c.buf = make([]byte, large.Need)
		return nil
	case errors.Is(err, farlog.ErrOverrun):
		return c.overrun()
	case errors.Is(err, farlog.ErrNotYet):
		c.noteLost(batch.FirstLSN) // also when nothing follows: it may be the day's last burst
		return err
	case err != nil:
		return fmt.Errorf("read ring %q at lsn %d: %w", c.config.RingURI, batch.FirstLSN, err)
	}
	c.noteLost(batch.FirstLSN)
	c.batch = batch.Bytes
	return nil
}

// noteLost says what is missing below the place where the ring is read: only at the head of one that was opened again
// without a store.
func (c *Consumer) noteLost(firstLSN uint64) {
	if !c.isNext || firstLSN <= c.nextLSN {
		return
	}
	c.stats.Lost += firstLSN - c.nextLSN
	c.config.OnNotice(Notice{Kind: NoticeLost, FromLSN: c.nextLSN, ToLSN: firstLSN})
	c.nextLSN = firstLSN
}

// overrun goes to the store for what was drained before it was read.
func (c *Consumer) overrun() error {
	c.stats.Overruns++
	status, err := c.reader.Status()
	if err != nil {
		return fmt.Errorf("read status of ring %q: %w", c.config.RingURI, err)
	}
	c.leaveRing()
	if c.config.Store == nil {
		return c.openRing(false)
	}
	c.config.OnNotice(Notice{Kind: NoticeOverrun, FromLSN: c.nextLSN, ToLSN: status.HeadLSN})
	return nil // next opens the store, again when that fails
}
