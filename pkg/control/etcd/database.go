package etcd

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
)

// The format of bbolt's file, version 2 (go.etcd.io/bbolt/internal/common: page.go, meta.go, bucket.go). Numbers are in
// the byte order of the machine.
const (
	boltMagic        = 0xED0CDAED
	boltVersion      = 2
	pageHeaderLen    = 16 // id 8, flags 2, count 2, overflow 4
	elementLen       = 16 // of a branch: position 4, key length 4, page 8; of a leaf: flags, position, two lengths
	metaLen          = 64
	bucketHeaderLen  = 16 // root page 8, sequence 8
	pageSizeLeast    = 1024
	pageSizeMost     = pageSizeLeast << 14
	pageBranch       = 0x01
	pageLeaf         = 0x02
	elementIsBucket  = 0x01
	consistentIndex  = "consistent_index"
	consistentBucket = "meta"
)

// database is a file of bbolt that is being checked. Unlike bbolt, which maps it, it is read.
type database struct {
	file      io.ReaderAt
	pageSize  uint64
	pageCount uint64 // ever used
	seen      []bool // by page
	index     uint64 // the entry of the log that the database is at
}

// checkDatabase reports whether bbolt can work with a file: each page that a bucket leads to is there, is what it says,
// belongs to one bucket, and has its keys in order. index: the last entry of etcd's log that it holds. Bytes of values
// have no checksum. It blocks for the reading of the file, which nobody may write meanwhile.
func checkDatabase(file io.ReaderAt) (index uint64, err error) {
	d := &database{file: file}
	root, err := d.readMeta()
	if err != nil {
		return 0, err
	}
	d.seen = make([]bool, d.pageCount)
	err = d.checkTree("", root, nil, nil)
	return d.index, err
}

// readMeta takes the newer of the two meta pages that is whole, as bbolt does: of the one a power cut may have left a
// part.
func (d *database) readMeta() (root uint64, err error) {
	newest, isAny := uint64(0), false
	take := func(raw []byte) {
		if txid := binary.NativeEndian.Uint64(raw[48:]); !isAny || txid > newest {
			newest, isAny = txid, true
			root, d.pageCount = binary.NativeEndian.Uint64(raw[16:]), binary.NativeEndian.Uint64(raw[40:])
		}
	}
	d.pageSize = 0
	for at := int64(0); at <= pageSizeMost; at = max(pageSizeLeast, 2*at) {
		raw, err := d.metaAt(at)
		if err != nil {
			return 0, err
		}
		if raw == nil || d.pageSize != 0 && at != int64(d.pageSize) {
			continue
		}
		d.pageSize = uint64(binary.NativeEndian.Uint32(raw[8:]))
		take(raw)
	}
	if !isAny || d.pageSize < pageSizeLeast || d.pageSize > pageSizeMost {
		return 0, errors.New("neither of its two meta pages is whole")
	}
	if root >= d.pageCount {
		return 0, fmt.Errorf("root page %d, expected one below %d", root, d.pageCount)
	}
	return root, nil
}

// metaAt reads a meta page; nil: there is none.
func (d *database) metaAt(at int64) ([]byte, error) {
	raw := make([]byte, metaLen)
	if _, err := d.file.ReadAt(raw, at+pageHeaderLen); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	sum := fnv.New64a()
	_, _ = sum.Write(raw[:metaLen-8])
	if binary.NativeEndian.Uint32(raw) != boltMagic || binary.NativeEndian.Uint32(raw[4:]) != boltVersion ||
		binary.NativeEndian.Uint64(raw[metaLen-8:]) != sum.Sum64() {
		return nil, nil
	}
	return raw, nil
}

// readPage reads a page with all that it goes on over.
func (d *database) readPage(id uint64) ([]byte, error) {
	if id < 2 || id >= d.pageCount {
		return nil, fmt.Errorf("page %d, expected one from 2 to %d", id, d.pageCount-1)
	}
	header := make([]byte, pageHeaderLen)
	if _, err := d.file.ReadAt(header, int64(id*d.pageSize)); err != nil {
		return nil, fmt.Errorf("page %d: %w", id, err)
	}
	self, overflow := binary.NativeEndian.Uint64(header), uint64(binary.NativeEndian.Uint32(header[12:]))
	if self != id {
		return nil, fmt.Errorf("page %d says it is page %d", id, self)
	}
	if id+overflow >= d.pageCount {
		return nil, fmt.Errorf("page %d goes on over %d more, expected at most %d", id, overflow, d.pageCount-1-id)
	}
	for i := id; i <= id+overflow; i++ {
		if d.seen[i] {
			return nil, fmt.Errorf("page %d is used twice", i)
		}
		d.seen[i] = true
	}
	page := make([]byte, (1+overflow)*d.pageSize)
	if _, err := d.file.ReadAt(page, int64(id*d.pageSize)); err != nil {
		return nil, fmt.Errorf("page %d: %w", id, err)
	}
	return page, nil
}

