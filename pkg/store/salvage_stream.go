package store

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"os"
	"path"

	"github.com/farlog/farlog/pkg/record"
)

// salvager copies one stream.
type salvager struct {
	ctx    context.Context
	from   *Store
	into   *Store
	how    SalvageOptions
	dir    streamDir
	of     string // what is salvaged
	report SalvageReport

	done   map[string]bool // rings that an attempt before has copied
	app    *Appender       // nil: of a ring that is done
	source Source
	at     chain          // behind the last record that was copied, or the last GAP
	first  *record.Cursor // where the ring's first record is; nil: not known
	lastTS uint64
	batch  []byte
	damage damage    // since the last record
	sum    hash.Hash // of what was copied of a segment
	summed int       // records in it
	begins uint64    // number of the first segment that should be there
	ends   uint64    // behind the last one
}

// damage is the first thing that was wrong behind the last record that was copied.
type damage struct {
	segment string
	offset  int64
	cause   string
}

const salvageBatch = 1 << 20

func (v *salvager) run() (err error) {
	v.dir = v.from.streamDir(v.report.Stream)
	lock, err := v.from.fsys.Lock(path.Join(v.dir.path, lockName), holderText())
	if err != nil {
		return wrap("lock", path.Join(v.dir.path, lockName), err)
	}
	defer lock.Close()
	segments, err := v.survey()
	if err != nil {
		return err
	}
	if v.done, err = v.doneRings(); err != nil {
		return err
	}
	defer func() {
		if closeErr := v.end(); err == nil {
			err = closeErr
		}
	}()
	err = v.segments(segments)
	var stop *salvageStop
	if errors.As(err, &stop) {
		v.unproved("%s", stop)
		err = nil
	}
	return err
}

func (v *salvager) segments(segments []found) error {
	next := v.begins
	for i := range segments {
		if err := v.missing(next, segments[i].number, &segments[i]); err != nil {
			return err
		}
		next = segments[i].number + 1
		if err := v.segment(segments, i); err != nil {
			return err
		}
		v.prove(segments, i)
	}
	return v.missing(next, v.ends, nil)
}

// salvageStop is damage that nothing behind it can be joined to.
type salvageStop struct{ text string }

func (s *salvageStop) Error() string { return s.text }

// segment copies one segment.
func (v *salvager) segment(segments []found, i int) error {
	f := segments[i]
	v.sum, v.summed = sha256.New(), 0
	if f.header.StreamName == "" {
		v.unproved("%s: its header is damaged, and no neighbour says of what ring it is: none of its records is copied",
			path.Base(f.name))
		return nil
	}
	if err := v.enter(segments, i); err != nil {
		return err
	}
	file, err := v.dir.fsys.OpenFile(f.name, os.O_RDONLY, 0)
	if err != nil {
		return wrap("open", f.name, err)
	}
	defer file.Close()
	isLast := i == len(segments)-1
	scan := newScanner(file, f.header.identity(), segmentDataOffset)
	if f.headerErr == nil {
		_, _ = v.sum.Write(f.header.encode())
	}
	for {
		if err := v.ctx.Err(); err != nil {
			return err
		}
		rec, err := scan.next()
		if err == nil {
			if _, err = v.at.check(&rec.Header); err == nil {
				fillErr := checkFill(path.Base(f.name), rec, scan.off)
				if fillErr != nil {
					v.note("%s; the record is sound, and its fill is zero again", fillErr)
				}
				v.sumRecord(rec, fillErr == nil)
				if err := v.copy(rec); err != nil {
					return err
				}
				scan.skip(rec)
				continue
			}
		}
		var failed *readError
		if errors.As(err, &failed) {
			return wrap("read", f.name, err)
		}
		v.noteDamage(f, scan.off, err)
		if isLast && !f.isSealed && scan.off >= f.mark.syncedOffset && !v.how.WithTail {
			return v.leaveTail(file, f, scan.off)
		}
		isFound, err := v.resync(f, scan)
		if err != nil {
			return err
		}
		if !isFound {
			break
		}
	}
	return v.closeSegment(file, f, isLast)
}

