package drain

import (
	"errors"

	"github.com/farlog/farlog/pkg/farlog"
)

// ahead is a batch that is read and checked while the store takes the one before. Until done is closed the ring's
// reader and the buffers belong to its goroutine.
type ahead struct {
	done  chan struct{}
	batch farlog.Batch
	err   error
}

// readAhead begins to read the batch after this one, if this one was large: the ring then holds more. Of a ring that is
// kept nearly empty it would take what there is before the sync, and what comes during the sync would wait for a second
// one.
func (d *drainer) readAhead(batch farlog.Batch) {
	if len(batch.Bytes) < d.config.BatchBytes/2 {
		return
	}
	a := &ahead{done: make(chan struct{})}
	d.ahead = a
	go func() {
		a.batch, a.err = d.read()
		close(a.done)
	}()
}

func (d *drainer) awaitAhead() {
	if d.ahead != nil {
		<-d.ahead.done
	}
}

// next gives the batch that was read ahead, or reads one now.
func (d *drainer) next() (farlog.Batch, error) {
	d.awaitAhead()
	a := d.ahead
	d.ahead = nil
	if a == nil || errors.Is(a.err, farlog.ErrNotYet) {
		return d.read()
	}
	return a.batch, a.err
}

// isUndone reports whether the log went back into a batch while the store took it: a new epoch begins below its end.
// Releasing that end would give away the new epoch's records, which are in no store yet.
func (d *drainer) isUndone(batch farlog.Batch) bool {
	return d.ahead != nil && d.ahead.err == nil && d.ahead.batch.FirstLSN < batch.NextLSN
}
