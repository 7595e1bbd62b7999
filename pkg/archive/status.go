package archive

import (
	"context"
	"errors"
	"fmt"

	"github.com/farlog/farlog/pkg/store"
)

// Status asks archive and store how far each stream is archived, and writes nothing. Errors: ErrOtherStore,
// ErrNotAnArchive, those of calls and of the store.
func Status(ctx context.Context, from *store.Store, b *Bucket) ([]Progress, error) {
	identity, err := b.identity(ctx)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return nil, err
	}
	if err == nil && identity.StoreUUID != from.UUID().String() {
		return nil, fmt.Errorf("%w: %s is the archive of store %s, this is %s (%s)", ErrOtherStore, b.Location,
			identity.StoreUUID, from.UUID(), from.Dir())
	}
	streams, err := from.Streams()
	if err != nil {
		return nil, err
	}
	list := make([]Progress, len(streams))
	w := NewWriter(from, b, Period{})
	for i, stream := range streams {
		sealed, err := from.Sealed(stream)
		if err != nil {
			return nil, err
		}
		c, err := w.committed(ctx, stream, sealed.First)
		if err != nil {
			return nil, err
		}
		list[i] = Progress{Stream: stream, Archived: c.last, Sealed: newest(sealed), IsKnown: true}
		manifests, err := waiting(from, stream, sealed, c.last)
		if err != nil {
			return nil, err
		}
		list[i].measure(manifests)
	}
	return list, nil
}
