package main

import (
	"fmt"
	"io"
	"strings"
	"testing"

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
		if err := l.acknowledge(fmt.Sprintf("1 %d %d persistent", i, i*64)); err != nil {
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

func TestAcknowledge_RefusesWhatIsNoAcknowledgement(t *testing.T) {
	for _, line := range []string{"", "1 0", "1 0 192 visible", "1 0 x persistent", "1 9 64 persistent"} {
		if err := newTestLedger(t).acknowledge(line); err == nil {
			t.Errorf("%q was taken", line)
		}
	}
}

func TestScenarios_NamesAreTold(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range scenarios {
		if s.name == "" || s.what == "" || s.timeout == 0 || s.run == nil || seen[s.name] {
			t.Errorf("scenario %+v: expected a name of its own, what it proves, a timeout and a function", s)
		}
		seen[s.name] = true
	}
	if _, err := choose([]string{"no-such"}); err == nil || !strings.Contains(err.Error(), scenarios[0].name) {
		t.Errorf("an unknown scenario: %v, want an error that names those there are", err)
	}
}
