package merge

import "github.com/farlog/farlog/pkg/store"

// Write writes what is put into the order, and does not sync it.
func (m *Merger) Write() error { return m.log.write() }

// Decide decides about a record that has not come yet, as no merge does.
func (m *Merger) Decide(stream string, place store.Place, orderNS uint64) {
	m.log.decisions.add(decision{stream: stream, Place: place, orderNS: orderNS})
}
