package consume_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/consume"
	"github.com/farlog/farlog/pkg/farlog"
)

// ringsOf makes the site's stream one with three members of four rings that are formatted alike: the fourth one is to
// be put in the first one's place.
func ringsOf(s *site) (first, replaced string) {
	s.Helper()
	var rings [4]string
	for i := range rings {
		rings[i] = filepath.Join(s.dir, fmt.Sprintf("m%d.ring", i))
		s.must(farlog.Format("mem:"+rings[i], farlog.FormatOptions{
			SizeBytes: 0x3000 + 64<<10, RecordLenMax: 4096,
			StreamName: "desk7/orders", Salt: 7,
		}))
	}
	uri := func(i int) string { return fmt.Sprintf("members:2 mem:%s mem:%s mem:%s", rings[i], rings[1], rings[2]) }
	return uri(0), uri(3)
}

// keep gives what puts the site's three rings back as they are now.
func keep(s *site) (putBack func()) {
	s.Helper()
	held := map[string][]byte{}
	for i := range 3 {
		path := filepath.Join(s.dir, fmt.Sprintf("m%d.ring", i))
		raw, err := os.ReadFile(path)
		s.must(err)
		held[path] = raw
	}
	return func() {
		for path, raw := range held {
			s.must(os.WriteFile(path, raw, 0o600))
		}
	}
}

func (s *site) closeWriter() {
	s.Helper()
	s.must(s.writer.Close())
	s.writer = nil
}

func (s *site) isOfTheFirstGeneration(c *consume.Consumer) {
	s.Helper()
	s.append(1)
	item, err := c.Next()
	for deadline := time.Now().Add(waitMax); errors.Is(err, farlog.ErrNotYet) && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
		item, err = c.Next()
	}
	s.must(err)
	if item.Place.Generation != 1 {
		s.Errorf("generation %d of the stream, expected the first", item.Place.Generation)
	}
}

// The store knows a stream by the ring that its first member had when it was begun. That one is replaced: a consumer
// goes on from the store in the rings, whether they were released up to there or a drain died before it could, and it
// has every record once.
func TestConsumer_FirstMemberWasReplaced(t *testing.T) {
	for _, isReleased := range []bool{true, false} {
		s := newSite(t)
		first, replaced := ringsOf(s)
		s.ring = first
		s.openWriter()
		s.append(40)
		s.closeWriter()
		putBack := keep(s)
		s.openWriter()
		s.drained()
		s.closeWriter()
		if !isReleased {
			putBack()
		}
		s.ring = replaced
		s.openWriter()
		s.append(20)
		for _, start := range []consume.Start{consume.StartOldest, consume.StartHead} {
			c := s.open(consume.Config{Store: s.store, Start: start})
			from := 0
			if isReleased && start == consume.StartHead {
				from = 40
			}
			s.expect(s.readUntil(c, s.count-from), from, s.count)
			s.isOfTheFirstGeneration(c)
			s.must(c.Close())
		}
		s.drained()
		c := s.open(consume.Config{Store: s.store, Start: consume.StartOldest})
		s.expect(s.readUntil(c, s.count), 0, s.count)
		s.isOfTheFirstGeneration(c)
		s.must(c.Close())
	}
}

// readUntil reads on until so many records have come: of members the last ones are given once the writer has said that
// enough have them.
func (s *site) readUntil(c *consume.Consumer, count int) (payloads []string) {
	s.Helper()
	for deadline := time.Now().Add(waitMax); len(payloads) < count; time.Sleep(time.Millisecond) {
		payloads = append(payloads, s.read(c, all)...)
		if time.Now().After(deadline) {
			s.Fatalf("%d records have come, expected %d", len(payloads), count)
		}
	}
	return payloads
}

// Of several members, too, what was drained before it was read and is in no store that was given is told when nothing
// follows.
func TestConsumer_OfMembersWithoutAStore(t *testing.T) {
	s := newSite(t)
	s.ring, _ = ringsOf(s)
	s.openWriter()
	var notices []consume.Notice
	c := s.open(consume.Config{BufferBytes: 4096, OnNotice: func(n consume.Notice) { notices = append(notices, n) }})
	s.append(10)
	s.expect(s.readUntil(c, 10), 0, 10)
	missedFrom := s.writer.Cursors().AppendedLSN
	for range 5 {
		s.append(200)
		s.drained()
	}
	head := s.writer.Cursors().AppendedLSN
	s.expect(s.read(c, all), 0, 0)
	if len(notices) != 1 || notices[0].Kind != consume.NoticeLost || notices[0].FromLSN != missedFrom ||
		notices[0].ToLSN != head {
		t.Fatalf("%+v, expected lsn %d to %d", notices, missedFrom, head)
	}
	s.append(7)
	s.expect(s.readUntil(c, 7), 1010, 1017)
}
