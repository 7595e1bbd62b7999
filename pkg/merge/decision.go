package merge

import (
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

// decisions is the file of them: slots as those of the order, each a pair of its own because it has its stream's name
// in it.
type decisions struct {
	file  store.File
	name  string
	known map[string]map[store.Place]decision // by stream
	count uint32                              // pairs in the file
	fresh []byte                              // decided, not yet written
	raw   []byte                              // the whole ones as they were found, until settle
}

// openDecisions reads them all. What a crash left torn at the end was relied upon by nobody and is cut. isReadOnly
// leaves the file as it is; it may be missing then.
func openDecisions(fsys store.FS, dir string, isReadOnly bool) (*decisions, error) {
	d := &decisions{name: path.Join(dir, decisionsName), known: map[string]map[store.Place]decision{}}
	flags := os.O_RDWR | os.O_CREATE
	if isReadOnly {
		flags = os.O_RDONLY
	}
	var err error
	if d.file, err = fsys.OpenFile(d.name, flags, 0o644); err != nil {
		if isReadOnly && errors.Is(err, os.ErrNotExist) {
			return d, nil
		}
		return nil, fmt.Errorf("open %s: %w", d.name, err)
	}
	size, err := d.file.Size()
	raw := make([]byte, size)
	if err == nil && size > 0 {
		var n int
		if n, err = d.file.ReadAt(raw, 0); int64(n) == size {
			err = nil
		}
	}
	if err != nil {
		d.file.Close()
		return nil, fmt.Errorf("read %s: %w", d.name, err)
	}
	if err := d.take(raw); err != nil {
		d.file.Close()
		return nil, err
	}
	return d, nil
}

func (d *decisions) take(all []byte) error {
	raw := all
	for len(raw) >= 2*slotLen {
		one, err := decodeDecision(raw[:2*slotLen], d.count)
		if err != nil {
			break
		}
		d.of(one.stream)[one.Place] = one
		d.count++
		raw = raw[2*slotLen:]
	}
	if d.isSynced(raw) {
		return &store.CorruptError{
			Path: d.name, Offset: int64(d.count) * 2 * slotLen,
			Err: errors.New("decision is damaged: it was synced before the ones behind it"),
		}
	}
	d.raw = all[:int(d.count)*2*slotLen]
	return nil
}

// settle cuts what a crash left behind the whole ones.
func (d *decisions) settle() error {
	if err := d.file.Truncate(int64(len(d.raw))); err != nil {
		return fmt.Errorf("cut %s: %w", d.name, err)
	}
	// Written again: a process that died after a failed sync leaves them in the page cache as if they were on the disk.
	if _, err := d.file.WriteAt(d.raw, 0); err != nil {
		return fmt.Errorf("write %s: %w", d.name, err)
	}
	d.raw = nil
	if err := d.file.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", d.name, err)
	}
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

// isSynced tells whether the decision at the front of raw, which is none, was one: a later one says how many were
// synced before it was written.
func (d *decisions) isSynced(raw []byte) bool {
	for i := uint32(1); len(raw) >= int(i+1)*2*slotLen; i++ {
		pair := raw[i*2*slotLen:][:2*slotLen]
		if _, err := decodeDecision(pair, d.count+i); err == nil && binary.LittleEndian.Uint32(pair[52:]) > d.count {
			return true
		}
	}
	return false
}

// add decides. It counts once flush has returned.
func (d *decisions) add(one decision) {
	pending := uint32(len(d.fresh) / (2 * slotLen))
	if mutant != MutantDecisionForgotten {
		d.fresh = one.encode(d.fresh, d.count+pending, d.count)
	}
	d.of(one.stream)[one.Place] = one
}

func (d *decisions) flush() error {
	if len(d.fresh) == 0 {
		return nil
	}
	if _, err := d.file.WriteAt(d.fresh, int64(d.count)*2*slotLen); err != nil {
		return fmt.Errorf("write %s: %w", d.name, err)
	}
	if err := d.file.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", d.name, err)
	}
	d.count += uint32(len(d.fresh) / (2 * slotLen))
	d.fresh = d.fresh[:0]
	return nil
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

func (one decision) encode(dst []byte, index, synced uint32) []byte {
	var raw [2 * slotLen]byte
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
	binary.LittleEndian.PutUint32(raw[52:], synced)
	copy(raw[slotLen:], one.stream)
	binary.LittleEndian.PutUint32(raw[60:], record.CRC32C(record.CRC32C(index, raw[:60]), raw[slotLen:]))
	return append(dst, raw[:]...)
}

func decodeDecision(raw []byte, index uint32) (decision, error) {
	if record.CRC32C(record.CRC32C(index, raw[:60]), raw[slotLen:]) != binary.LittleEndian.Uint32(raw[60:]) {
		return decision{}, errSlotCRC
	}
	length := int(binary.LittleEndian.Uint16(raw[46:]))
	if length == 0 || length > slotLen {
		return decision{}, fmt.Errorf("stream name of %d bytes", length)
	}
	return decision{
		stream: strings.Clone(string(raw[slotLen : slotLen+length])),
		Place: store.Place{
			LSN: binary.LittleEndian.Uint64(raw[16:]), Epoch: binary.LittleEndian.Uint32(raw[32:]),
			Generation: uint64(binary.LittleEndian.Uint32(raw[36:])),
		},
		orderNS: binary.LittleEndian.Uint64(raw[0:]),
		isEarly: Flags(binary.LittleEndian.Uint16(raw[44:]))&FlagEarly != 0,
	}, nil
}
