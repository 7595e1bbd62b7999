package drain

import (
	"testing"
	"time"
)

// TestBuffers_GrowWithTheBatches: a drain reads into little memory until its batches are large, and again when it has
// had none for a while.
func TestBuffers_GrowWithTheBatches(t *testing.T) {
	var b buffers
	now := time.Now()
	for i, c := range []struct{ batch, size int }{
		{0, 8 << 10},
		{300, 8 << 10},
		{5 << 10, 64 << 10},
		{40 << 10, 1 << 20},
		{800 << 10, 1 << 20},
		{300, 8 << 10},
		{40 << 10, 1 << 20},
	} {
		buffer := takeBuffer(b.class, 1<<20)
		kept := b.keep(buffer, make([]byte, c.batch), now)
		if next := takeBuffer(b.class, 1<<20); len(kept) != c.batch || len(next.bytes) != c.size {
			t.Errorf("step %d: %d bytes are kept of %d, the next read is of %d, expected %d", i, len(kept), c.batch,
				len(next.bytes), c.size)
		}
	}
	b.rest(now.Add(time.Minute))
	for _, one := range b.turns {
		if one.small != nil || one.large != nil || b.class != 0 {
			t.Errorf("a drain without batches keeps %+v, class %d", one, b.class)
		}
	}
}