// enter begins with a segment: of the same ring behind the one before, or of another one.
func (v *salvager) enter(segments []found, i int) error {
	f := segments[i]
	h := f.header
	source := Source{
		StreamName: v.report.Stream, StreamID: h.StreamID, RingUUID: h.RingUUID, Salt: h.Salt, Align: h.Align,
		RecordLenMax: h.RecordLenMax,
	}
	if source != v.source {
		if err := v.end(); err != nil {
			return err
		}
		v.source, v.at, v.damage, v.first = source, chain{}, damage{}, nil
		if f.headerErr == nil {
			v.first = &record.Cursor{LSN: h.FirstLSN, Seq: h.FirstSeq}
		} else {
			v.noteDamage(f, 0, f.headerErr)
		}
		if v.done[h.RingUUID.String()] {
			return nil
		}
		var err error
		v.app, err = v.into.OpenStream(source)
		return err
	}
	if f.headerErr != nil {
		v.noteDamage(f, 0, f.headerErr)
		return nil
	}
	if h.PrevEpoch == 0 {
		return nil
	}
	if i > 0 && segments[i-1].number+1 != f.number {
		missing := found{name: v.dir.file(segments[i-1].number+1, segmentSuffix)}
		v.noteDamage(missing, 0, errors.New("segment is missing"))
	}
	return v.fill(h.PrevNextLSN, h.PrevNextSeq, h.PrevEpoch, v.at.isBegun && h.PrevEpoch > v.at.Epoch)
}

// copy takes a record over, as its bytes are.
func (v *salvager) copy(rec record.Record) error {
	v.damage = damage{}
	if !rec.Flags.IsPad() {
		v.report.Records++
	}
	return v.add(rec.Header, rec.Raw)
}

func (v *salvager) add(h record.Header, raw []byte) error {
	if v.app != nil {
		most := min(salvageBatch, v.into.options.SegmentBytes-segmentDataOffset)
		if int64(len(v.batch)+len(raw)) > most {
			if err := v.flush(); err != nil {
				return err
			}
		}
		v.batch = append(v.batch, raw...)
	}
	v.at.advance(&h, v.source.Align)
	v.lastTS = h.TimestampNS
	return nil
}

func (v *salvager) flush() error {
	batch := v.batch
	v.batch = nil // the appender keeps it
	if len(batch) == 0 || v.app == nil {
		return nil
	}
	_, _, err := v.app.Append(batch)
	return err
}

// end makes what was copied of a ring durable.
func (v *salvager) end() error {
	err := v.flush()
	if v.app != nil {
		if closeErr := v.app.Close(); err == nil {
			err = closeErr
		}
		v.app = nil
	}
	return err
}

func (v *salvager) noteDamage(f found, offset int64, err error) {
	if v.damage.cause == "" {
		v.damage = damage{path.Base(f.name), offset, err.Error()}
	}
}

// leaveTail says what lies behind the last record of the stream.
func (v *salvager) leaveTail(file File, f found, offset int64) error {
	last, err := lastNonZero(file, offset)
	if err != nil {
		return wrap("read", f.name, err)
	}
	if last > offset {
		v.note("%s: %d bytes from offset %d on are behind the last record, and beyond what is known to be synced: not "+
			"copied; the ring has them, or --with-tail takes the records among them", path.Base(f.name), last-offset,
			offset)
	}
	return nil
}

// closeSegment accounts for what a sealed last segment had to its end; of others the next header says it.
func (v *salvager) closeSegment(file File, f found, isLast bool) error {
	if !isLast {
		return nil
	}
	m, _, err := loadManifest(v.dir, f.number, v.from.checkSignature)
	switch {
	case err == nil && m.RingUUID == v.source.RingUUID.String():
		return v.fill(m.NextLSN, m.NextSeq, m.LastEpoch, v.at.isBegun && m.LastEpoch > v.at.Epoch)
	case err != nil && !isNotExist(err):
		v.note("%s", err)
	}
	if v.damage.offset >= f.mark.syncedOffset {
		return nil
	}
	h, isKnown, err := v.lastRecord(file, f)
	if err != nil {
		return err
	}
	if isKnown {
		return v.fill(h.LSN+h.Extent(v.source.Align), h.Seq+1, v.at.Epoch, false)
	}
	return &salvageStop{fmt.Sprintf("%s, offset %d: %s: nothing is readable from there to the end of what was synced, "+
		"offset %d: how many records that were is not known", v.damage.segment, v.damage.offset, v.damage.cause,
		f.mark.syncedOffset)}
}

// lastRecord reports whether what is damaged is the last record that was synced, and that alone: its header says so,
// and the mark.
func (v *salvager) lastRecord(file File, f found) (h record.Header, isKnown bool, err error) {
	raw := make([]byte, record.HeaderLen)
	if n, err := file.ReadAt(raw, v.damage.offset); n < len(raw) {
		return h, false, wrap("read", f.name, err)
	}
	if h, err = record.ParseHeader(raw); err != nil {
		return h, false, nil
	}
	end := v.damage.offset + int64(h.StoredLen(v.source.Align))
	return h, h.LSN == v.at.LSN && h.Seq == v.at.Seq && h.Epoch == v.at.Epoch && !h.Flags.IsPad() &&
		end == f.mark.syncedOffset, nil
}
