package state

import (
	"maps"
	"slices"
)

// Subscription receives which streams have changed since it was received last. Its fields are the mirror's, under its
// mutex.
type Subscription struct {
	// only streams whose writer's grant is for that host, before the change or after it; "": all
	host    string
	isAll   bool            // which of them is not known
	streams map[string]bool // since the last time
	Wakeup  chan struct{}   // has space for one signal: there are some
}

func (l *Subscription) wake() {
	select {
	case l.Wakeup <- struct{}{}:
	default: // it is said already
	}
}

func (l *Subscription) add(streams map[string]bool) {
	maps.Copy(l.streams, streams)
	l.wake()
}

// changes are the streams that were changed last, each at the revision of the view that showed it first. Those that are
// gone stay until there are too many of them.
type changes struct {
	since int64 // from here on all are known
	at    map[string]int64
	kept  int // streams that were there when others were forgotten
}

// note remembers what a view shows. Whoever asks for what was before the forgotten is told all there is.
func (c *changes) note(next *View, streams map[string]bool) {
	for stream := range streams {
		c.at[stream] = next.Revision
	}
	if len(c.at) <= max(endedMost, 2*c.kept) {
		return
	}
	maps.DeleteFunc(c.at, func(stream string, _ int64) bool { return next.Streams[stream] == nil })
	c.kept, c.since = len(c.at), next.Revision
}

// Subscribe begins to learn of streams, from what is behind a revision on; leave ends it.
func (m *Mirror) Subscribe(host string, revision int64) (l *Subscription, leave func()) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	l = &Subscription{host: host, Wakeup: make(chan struct{}, 1), streams: map[string]bool{}, isAll: revision == 0 ||
		revision < m.streamsChanged.since || revision > m.current.Revision}
	if !l.isAll {
		for stream, at := range m.streamsChanged.at {
			if at > revision {
				l.streams[stream] = true
			}
		}
	}
	if m.subscriptions[host] == nil {
		m.subscriptions[host] = map[*Subscription]bool{}
	}
	m.subscriptions[host][l] = true
	return l, func() {
		m.mutex.Lock()
		defer m.mutex.Unlock()
		if delete(m.subscriptions[host], l); len(m.subscriptions[host]) == 0 {
			delete(m.subscriptions, host)
		}
	}
}

// Next gives the present view, and what has changed since the last time, by name; Wakeup is signalled when there
// is more.
func (m *Mirror) Next(l *Subscription) (now *View, streams []string, isAll bool) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	streams, isAll = slices.Sorted(maps.Keys(l.streams)), l.isAll
	l.streams, l.isAll = map[string]bool{}, false
	return m.current, streams, isAll
}

// notify tells the listeners what a view changes, nil: anything may be another. The caller holds the mutex.
func (m *Mirror) notify(next *View, touched *touched) {
	if touched == nil {
		m.streamsChanged = changes{since: next.Revision, at: map[string]int64{}}
		for _, listeners := range m.subscriptions {
			for l := range listeners {
				l.isAll = true
				l.wake()
			}
		}
		return
	}
	if len(touched.streams) == 0 {
		return
	}
	m.streamsChanged.note(next, touched.streams)
	for l := range m.subscriptions[""] {
		l.add(touched.streams)
	}
	for host, streams := range touched.writers {
		for l := range m.subscriptions[host] {
			l.add(streams)
		}
	}
}

// touch is called for a stream of which something has changed that is decided by; tell for one of which something is
// told alone.
func (t *touched) touch(v *View, stream string) {
	t.Touch(stream)
	t.touchStream(v, stream)
}

func (t *touched) touchStream(v *View, stream string) {
	t.streams[stream] = true
	host := v.Grants[stream].GetHolder().GetHost()
	if host == "" {
		return
	}
	if t.writers[host] == nil {
		t.writers[host] = map[string]bool{}
	}
	t.writers[host][stream] = true
}
