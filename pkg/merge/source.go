package merge

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/farlog/farlog/pkg/record"
	"github.com/farlog/farlog/pkg/store"
)

// state says what a stream has for the merge.
type state uint8

const (
	stateReady  state = iota // its next record is known
	stateSilent              // nothing at present: what can go out is what lies before its position
	stateAbsent              // nothing for longer than was declared: not waited for
)

// source is one stream on its way into the order.
type source struct {
	name   string
	rank   int // of the name among all names
	reader *store.Reader
	info   *info
	// After the last record taken, heartbeats included: nothing that comes has an order time below.
	orderNS uint64
	isLate  bool
	decided map[store.Place]decision

	state       state
	head        Entry
	isDecided   bool   // about the head
	floorNS     uint64 // orderNS before the head
	silentSince time.Time
	lastTS      uint64      // of the last record, heartbeats included, as it says
	behindSince time.Time   // that was longer ago than is waited for; zero = it was not
	until       store.Place // the last record that is looked at; zero = all. For checking an order that is there
}

// openSource goes behind what the order has of the stream.
func openSource(s *store.Store, of *info, decided map[store.Place]decision) (*source, error) {
	reader, err := s.OpenReader(of.name, store.ReaderOptions{
		IncludeControl: true, IncludeSuperseded: true,
		SyncedOnly: true, IsOpenFast: true,
	})
	if err != nil {
		return nil, err
	}
	one := &source{name: of.name, reader: reader, info: of, state: stateSilent, decided: decided}
	if l := of.last; l.Generation != 0 {
		one.orderNS, one.isLate = l.orderNS, l.isLate
		behind := l.Place
		behind.LSN++
		if err := reader.SeekPlace(behind); err != nil {
			_ = reader.Close()
			return nil, err
		}
	}
	return one, nil
}

// pull takes the next record that belongs into the order. False: there is none at present. Heartbeats only move the
// position, PADs not even that. believe, which may be nil, tells of a heartbeat's time whether it can be.
func (s *source) pull(believe func(*source, store.Place, uint64) bool) (bool, error) {
	for {
		item, err := s.reader.Next()
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("stream %s: %w", s.name, err)
		}
		place := item.Place()
		if s.until.Generation != 0 && s.until.IsBefore(place) {
			return false, nil
		}
		if item.Flags&record.FlagPad != 0 {
			continue
		}
		s.lastTS = item.TimestampNS
		one, isDecided := s.decided[place]
		if item.Flags&record.FlagHeartbeat != 0 {
			if mutant != MutantHeartbeatIgnored && !isDecided &&
				(believe == nil || believe(s, place, item.TimestampNS)) {
				s.advance(item.TimestampNS)
			}
			continue
		}
		s.head = Entry{
			TimestampNS: item.TimestampNS, Place: place, Seq: item.Seq, RecordFlags: item.Flags,
			RecordCRC: item.CRC, Stream: s.name,
		}
		s.isDecided, s.floorNS = isDecided, s.orderNS
		if isDecided {
			s.decide(one.orderNS)
			return true, nil
		}
		s.advance(item.TimestampNS)
		s.label()
		return true, nil
	}
}

// advance moves the position by a record's time. A clock that went back leaves it where it was: within a stream the
// order is that of its records.
func (s *source) advance(ts uint64) {
	if ts >= s.orderNS {
		s.orderNS, s.isLate = ts, false
	}
}

// decide moves the position to where the head was, or is being, put.
func (s *source) decide(orderNS uint64) {
	s.orderNS, s.isLate = orderNS, orderNS > s.head.TimestampNS
	s.label()
}

// label gives the head its order time, and says why it is not its own.
func (s *source) label() {
	s.head.OrderNS, s.head.Flags = s.orderNS, 0
	switch {
	case s.isLate && mutant != MutantLateUnmarked:
		s.head.Flags = FlagLate
	case s.orderNS > s.head.TimestampNS:
		s.head.Flags = FlagBack
	case s.orderNS < s.head.TimestampNS:
		s.head.Flags = FlagEarly
	}
}

func (s *source) key() key {
	if s.state == stateAbsent {
		return never
	}
	return key{s.orderNS, s.rank}
}
