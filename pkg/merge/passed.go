package merge

import (
	"path"

	"github.com/farlog/farlog/pkg/store"
)

// Passed gives the last record of each stream that is in the order of a store, synced. nil: the store has no order.
// Blocks for reading the order's last segment.
func Passed(s *store.Store) (map[string]store.Place, error) {
	dir := path.Join(s.Dir(), dirName)
	names, err := s.FS().ReadDir(s.Dir())
	if err != nil {
		return nil, err
	}
	isThere := false
	for _, name := range names {
		isThere = isThere || name == dirName
	}
	if !isThere {
		return nil, nil
	}
	at, err := openOrder(s, dir, SegmentBytesDefault)
	if err != nil {
		return nil, err
	}
	end, err := at.end()
	if err != nil {
		return nil, err
	}
	places := map[string]store.Place{}
	for name, of := range end.streams {
		places[name] = of.last.Place
	}
	return places, nil
}
