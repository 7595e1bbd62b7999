package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/record"
)

// newTestLedger has records "a" to "e", of which the first three were acknowledged at lsn 0, 64 and 128 of epoch 1.
func newTestLedger(t *testing.T) *ledger {
	t.Helper()
	r := &records{number: map[string]int{}}
	for i, payload := range []string{"a", "b", "c", "d", "e"} {
		r.payloads = append(r.payloads, []byte(payload))
		r.number[payload] = i
	}
	l := newLedger(r)
	for i := range 3 {
		if _, err := l.hear(fmt.Sprintf("1 %d %d persistent", i, i*64)); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// given makes a reader of records; each is "lsn payload" of epoch 1.
func given(texts ...string) func() (record.Record, error) {
	return func() (r record.Record, err error) {
		if len(texts) == 0 {
			return r, io.EOF
		}
		var payload string
		_, err = fmt.Sscanf(texts[0], "%d %s", &r.LSN, &payload)
		r.Epoch, r.Payload, texts = 1, []byte(payload), texts[1:]
		return r, err
	}
}

func TestProve_TellsWhatIsWrong(t *testing.T) {
	for _, c := range []struct {
		name, want string
		found      []string
	}{
		{"all there", "", []string{"0 a", "64 b", "128 c"}},
		{"one more, unacknowledged", "", []string{"0 a", "64 b", "128 c", "192 d"}},
		{"lost", "LOST", []string{"0 a", "128 c"}},
		{"lost at the end", "LOST", []string{"0 a", "64 b"}},
		{"twice", "twice", []string{"0 a", "64 b", "64 b", "128 c"}},
		{"another record in its place", "record 3", []string{"0 a", "64 d", "128 c"}},
		{"never fed", "never fed", []string{"0 a", "64 b", "128 c", "192 x"}},
	} {
		got, err := newTestLedger(t).prove(given(c.found...))
		if c.want == "" && (err != nil || got.found != 3 || got.others != len(c.found)-3) {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
		if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want an error with %q", c.name, err, c.want)
		}
	}
}

func TestProve_TakesAWriterAtItsWord(t *testing.T) {
	l := newTestLedger(t)
	for _, c := range []struct {
		line   string
		isDone bool
	}{
		{"unknown 1 192 2000", false},
		{"resolved 1 3 192 persistent", true},
		{"unknown 1 256 3000000", false},
		{"absent 1 256", true},
	} {
		if isDone, err := l.hear(c.line); err != nil || isDone != c.isDone {
			t.Errorf("%q: %v, %v", c.line, isDone, err)
		}
	}
	if _, err := l.hear("fenced 1 70"); !errors.Is(err, errFenced) {
		t.Errorf("fenced: %v", err)
	}
	if l.slowest != 3*time.Second || l.unknown != 2 || l.next != 4 {
		t.Errorf("slowest %s, %d unknown, next %d", l.slowest, l.unknown, l.next)
	}
	if _, err := l.prove(given("0 a", "64 b", "128 c", "192 d")); err != nil {
		t.Error(err)
	}
	if _, err := l.prove(given("0 a", "64 b", "128 c", "192 d", "256 e")); err == nil ||
		!strings.Contains(err.Error(), "said not to be") {
		t.Errorf("a record that was said to be absent is there: %v", err)
	}
}

// A writer that was fenced says so in time, and knows what became of all that it appended.
func TestJudgeFenced(t *testing.T) {
	for _, c := range []struct {
		name, want string // want "": it is as it should be
		lines      []string
	}{
		{"fenced at once", "", []string{"fenced 1 20000"}},
		{"unknown first", "", []string{
			"unknown 1 64 2000100", "absent 1 64", "unknown 1 128 2000100",
			"resolved 1 2 128 persistent", "fenced 1 30",
		}},
		{"never", "nothing but", nil},
		{"fenced too late", "of a deadline", []string{"fenced 1 2000001"}},
		{
			"fenced too late behind an unknown one", "of a deadline",
			[]string{"unknown 1 64 2000100", "absent 1 64", "fenced 1 2000001"},
		},
		{"unknown too late", "more than its deadline", []string{"unknown 1 64 3000001", "absent 1 64", "fenced 1 30"}},
		{"unknown for ever", "each unknown record", []string{"unknown 1 64 2000100", "fenced 1 30"}},
		{"not fenced", "its last word", []string{"unknown 1 64 2000100", "absent 1 64"}},
		{"no time", "how long", []string{"fenced 1"}},
	} {
		told, err := judgeFenced(c.lines)
		if c.want == "" && (err != nil || told == "") {
			t.Errorf("%s: %v", c.name, err)
		}
		if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %q, %v, want an error with %q", c.name, told, err, c.want)
		}
	}
}

func TestHear_RefusesWhatIsNoOutcome(t *testing.T) {
	for _, line := range []string{
		"", "1 0", "1 0 192 visible", "1 0 x persistent", "1 9 64 persistent", "absent 1",
		"unknown 1 2 x",
	} {
		if _, err := newTestLedger(t).hear(line); err == nil {
			t.Errorf("%q was taken", line)
		}
	}
}

func TestScenarios_NamesAreTold(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range scenarios {
		if s.name == "" || s.what == "" || s.guests == 0 || s.guests > guestsMost || s.run == nil || seen[s.name] {
			t.Errorf("scenario %+v: expected a name of its own, what it proves, how many guests it has and a function",
				s)
		}
		seen[s.name] = true
	}
	if _, err := choose([]string{"no-such"}); err == nil || !strings.Contains(err.Error(), scenarios[0].name) {
		t.Errorf("an unknown scenario: %v, want an error that names those there are", err)
	}
}

// An append that is slower while a drain stands still shows, whether most are or a few.
func TestPace_TellsWhatIsSlower(t *testing.T) {
	appends := func(count int, most time.Duration, few int, slow time.Duration) (took []time.Duration) {
		for i := range count {
			took = append(took, most)
			if i < few {
				took[i] = slow
			}
		}
		return took
	}
	before := paceOf(appends(200, time.Millisecond, 2, 5*time.Millisecond))
	for _, c := range []struct {
		name   string
		during []time.Duration
		isFast bool
	}{
		{"the same", appends(400, time.Millisecond, 4, 5*time.Millisecond), true},
		{"a little slower", appends(400, 1400*time.Microsecond, 4, 9*time.Millisecond), true},
		{"most are slower", appends(400, 1600*time.Microsecond, 4, 5*time.Millisecond), false},
		{"some are much slower", appends(400, time.Millisecond, 20, 16*time.Millisecond), false},
		{"one waits for most of the outage", appends(400, time.Millisecond, 1, 900*time.Millisecond), false},
	} {
		if paceOf(c.during).isAsFastAs(before) != c.isFast {
			t.Errorf("%s: %+v, before %+v", c.name, paceOf(c.during), before)
		}
	}
}
