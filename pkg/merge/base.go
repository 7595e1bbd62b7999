package merge

import (
	"errors"
	"fmt"
	"io"

	"github.com/farlog/farlog/pkg/store"
)

// bases gives where the streams begin of which records were removed.
func bases(s *store.Store) (map[string]*store.Base, error) {
	names, err := s.Streams()
	if err != nil {
		return nil, err
	}
	list := map[string]*store.Base{}
	for _, name := range names {
		base, err := s.Base(name)
		if err != nil {
			return nil, fmt.Errorf("stream %s: %w", name, err)
		}
		if base != nil {
			list[name] = base
		}
	}
	return list, nil
}

// checkWhole refuses to make an order again from streams of which records were removed: it would be another one.
func checkWhole(s *store.Store) error {
	removed, err := bases(s)
	if err != nil {
		return err
	}
	for name, base := range removed {
		return fmt.Errorf("%w: stream %s begins at segment %d: the order of what lay before cannot be made again; "+
			"take it from a copy of the store", store.ErrRemoved, name, base.Segment)
	}
	return nil
}

// passRemoved takes in the order up to the last entry whose record was removed: there is nothing to compare it with but
// the signed segments of the order. It gives how many entries that are.
func (v *verifier) passRemoved(reader *store.Reader, end *encoder) (count uint64, err error) {
	if v.bases, err = bases(v.store); err != nil || len(v.bases) == 0 {
		return 0, err
	}
	until := uint64(0) // lsn behind the last such entry
	err = v.each(reader, end.cursor.LSN, func(item *store.Item) error {
		if isPositions(item) {
			return nil
		}
		entry, err := decodeEntry(&item.Record)
		if err == nil && v.bases[entry.Stream].HasRemoved(entry.Place) {
			until, count = item.LSN+uint64(len(item.Raw)), count+1
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	if err := reader.SeekStart(); err != nil {
		return 0, err
	}
	err = v.each(reader, until, func(item *store.Item) error { return v.load(item) })
	v.lastNS, v.lastName = v.orderNS, v.encoder.stream
	return count, err
}

// each shows the records of the order before the end.
func (v *verifier) each(reader *store.Reader, endLSN uint64, visit func(item *store.Item) error) error {
	for lsn := uint64(0); lsn < endLSN; {
		item, err := reader.Next()
		if errors.Is(err, io.EOF) {
			err = &store.CorruptError{Path: v.dir, LSN: lsn, Err: errors.New("order ends before its end")}
		}
		if err == nil {
			err = errors.Join(v.ctx.Err(), visit(&item))
		}
		if err != nil {
			return err
		}
		lsn = item.LSN + uint64(len(item.Raw))
	}
	return nil
}

// openBehindBase opens a stream behind what the order has of it, or, when all of that was removed, where it begins.
func (v *verifier) openBehindBase(of *info, decided map[store.Place]decision) (*source, error) {
	behind := of.last.Place
	behind.LSN++
	if !v.bases[of.name].HasRemoved(behind) {
		return openSource(v.store, of, decided)
	}
	s, err := openSource(v.store, &info{name: of.name, key: of.key}, decided)
	if err == nil {
		s.info, s.orderNS, s.isLate = of, of.last.orderNS, of.last.isLate
	}
	return s, err
}
