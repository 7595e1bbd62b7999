//go:build cgo

package main

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/farlog"
)

// lockedBuffer is written by the goroutine that watches.
type lockedBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *lockedBuffer) Write(raw []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(raw)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}

// The age of an append under way counts before it is acknowledged, and what it waits for is said meanwhile.
func TestStall_SaysWhatAnAppendWaitsFor(t *testing.T) {
	var said lockedBuffer
	s := newStall()
	s.base = time.Now().Add(-time.Hour)
	if s.age() != 0 {
		t.Errorf("nothing is under way: age %s", s.age())
	}
	s.since.Store(int64(time.Minute)) // so long after base an append began
	if age := s.age(); age < 59*time.Minute {
		t.Errorf("an append is under way for 59 minutes: age %s", age)
	}
	stop := s.watch(context.Background(), newAppendTalk(&said), func() string { return "1 of 3 members answer" })
	for !strings.Contains(said.String(), "no acknowledgement for 59m") {
		time.Sleep(time.Millisecond)
	}
	stop()
	if text := said.String(); !strings.Contains(text, ": 1 of 3 members answer\n") {
		t.Errorf("it says %q", text)
	}
	s.progress()
	s.end()
	if s.longest < 59*time.Minute || s.age() != 0 {
		t.Errorf("after the acknowledgement: longest %s, age %s", s.longest, s.age())
	}
}

func TestMembersText(t *testing.T) {
	members := []farlog.WriterMember{{State: farlog.MemberUp}, {State: farlog.MemberAway}, {State: farlog.MemberOut}}
	granted := &watchedWriter{needed: 2, uris: []string{"mem:a", "ofi:tcp://b:1/s", "ofi:tcp://c:1/s"}}
	if text := granted.membersText(members); text != "1 of 3 members answer, 2 are needed: "+
		"member 2 (ofi:tcp://b:1/s) is away, member 3 (ofi:tcp://c:1/s) is out" {
		t.Error(text)
	}
	if text := new(watchedWriter).membersText(members[:2]); text != "1 of 2 members answer: member 2 is away" {
		t.Error(text)
	}
	for uri, want := range map[string]string{
		"mem:a": "the medium of mem:a does not answer", "farlog://s": "the target of farlog://s does not answer",
		"ofi:tcp://b:1/s": "the target of ofi:tcp://b:1/s does not answer",
	} {
		if text := (&watchedWriter{uri: uri}).ringText(); text != want {
			t.Error(text)
		}
	}
}
