package drain

import (
	"sync"
	"time"
)

const (
	smallBatchMax = 64 << 10    // a batch of up to so many bytes is copied out of the buffer that it was read into
	buffersRest   = time.Second // after so long without a batch a drain keeps no buffer
)

// readBuffers are what the drains of this process read into, by class. Most drains have nothing to read at most times,
// and most batches are small: a process needs a few of them, and not three a drain.
var readBuffers [3]sync.Pool

const readFirst = 8 << 10 // size of the first class; one of the last has the size of a batch

type readBuffer struct {
	bytes []byte
	class int
}

// takeBuffer gives one of a class; put it back with putBuffer.
func takeBuffer(class, most int) *readBuffer {
	size := most
	if class < len(readBuffers)-1 {
		size = min(readFirst<<(3*class), most)
	}
	if b, isOne := readBuffers[class].Get().(*readBuffer); isOne && len(b.bytes) == size {
		return b
	}
	return &readBuffer{make([]byte, size), class}
}

func putBuffer(b *readBuffer) { readBuffers[b.class].Put(b) }

// buffers hold the last batches of a drain, in turn: one is read into, one goes into the store, one may still be hashed
// there.
type buffers struct {
	turns  [3]turn
	next   int
	class  int // of the next read: the one that the last batch filled by half, or the next larger one
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
	b.next, b.keptAt, b.class = (b.next+1)%len(b.turns), now, 0
	for b.class < len(readBuffers)-1 && len(batch) >= readFirst<<(3*b.class)/2 {
		b.class++
	}
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
		b.turns, b.class = [3]turn{}, 0
	}
}
