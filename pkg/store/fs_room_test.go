package store

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/farlog/farlog/pkg/internal/loop"
)

// ext4 would have given it all that is free before it said that this is too little.
func TestAllocate_MoreThanTheDiskHasTakesNothing(t *testing.T) {
	file, err := os.Create(filepath.Join(loop.Disk(t, 64<<20), "segment"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := (&osFile{file}).Allocate(128 << 20); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("got %v, want ENOSPC", err)
	}
	var info unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &info); err != nil || info.Blocks > 0 {
		t.Errorf("it has %d blocks (%v)", info.Blocks, err)
	}
	for _, size := range []int64{32 << 20, 40 << 20} { // the second lacks less than is free, and is more
		if err := (&osFile{file}).Allocate(size); err != nil {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}
