package merge

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"github.com/farlog/farlog/pkg/record"
	"github.com/farlog/farlog/pkg/store"
)

const decisionsName = "decisions"

// decision gives one record an order time that is not the one in it. It is all about the merged order that the streams
// do not tell themselves: made once, by a clock, and kept for ever.
type decision struct {
	stream string
	store.Place
	orderNS uint64
	isEarly bool
}

// Layout of the file of decisions (docs/reference/format-merge.md): two marks, then the decisions.
const (
	markAOff       = 0
	markBOff       = 512
	markLen        = 32
	markCRCOff     = 28
	decisionsOff   = 1024
	decisionLen    = 128
	decisionCRCOff = 60
	nameOff        = 64
)

// mark says how many decisions are synced. A and B are written in turn.
type mark struct{ count, turn uint64 }

// decisions is the file of them.
type decisions struct {
	file  store.File
	name  string
	known map[string]map[store.Place]decision // by stream
	count uint32                              // in the file
	mark  mark
	fresh []byte // decided, not yet written
}

// openDecisions reads them all. As many as the mark says must be whole; what a crash left torn behind them was relied
// upon by nobody and is cut. isReadOnly leaves the file as it is; it may be missing then.
func openDecisions(fsys store.FS, dir string, isReadOnly bool) (*decisions, error) {
	d := &decisions{name: path.Join(dir, decisionsName), known: map[string]map[store.Place]decision{}}
	flags := os.O_RDWR | os.O_CREATE
	if isReadOnly {
		flags = os.O_RDONLY
	}
	var err error
	if d.file, err = fsys.OpenFile(d.name, flags, 0o640); err != nil {
		if isReadOnly && errors.Is(err, os.ErrNotExist) {
			return d, nil
		}
		return nil, fmt.Errorf("open %s: %w", d.name, err)
	}
	size, err := d.file.Size()
	raw := make([]byte, max(size, decisionsOff))
	if err == nil && size > 0 {
		var n int
		if n, err = d.file.ReadAt(raw[:size], 0); int64(n) == size {
			err = nil
		}
	}
	if err != nil {
		_ = d.file.Close()
		return nil, fmt.Errorf("read %s: %w", d.name, err)
	}
	if err = checkMarks(raw, size); err != nil {
		err = &store.CorruptError{Path: d.name, Err: err}
	} else if err = d.applyDecisions(raw); err == nil && !isReadOnly {
		err = d.cutTail(raw[:d.end()])
	}
	if err != nil {
		_ = d.file.Close()
		return nil, err
	}
	return d, nil
}

// end is where the next decision goes.
func (d *decisions) end() int64 { return decisionsOff + int64(d.count)*decisionLen }

func (d *decisions) applyDecisions(raw []byte) error {
	d.mark = decodeMarks(raw)
	for int64(len(raw)) >= d.end()+decisionLen {
		one, err := decodeDecision(raw[d.end():][:decisionLen], d.count)
		if err != nil {
			break
		}
		d.of(one.stream)[one.Place] = one
		d.count++
	}
	if uint64(d.count) < d.mark.count {
		return &store.CorruptError{
			Path: d.name, Offset: d.end(),
			Err: fmt.Errorf("%d decisions are whole, %d were synced", d.count, d.mark.count),
		}
	}
	return nil
}

// cutTail cuts what a crash left behind the whole ones.
func (d *decisions) cutTail(whole []byte) error {
	if err := d.file.Truncate(int64(len(whole))); err != nil {
		return fmt.Errorf("cut %s: %w", d.name, err)
	}
	// Written again: a process that died after a failed sync leaves them in the page cache as if they were on the disk.
	if _, err := d.file.WriteAt(whole[decisionsOff:], decisionsOff); err != nil {
		return fmt.Errorf("write %s: %w", d.name, err)
	}
	return d.sync()
}

// sync makes what is written durable, and says in the mark how many there are. The mark itself becomes durable with the
// next sync; until then it serves after a crash of the process.
func (d *decisions) sync() error {
	if err := d.file.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", d.name, err)
	}
	if uint64(d.count) == d.mark.count {
		return nil
	}
	next := mark{uint64(d.count), d.mark.turn + 1}
	off := int64(markBOff)
	if next.turn%2 == 1 {
		off = markAOff
	}
	if _, err := d.file.WriteAt(next.encode(), off); err != nil {
		return fmt.Errorf("mark %s: %w", d.name, err)
	}
	d.mark = next
	return nil
}

// of gives the decisions about one stream; later ones come into the same map.
func (d *decisions) of(stream string) map[store.Place]decision {
	known := d.known[stream]
	if known == nil {
		known = map[store.Place]decision{}
		d.known[stream] = known
	}
	return known
}

