//go:build cgo

package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"
)

// What may come yet is waited for and said once; what will not is no reason to wait, and neither is anything when the
// time is over.
func TestTailer_Waiting(t *testing.T) {
	failure := errors.New("2 of the stream's 3 members could be opened that know its log")
	for name, test := range map[string]struct {
		wait     time.Duration
		mayCome  bool
		succeeds int // at this attempt
		attempts int
		isTold   bool
	}{
		"it comes":          {time.Minute, true, 3, 3, true},
		"it is there":       {time.Minute, true, 1, 1, false},
		"it does not come":  {time.Minute, false, 3, 1, false},
		"nobody may wait":   {0, true, 3, 1, false},
		"the time was over": {-time.Minute, true, 3, 1, false},
	} {
		var said bytes.Buffer
		one, attempts := &tailer{env: &environment{stderr: &said}, until: time.Now().Add(test.wait)}, 0
		err := one.waiting(t.Context(), func() (bool, error) {
			if attempts++; attempts == test.succeeds {
				return true, nil
			}
			return test.mayCome, failure
		})
		if attempts != test.attempts || (err == nil) != (attempts == test.succeeds) ||
			strings.Count(said.String(), failure.Error()) != map[bool]int{true: 1}[test.isTold] {
			t.Errorf("%s: %v after %d attempts, said %q", name, err, attempts, said.String())
		}
	}
}
