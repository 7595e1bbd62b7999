package record

import (
	"errors"
	"fmt"
)

// How a valid record can fail to continue the log. Cursor.Check wraps them with the values found.
var (
	ErrLSN   = errors.New("lsn does not continue the log")
	ErrSeq   = errors.New("seq does not continue the log")
	ErrEpoch = errors.New("epoch does not continue the log")
)

// Cursor is where a walk along a log stands: the next record must continue it.
type Cursor struct {
	LSN      uint64
	Seq      uint64
	Epoch    uint32 // of the record before; 0 = none
	EpochMax uint32 // none above it is believed; 0 = not limited
}

// Check reports whether a record with this header is the next one of the log. Epochs never go down, and go up only
// where one begins: at an EPOCH record or the PAD in front of it. Errors: ErrLSN, ErrSeq, ErrEpoch.
func (c Cursor) Check(h Header) error {
	switch {
	case h.LSN != c.LSN:
		return fmt.Errorf("%w: %d, expected %d", ErrLSN, h.LSN, c.LSN)
	case h.Seq != c.Seq:
		return fmt.Errorf("%w: %d, expected %d", ErrSeq, h.Seq, c.Seq)
	}
	return c.CheckEpoch(h)
}

// CheckEpoch is the part of Check that looks at the epoch alone.
func (c Cursor) CheckEpoch(h Header) error {
	switch {
	case h.Epoch == 0:
		return fmt.Errorf("%w: 0, expected 1 or more", ErrEpoch)
	case h.Epoch < c.Epoch:
		return fmt.Errorf("%w: %d after %d", ErrEpoch, h.Epoch, c.Epoch)
	case c.EpochMax != 0 && h.Epoch > c.EpochMax:
		return fmt.Errorf("%w: %d, expected at most %d", ErrEpoch, h.Epoch, c.EpochMax)
	case h.Epoch > c.Epoch && h.Flags&(FlagEpoch|FlagPad) == 0:
		return fmt.Errorf("%w: %d after %d without an EPOCH record", ErrEpoch, h.Epoch, c.Epoch)
	}
	return nil
}

// Advance moves the cursor over a record that Check accepted.
func (c *Cursor) Advance(h Header, align uint32) {
	c.LSN = h.LSN + h.Extent(align)
	c.Seq = h.Seq
	if !h.Flags.IsPad() {
		c.Seq++
	}
	c.Epoch = h.Epoch
}
