package replica

import (
	"errors"
	"strings"
	"testing"

	"github.com/farlog/farlog/pkg/store"
	"github.com/farlog/farlog/pkg/store/storetest"
)

// fill puts records into the first store, in segments of which the oldest are sealed.
func (p *pair) fill(t *testing.T, count int) {
	t.Helper()
	p.ring.Append(count, 900)
	for _, rec := range p.ring.Records {
		if _, _, err := p.app.Append(rec.Raw); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.app.Sync(); err != nil {
		t.Fatal(err)
	}
}

func (p *pair) remove(t *testing.T) *store.Base {
	t.Helper()
	h, err := p.first.store.History("desk7/orders")
	if err != nil || len(h.Sizes) < 2 {
		t.Fatalf("history %+v: %v", h, err)
	}
	base, err := p.app.RemoveBefore(store.Removal{Before: h.First + uint64(len(h.Sizes)), Policy: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return base
}

// TestBase_ReplicaThatWasBehindHasNoHole: it says, each time, that what it needs next was removed.
func TestBase_ReplicaThatWasBehindHasNoHole(t *testing.T) {
	for _, isFar := range []bool{false, true} {
		p, err := newPair(1, isFar)
		if err != nil {
			t.Fatal(err)
		}
		p.fill(t, 5)
		if _, err := p.copy(); err != nil {
			t.Fatal(err)
		}
		before := p.follower.place
		p.fill(t, 300)
		p.remove(t)
		for range 3 {
			if _, err := p.copy(); err == nil || !strings.Contains(err.Error(), "removed by retention") {
				t.Errorf("over http: %t: replica goes on behind what was removed: %v", isFar, err)
			}
		}
		if p.follower.place != before {
			t.Errorf("over http: %t: replica is at %s, it was at %s", isFar, p.follower.place, before)
		}
		p.close()
	}
}

// TestBase_NewReplicaBeginsThere: of the first ring. Of a later one it would count generations otherwise, and refuses.
func TestBase_NewReplicaBeginsThere(t *testing.T) {
	p, err := newPair(1, false)
	if err != nil {
		t.Fatal(err)
	}
	p.fill(t, 300)
	base := p.remove(t)
	for isEnd := false; !isEnd; {
		if isEnd, err = p.copy(); err != nil {
			t.Fatal(err)
		}
	}
	r, err := p.second.store.OpenReader("desk7/orders", store.ReaderOptions{IncludeControl: true})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if item, err := r.Next(); err != nil || item.LSN != base.NextLSN {
		t.Errorf("replica begins at lsn %d, expected %d: %v", item.LSN, base.NextLSN, err)
	}

	if err := p.app.Close(); err != nil {
		t.Fatal(err)
	}
	p.ring = storetest.NewRing("desk7/orders", 2)
	if p.app, err = p.first.store.OpenStream(p.ring.Source); err != nil {
		t.Fatal(err)
	}
	p.fill(t, 300)
	p.remove(t)
	p.second = site{fs: storetest.NewCrashFS(9)}
	p.source = NewStoreSource(p.first.store)
	if err := p.openSecond(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.copy(); !errors.Is(err, store.ErrRemoved) {
		t.Errorf("replica begins with a later generation: %v", err)
	}
}
