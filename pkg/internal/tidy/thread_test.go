package tidy

import (
	"regexp"
	"testing"
)

// threadStarter is the one file of the core that starts threads: with the signals that somebody sends blocked, which
// are for the program's own threads.
const threadStarter = "rdma/src/base/thread.c"

var threadStart = regexp.MustCompile(`\b(pthread|thrd)_create\(`)

func TestThread_OneFunctionStartsThem(t *testing.T) {
	isFound := false
	for _, f := range tracked(t, ".c", ".h") {
		if _, isCore := roomOfCore(f.path); !isCore {
			continue
		}
		for i, line := range f.lines() {
			if !threadStart.MatchString(line) {
				continue
			}
			if f.path == threadStarter {
				isFound = true
				continue
			}
			t.Errorf("%s:%d: start the thread by thread_start (base/thread.h): "+
				"a signal of the program must not end up in a thread of the library", f.path, i+1)
		}
	}
	if !isFound {
		t.Errorf("%s: no thread is started there: name the file that does", threadStarter)
	}
}
