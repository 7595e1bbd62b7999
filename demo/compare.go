package main

import (
	"errors"
	"fmt"
	"hash/maphash"
	"io"

	"github.com/farlog/farlog/pkg/store"
)

// comparison is what the store has of what was acknowledged.
type comparison struct {
	acknowledged, stored      uint64 // stored: the application's records, acknowledged or not
	missing, duplicated, torn uint64
	firstFault                string
}

type place struct {
	epoch uint32
	lsn   uint64
}

// seen is an acknowledged record and how often the store has it.
type seen struct {
	hash  uint64
	count uint32
}

// compare looks up every acknowledged record in the store by (epoch, lsn) and compares its bytes.
func compare(dir string, f *feed) (comparison, error) {
	result := comparison{acknowledged: uint64(len(f.acknowledged))}
	wanted := make(map[place]*seen, len(f.acknowledged))
	for _, a := range f.acknowledged {
		at := place{a.epoch, a.lsn}
		if wanted[at] != nil {
			return result, fmt.Errorf("lsn %d of epoch %d was acknowledged twice", a.lsn, a.epoch)
		}
		wanted[at] = &seen{hash: a.hash}
	}
	opened, err := store.Open(dir, store.Options{})
	if err != nil {
		return result, err
	}
	reader, err := opened.OpenReader(streamName, store.ReaderOptions{})
	if err != nil {
		return result, err
	}
	defer reader.Close()
	for {
		item, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return result, err
		}
		result.stored++
		record := wanted[place{item.Epoch, item.LSN}]
		if record == nil {
			continue // stored and not acknowledged: its writer was killed before it could say so
		}
		record.count++
		if record.hash != maphash.Bytes(f.seed, item.Payload) {
			result.torn++
			result.fault("the record at lsn %d of epoch %d is not what was acknowledged", item.LSN, item.Epoch)
		}
		if record.count > 1 {
			result.duplicated++
			result.fault("the record at lsn %d of epoch %d is stored %d times", item.LSN, item.Epoch, record.count)
		}
	}
	for at, record := range wanted {
		if record.count == 0 {
			result.missing++
			result.fault("the record at lsn %d of epoch %d is not stored", at.lsn, at.epoch)
		}
	}
	return result, nil
}

func (c *comparison) fault(format string, args ...any) {
	if c.firstFault == "" {
		c.firstFault = fmt.Sprintf(format, args...)
	}
}
