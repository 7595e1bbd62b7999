package replica

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/store"
)

// What this proves, and how. The second store's directory is taken from under a replica that follows. Its open files
// can be written and synced as before, but nobody finds them: it must say so, and count nothing as copied that is not
// there. Put back as it was, it goes on and is whole; removed for good, no other one is begun in its place.
func TestReplica_ItsStoreIsTakenAway(t *testing.T) {
	for _, isBack := range []bool{true, false} {
		t.Run(map[bool]string{true: "and put back", false: "for good"}[isBack],
			func(t *testing.T) { testTakenAway(t, isBack) })
	}
}

func testTakenAway(t *testing.T, isBack bool) {
	p, err := newPair(11, false)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	dir := filepath.Join(t.TempDir(), "second")
	second, err := store.Open(dir, store.Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	r := New(Config{
		Source: p.asked(), Store: second, PollInterval: time.Millisecond,
		Logger: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { r.Run(ctx); close(ended) }()
	defer func() { cancel(); <-ended }()
	until := func(what string, is func(Progress) bool) (seen Progress) {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
			list, _ := r.Progress()
			if len(list) == 1 && is(list[0]) {
				return list[0]
			}
			if time.Now().After(deadline) {
				t.Fatalf("%+v: waited until %s", list, what)
			}
		}
	}
	end := func() uint64 { return p.app.Last().LSN }
	p.storeRecords(t, 20)
	copied := until("all is copied", func(one Progress) bool { return one.Place.LSN == end() && one.LastError == "" })
	if err := os.Rename(dir, dir+".aside"); err != nil {
		t.Fatal(err)
	}
	p.storeRecords(t, 20)
	isTold := func(one Progress) bool { return strings.Contains(one.LastError, store.ErrGone.Error()) }
	if told := until("it is told", isTold); told.Place != copied.Place || told.Records != copied.Records {
		t.Errorf("counted what is nowhere: %+v, before %+v", told, copied)
	}
	if !isBack {
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("another store in its place: %v", err)
		}
		return
	}
	if err := os.Rename(dir+".aside", dir); err != nil {
		t.Fatal(err)
	}
	until("it goes on", func(one Progress) bool { return one.LastError == "" })
	list, err := store.Compare(t.Context(), p.first.store, second, "")
	if err != nil || len(list) != 1 || list[0].Difference != "" || list[0].OnlyHere != 0 || list[0].OnlyThere != 0 ||
		list[0].Records == 0 {
		t.Errorf("%+v, %v", list, err)
	}
}

// storeRecords appends records to the ring, and all that the first store lacks to that.
func (p *pair) storeRecords(t *testing.T, count int) {
	t.Helper()
	p.ring.Append(count, 500)
	for _, rec := range p.ring.Records {
		if last := p.app.Last(); !last.OK || rec.LSN > last.LSN {
			if _, _, err := p.app.Append(rec.Raw); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := p.app.Sync(); err != nil {
		t.Fatal(err)
	}
}
