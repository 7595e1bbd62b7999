//go:build cgo

package main

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/farlog/farlog/pkg/farlog"
)

// stallPause is how long an append brings no acknowledgement before append says so, and between two such lines.
const stallPause = time.Second

// stall measures how long the append under way has brought no acknowledgement.
type stall struct {
	base    time.Time
	since   atomic.Int64  // nanoseconds after base; 0: no append is under way
	isFull  atomic.Bool   // it waits for space, which append says by itself
	longest time.Duration // of the feed's own goroutine
}

func newStall() *stall { return &stall{base: time.Now()} }

func (s *stall) begin() { s.since.Store(max(1, int64(time.Since(s.base)))) }

// progress: a record was acknowledged or refused.
func (s *stall) progress() {
	s.longest = max(s.longest, s.age())
	s.isFull.Store(false)
	s.begin()
}

func (s *stall) end() {
	s.longest = max(s.longest, s.age())
	s.isFull.Store(false)
	s.since.Store(0)
}

// age is 0 when no append is under way.
func (s *stall) age() time.Duration {
	since := s.since.Load()
	if since == 0 {
		return 0
	}
	return max(0, time.Since(s.base)-time.Duration(since))
}

// watch says once a second what the append under way waits for: append itself waits in the library then.
func (s *stall) watch(ctx context.Context, talk *appendTalk, why func() string) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for pause(ctx, stallPause) {
			if age := s.age(); age >= stallPause && !s.isFull.Load() {
				talk.printf("no acknowledgement for %s: %s", age.Round(100*time.Millisecond), why())
			}
		}
	}()
	return func() { cancel(); <-done }
}

// watchedWriter is the feed's writer for the goroutine that watches it. Of members that the host agent has found it is
// not known how many are needed, nor where they are.
type watchedWriter struct {
	writer *farlog.Writer
	uri    string   // by which it was opened
	needed int      // members for an acknowledgement; 0: not known
	uris   []string // of the members
}

// whyStalled says who has not answered the writer.
func (f *feed) whyStalled() string {
	watched := f.watched.Load()
	members, err := watched.writer.Members()
	if err != nil || len(members) == 0 {
		return watched.ringText()
	}
	return watched.membersText(members)
}

func (w *watchedWriter) ringText() string {
	if isOutOfSight(w.uri) {
		return fmt.Sprintf("the target of %s does not answer", w.uri)
	}
	return fmt.Sprintf("the medium of %s does not answer", w.uri)
}

// membersText counts the members that answer.
func (w *watchedWriter) membersText(members []farlog.WriterMember) string {
	up := 0
	var states []string
	for i, member := range members {
		if member.State == farlog.MemberUp {
			up++
		} else {
			states = append(states, fmt.Sprintf("member %d%s is %s", i+1, w.placeText(i), member.State))
		}
	}
	text := fmt.Sprintf("%d of %d members answer", up, len(members))
	if w.needed > 0 {
		text += fmt.Sprintf(", %d are needed", w.needed)
	}
	if len(states) > 0 {
		text += ": " + strings.Join(states, ", ")
	}
	return text
}

// placeText is where a member is; empty: not known here.
func (w *watchedWriter) placeText(i int) string {
	if i >= len(w.uris) {
		return ""
	}
	return " (" + w.uris[i] + ")"
}

// whyStalled says which leg of the route is behind.
func (f *routeFeed) whyStalled() string {
	var texts []string
	for _, leg := range f.watchedRoute.Load().Stats() {
		if leg.Required && (leg.State != farlog.LegDirect || leg.Text != "") {
			texts = append(texts, strings.TrimSuffix(fmt.Sprintf("leg %s (%s): %s", leg.Name, leg.State, leg.Text),
				": "))
		}
	}
	if len(texts) == 0 {
		return "its required legs have not confirmed it"
	}
	return strings.Join(texts, "; ")
}
