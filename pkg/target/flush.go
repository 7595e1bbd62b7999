package target

import (
	"fmt"
	"log/slog"
	"syscall"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/farlog"
)

// flushes remembers of which rings the last flush failed. It is of the goroutine that looks at the rings.
type flushes struct {
	failing map[string]bool // by stream
}

// describe has a ring whose last flush for another host failed say so: its records are in memory and not on the medium,
// and its writers get no acknowledgement. The log has it when it begins and when it ends.
func (f *flushes) describe(state *api.RingState, counters []farlog.Counter, logger *slog.Logger) {
	failed, errno := numberOf(counters, "flush_failed_count"), numberOf(counters, "flush_errno")
	if errno == 0 {
		if f.failing[state.Stream] {
			logger.Info("the medium of a ring takes what is written again", "stream", state.Stream, "ring", state.Uri)
		}
		delete(f.failing, state.Stream)
		return
	}
	text := fmt.Sprintf("ring %q: its medium does not take what is written: %s at the last of %d flushes that failed: "+
		"nothing more is acknowledged; check the disk and the kernel's log (dmesg), and move the stream if the disk "+
		"is lost", state.Uri, syscall.Errno(errno), failed)
	if state.Error == "" {
		state.Error = text
	}
	if !f.failing[state.Stream] {
		logger.Error(text, "stream", state.Stream)
	}
	if f.failing == nil {
		f.failing = map[string]bool{}
	}
	f.failing[state.Stream] = true
}

func numberOf(counters []farlog.Counter, name string) uint64 {
	for _, one := range counters {
		if one.Name == name {
			return one.Value
		}
	}
	return 0
}

// flushCounters are a ring's counters at the listener where its last flush failed, if there is one.
func (d *remoteServer) flushCounters(stream string) []farlog.Counter {
	var list []farlog.Counter
	for _, listener := range d.listeners {
		counters, err := listener.Counters(stream)
		if err != nil {
			continue // it is not served there
		}
		if list = counters.All(); numberOf(list, "flush_errno") != 0 {
			break
		}
	}
	return list
}