// checkTree checks the pages of a bucket from one of them down. Their keys are not below low, and below high; nil: no
// bound.
func (d *database) checkTree(bucket string, id uint64, low, high []byte) error {
	page, err := d.readPage(id)
	if err != nil {
		return err
	}
	switch flags := binary.NativeEndian.Uint16(page[8:]); flags {
	case pageBranch:
		return d.checkBranch(bucket, id, page, low, high)
	case pageLeaf:
		return d.checkLeaf(bucket, id, page, low, high)
	default:
		return fmt.Errorf("page %d is of type %#x, expected a branch (%#x) or a leaf (%#x)", id, flags, pageBranch,
			pageLeaf)
	}
}

func (d *database) checkBranch(bucket string, id uint64, page, low, high []byte) error {
	count := int(binary.NativeEndian.Uint16(page[10:]))
	if count == 0 {
		return fmt.Errorf("page %d is a branch without pages below", id)
	}
	keys, children := make([][]byte, count+1), make([]uint64, count)
	for i := range count {
		element, err := elementAt(page, i)
		if err == nil {
			keys[i], err = cut(element, binary.NativeEndian.Uint32(element), binary.NativeEndian.Uint32(element[4:]))
		}
		if err != nil {
			return fmt.Errorf("page %d: element %d: %w", id, i, err)
		}
		children[i] = binary.NativeEndian.Uint64(element[8:])
	}
	keys[count] = high
	if err := checkOrder(id, keys[:count], low, high); err != nil {
		return err
	}
	for i, child := range children {
		if err := d.checkTree(bucket, child, keys[i], keys[i+1]); err != nil {
			return err
		}
	}
	return nil
}

func (d *database) checkLeaf(bucket string, id uint64, page, low, high []byte) error {
	keys := make([][]byte, binary.NativeEndian.Uint16(page[10:]))
	for i := range keys {
		element, err := elementAt(page, i)
		var value []byte
		if err == nil {
			from, keyLen := binary.NativeEndian.Uint32(element[4:]), binary.NativeEndian.Uint32(element[8:])
			if keys[i], err = cut(element, from, keyLen); err == nil {
				value, err = cut(element[from+keyLen:], 0, binary.NativeEndian.Uint32(element[12:]))
			}
		}
		if err == nil {
			err = d.checkValue(bucket, id, binary.NativeEndian.Uint32(element), keys[i], value)
		}
		if err != nil {
			return fmt.Errorf("page %d: element %d: %w", id, i, err)
		}
	}
	return checkOrder(id, keys, low, high)
}

// checkValue checks a bucket in a leaf, which may lie in there whole.
func (d *database) checkValue(bucket string, id uint64, flags uint32, key, value []byte) error {
	switch {
	case flags&elementIsBucket == 0 && bucket == consistentBucket && string(key) == consistentIndex && len(value) == 8:
		d.index = binary.BigEndian.Uint64(value)
		return nil
	case flags&elementIsBucket == 0:
		return nil
	case len(value) < bucketHeaderLen:
		return fmt.Errorf("bucket %q of %d bytes, expected at least %d", key, len(value), bucketHeaderLen)
	}
	if root := binary.NativeEndian.Uint64(value); root != 0 {
		return d.checkTree(string(key), root, nil, nil)
	}
	if inline := value[bucketHeaderLen:]; len(inline) >= pageHeaderLen {
		return d.checkLeaf(string(key), id, inline, nil, nil)
	}
	return fmt.Errorf("bucket %q has no page", key)
}

// checkOrder reports whether keys ascend, from low on and up to high.
func checkOrder(id uint64, keys [][]byte, low, high []byte) error {
	for i, key := range keys {
		isAbove := i == 0 && bytes.Compare(key, low) >= 0 || i > 0 && bytes.Compare(key, keys[i-1]) > 0
		if !isAbove || high != nil && bytes.Compare(key, high) >= 0 {
			return fmt.Errorf("page %d: key %q of element %d is out of order", id, key, i)
		}
	}
	return nil
}

// elementAt is a page from one of its elements on: positions count from there.
func elementAt(page []byte, i int) ([]byte, error) {
	at := pageHeaderLen + i*elementLen
	if at+elementLen > len(page) {
		return nil, errors.New("it lies behind the page's end")
	}
	return page[at:], nil
}

func cut(from []byte, at, length uint32) ([]byte, error) {
	if uint64(at)+uint64(length) > uint64(len(from)) {
		return nil, fmt.Errorf("%d bytes at %d, expected them within the %d of the page", length, at, len(from))
	}
	return from[at : at+length], nil
}