// add decides. It counts once flush has returned.
func (d *decisions) add(one decision) {
	pending := uint32(len(d.fresh) / decisionLen)
	if mutant != MutantDecisionForgotten {
		d.fresh = one.encode(d.fresh, d.count+pending)
	}
	d.of(one.stream)[one.Place] = one
}

func (d *decisions) flush() error {
	if len(d.fresh) == 0 {
		return nil
	}
	if _, err := d.file.WriteAt(d.fresh, d.end()); err != nil {
		return fmt.Errorf("write %s: %w", d.name, err)
	}
	d.count += uint32(len(d.fresh) / decisionLen)
	d.fresh = d.fresh[:0]
	return d.sync()
}

func (d *decisions) close() error {
	if d.file == nil {
		return nil
	}
	if err := d.file.Close(); err != nil {
		return fmt.Errorf("close %s: %w", d.name, err)
	}
	return nil
}

func (m mark) encode() []byte {
	raw := make([]byte, markLen)
	binary.LittleEndian.PutUint64(raw, m.count)
	binary.LittleEndian.PutUint64(raw[8:], m.turn)
	binary.LittleEndian.PutUint32(raw[markCRCOff:], record.CRC32C(0, raw[:markCRCOff]))
	return raw
}

// errForeign refuses a file that would be taken for one without decisions, and cut.
var errForeign = errors.New("no file of decisions: move it away, or put the right one there, and try again")

// checkMarks refuses what no crash leaves: bytes between the marks, two marks that are torn, or one before a decision.
func checkMarks(raw []byte, size int64) error {
	torn := 0
	for _, off := range []int{markAOff, markBOff} {
		if !isZero(raw[off+markLen : off+markBOff-markAOff]) {
			return errForeign
		}
		if _, isWhole := decodeMark(raw[off:]); !isWhole && !isZero(raw[off:off+markLen]) {
			torn++
		}
	}
	if torn == 2 || torn == 1 && size <= decisionsOff {
		return errForeign
	}
	return nil
}

func isZero(raw []byte) bool { return len(bytes.TrimLeft(raw, "\x00")) == 0 }

// decodeMarks gives the newer of the two; the zero mark when there is none.
func decodeMarks(raw []byte) mark {
	var newest mark
	for _, off := range []int{markAOff, markBOff} {
		if m, isWhole := decodeMark(raw[off:]); isWhole && m.turn > newest.turn {
			newest = m
		}
	}
	return newest
}

func decodeMark(raw []byte) (m mark, isWhole bool) {
	m = mark{binary.LittleEndian.Uint64(raw), binary.LittleEndian.Uint64(raw[8:])}
	return m, record.CRC32C(0, raw[:markCRCOff]) == binary.LittleEndian.Uint32(raw[markCRCOff:])
}

func (one decision) encode(dst []byte, index uint32) []byte {
	var raw [decisionLen]byte
	binary.LittleEndian.PutUint64(raw[0:], one.orderNS)
	binary.LittleEndian.PutUint64(raw[16:], one.LSN)
	binary.LittleEndian.PutUint32(raw[32:], one.Epoch)
	binary.LittleEndian.PutUint32(raw[36:], uint32(one.Generation))
	flags := FlagLate
	if one.isEarly {
		flags = FlagEarly
	}
	binary.LittleEndian.PutUint16(raw[44:], uint16(flags))
	binary.LittleEndian.PutUint16(raw[46:], uint16(len(one.stream)))
	copy(raw[nameOff:], one.stream)
	binary.LittleEndian.PutUint32(raw[decisionCRCOff:], decisionCRC(raw[:], index))
	return append(dst, raw[:]...)
}

// decisionCRC continues that of the decision's number in the file, so that it proves its place.
func decisionCRC(raw []byte, index uint32) uint32 {
	return record.CRC32C(record.CRC32C(index, raw[:decisionCRCOff]), raw[nameOff:])
}

func decodeDecision(raw []byte, index uint32) (decision, error) {
	if decisionCRC(raw, index) != binary.LittleEndian.Uint32(raw[decisionCRCOff:]) {
		return decision{}, errors.New("CRC does not match")
	}
	length := int(binary.LittleEndian.Uint16(raw[46:]))
	if length == 0 || length > decisionLen-nameOff {
		return decision{}, fmt.Errorf("stream name of %d bytes", length)
	}
	return decision{
		stream: strings.Clone(string(raw[nameOff : nameOff+length])),
		Place: store.Place{
			LSN: binary.LittleEndian.Uint64(raw[16:]), Epoch: binary.LittleEndian.Uint32(raw[32:]),
			Generation: uint64(binary.LittleEndian.Uint32(raw[36:])),
		},
		orderNS: binary.LittleEndian.Uint64(raw[0:]),
		isEarly: Flags(binary.LittleEndian.Uint16(raw[44:]))&FlagEarly != 0,
	}, nil
}
