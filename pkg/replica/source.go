// Package replica keeps a second store of the same records in another failure domain.
//
// A replica asks the first store for what comes behind its own last record, checks each record's CRC, appends and syncs
// it, and asks again. It keeps no position but that record: it may be killed at any moment and goes on without a record
// twice or left out. It only reads at the first site, whose drain, rings and writers do not know of it; what it gives
// is a copy that is behind by its lag, not a durability level of an append.
package replica

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/farlog/farlog/pkg/store"
)

// StreamInfo is a stream of the first store.
type StreamInfo struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"` // of records that are synced
}

// Batch is a part of one generation of a stream: whole records, verbatim, back to back.
type Batch struct {
	Generation store.Generation
	Records    []byte
	IsEnd      bool // there was nothing behind it
}

// Source is the first store, wherever it is.
type Source interface {
	// Changed gives the streams that have changed since a mark of this source, all of them since another one. It waits
	// for a change, a few seconds at most.
	Changed(ctx context.Context, since string) (Changes, error)
	// Read gives what lies at or behind a place; no records when nothing does. Errors: store.ErrNotFound.
	Read(ctx context.Context, stream string, from store.Place) (Batch, error)
}

const batchBytes = 1 << 20

// StoreSource is a store in a directory that this host sees. It keeps one reader a stream, so that reading on does not
// begin again; at the end of its stream a reader has no open file.
type StoreSource struct {
	store   *store.Store
	changes *changes

	mutex   sync.Mutex
	readers map[string]*position
}

// position is a reader and where it stands.
type position struct {
	mutex  sync.Mutex
	reader *store.Reader
	next   store.Place
	held   *store.Item // read and not given: it is of the next generation, or too much
}

// NewStoreSource serves a store; Close closes its files.
func NewStoreSource(s *store.Store) *StoreSource {
	return &StoreSource{store: s, changes: newChanges(s), readers: map[string]*position{}}
}

// Close closes all files.
func (s *StoreSource) Close() error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	var errs []error
	for _, p := range s.readers {
		if p.reader != nil {
			errs = append(errs, p.reader.Close())
		}
	}
	s.readers = map[string]*position{}
	return errors.Join(errs...)
}

// Read gives up to a megabyte, or one record that is larger.
func (s *StoreSource) Read(_ context.Context, stream string, from store.Place) (Batch, error) {
	s.mutex.Lock()
	p := s.readers[stream]
	if p == nil {
		p = new(position)
		s.readers[stream] = p
	}
	s.mutex.Unlock()
	p.mutex.Lock()
	defer p.mutex.Unlock()
	var batch Batch
	err := p.seek(s.store, stream, from)
	if err == nil {
		batch, err = p.read()
	}
	if err == nil && batch.IsEnd {
		err = p.reader.Park()
	}
	if err != nil && p.reader != nil { // where it stands is not where p.next says
		_ = p.reader.Close() // says nothing that err does not
		p.reader = nil
	}
	return batch, err
}

func (p *position) seek(s *store.Store, stream string, from store.Place) error {
	if p.reader != nil && p.next == from {
		return nil
	}
	if p.reader == nil {
		reader, err := s.OpenReader(stream, store.ReaderOptions{
			IncludeControl: true, IncludeSuperseded: true,
			SyncedOnly: true, IsOpenFast: true,
		})
		if err != nil {
			return err
		}
		p.reader = reader
	}
	p.held, p.next = nil, from
	return p.reader.SeekPlace(from)
}

func (p *position) read() (batch Batch, err error) {
	for len(batch.Records) < batchBytes {
		item, err := p.item()
		if errors.Is(err, io.EOF) {
			batch.IsEnd = true
			return batch, nil
		}
		if err != nil {
			return Batch{}, err
		}
		if batch.Generation.Number == 0 {
			batch.Generation = p.generation(item.Generation)
		}
		if item.Generation != batch.Generation.Number {
			item.Raw = append([]byte(nil), item.Raw...) // the only part that is used of it
			p.held = &item
			return batch, nil
		}
		batch.Records = append(batch.Records, item.Raw...)
		p.next = item.Place()
		p.next.LSN++
	}
	return batch, nil
}

func (p *position) item() (store.Item, error) {
	if p.held != nil {
		item := *p.held
		p.held = nil
		return item, nil
	}
	return p.reader.Next()
}

func (p *position) generation(number uint64) store.Generation {
	for _, one := range p.reader.Generations() {
		if one.Number == number {
			return one
		}
	}
	panic(fmt.Sprintf("reader gave a record of generation %d, which it does not know", number))
}
