package store

import (
	"errors"
	"os"
	"path"

	"github.com/farlog/farlog/pkg/record"
)

// identify gives a segment whose header is damaged the ring of that neighbour whose salt its records have. Between two
// neighbours of one ring it is of that, whatever can be read of it. Without a ring none of its records is copied.
func (v *salvager) identify(segments []found, i int) error {
	f := &segments[i]
	if f.headerErr == nil {
		return nil
	}
	v.note("%s: %s", path.Base(f.name), f.headerErr)
	file, err := v.dir.fsys.OpenFile(f.name, os.O_RDONLY, 0)
	if err != nil {
		return wrap("open", f.name, err)
	}
	defer file.Close()
	var near []segmentHeader
	for _, at := range []int{i - 1, i + 1} {
		if at >= 0 && at < len(segments) && (at < i || segments[at].headerErr == nil) &&
			segments[at].header.StreamName != "" {
			near = append(near, segments[at].header)
		}
	}
	isSure := len(near) == 2 && near[0].RingUUID == near[1].RingUUID && near[0].Salt == near[1].Salt
	for _, h := range near {
		isOf := isSure
		if !isOf {
			if isOf, err = v.hasRecords(file, h.identity()); err != nil {
				return wrap("read", f.name, err)
			}
		}
		if isOf {
			h.PrevEpoch, h.PrevNextLSN, h.PrevNextSeq = 0, 0, 0
			f.header = h
			break
		}
	}
	if f.header.StreamName == "" {
		return nil
	}
	if f.mark, err = readMark(file, f.header.Salt); err != nil {
		return wrap("read", f.name, err)
	}
	if f.mark.count == 0 && !f.isSealed && i == len(segments)-1 {
		v.unproved("%s: %s: there is no mark: how far it was synced is not known", path.Base(f.name),
			f.headerErr)
	}
	return nil
}

// hasRecords reports whether a whole record of a ring is in a segment.
func (v *salvager) hasRecords(file File, id record.Identity) (bool, error) {
	scan := newScanner(file, id, segmentDataOffset)
	for {
		_, err := scan.next()
		var failed *readError
		switch {
		case err == nil:
			return true, nil
		case errors.As(err, &failed):
			return false, err
		case len(scan.chunk) == 0:
			return false, nil
		}
		scan.off += record.AlignMin
		if scan.chunk = scan.chunk[min(record.AlignMin, len(scan.chunk)):]; len(scan.chunk) < record.HeaderLen {
			scan.forget()
		}
		if err := v.ctx.Err(); err != nil {
			return false, err
		}
	}
}

// readMark gives the newest mark of a segment whose header is damaged.
func readMark(file File, salt uint64) (newest mark, err error) {
	raw := make([]byte, markLen)
	for _, offset := range []int64{markAOffset, markBOffset} {
		if n, err := file.ReadAt(raw, offset); n < len(raw) {
			return mark{}, err
		}
		if m, isWhole := decodeMark(raw, salt); isWhole && m.syncedOffset >= newest.syncedOffset {
			newest = m
		}
	}
	return newest, nil
}
