package drain

import (
	"sync"
	"time"
)

const (
	smallBatchMax = 64 << 10    // a batch of up to so many bytes is copied out of the buffer that it was read into
	buffersRest   = time.Second // after so long without a batch a drain keeps no buffer
)

// readBuffers are what the drains of this process read into. Most drains have nothing to read at most times, and most
// batches are small: a process needs a few of them, and not three a drain.
var readBuffers sync.Pool

type readBuffer struct{ bytes []byte }

// takeBuffer gives one of that size; put it back with putBuffer.
func takeBuffer(size int) *readBuffer {
	if b, isOne := readBuffers.Get().(*readBuffer); isOne && len(b.bytes) == size {
		return b
	}
	return &readBuffer{make([]byte, size)}
}

func putBuffer(b *readBuffer) { readBuffers.Put(b) }

// buffers hold the last batches of a drain, in turn: one is read into, one goes into the store, one may still be hashed
// there.
type buffers struct {
	turns  [3]turn
	next   int
	keptAt time.Time
}

// turn has its batch in small, or in large, which is that of a read.
type turn struct {
	small []byte
	large *readBuffer
}

// keep takes a batch over, and the buffer that it lies in. It is good until the third keep after this one.
func (b *buffers) keep(from *readBuffer, batch []byte, now time.Time) []byte {
	t := &b.turns[b.next]
	b.next, b.keptAt = (b.next+1)%len(b.turns), now
	if t.large != nil {
		putBuffer(t.large)
		t.large = nil
	}
	if len(batch) > smallBatchMax {
		t.large = from
		return batch
	}
	t.small = append(t.small[:0], batch...)
	putBuffer(from)
	return t.small
}

// rest lets go of all buffers of a drain that has had no batch for a while. One that is still being hashed is not put
// back: the hash may go on.
func (b *buffers) rest(now time.Time) {
	if now.Sub(b.keptAt) > buffersRest {
		b.turns = [3]turn{}
	}
}
