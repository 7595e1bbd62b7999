package audit

import (
	"errors"
	"io"
	"iter"

	"github.com/farlog/farlog/pkg/record"
	"github.com/farlog/farlog/pkg/store"
)

// StreamSource gives the application's records of a stream in a store. Every record's check is made on the way; records
// that a later epoch replaced were never acknowledged and are left out. Reading needs no daemon and hinders no writer.
// The decrypter has the keys of encrypted records; nil: none, and the first one is an error.
func StreamSource(from *store.Store, stream string, decrypter *record.Decrypter) Source {
	if decrypter == nil {
		decrypter = record.NewDecrypter(nil)
	}
	return func() iter.Seq2[Entry, error] {
		return func(yield func(Entry, error) bool) {
			reader, err := from.OpenReader(stream, store.ReaderOptions{})
			if err != nil {
				yield(Entry{}, err)
				return
			}
			defer reader.Close() // only reads: nothing can be lost by its error
			for {
				item, err := reader.Next()
				if errors.Is(err, io.EOF) {
					return
				}
				if err == nil {
					item.Record, err = decrypter.Decrypt(item.Record)
				}
				if err != nil {
					yield(Entry{}, err)
					return
				}
				if !yield(Entry{TimestampNS: int64(item.TimestampNS), LSN: item.LSN, Payload: item.Payload}, nil) {
					return
				}
			}
		}
	}
}
