package store

import (
	"sync"
	"sync/atomic"
)

// opensAtOnce is how many small files of a stream are read at the same time: each is an answer of a disk, or of an
// archive, to wait for.
const opensAtOnce = 16

// inParallel calls do for each number below count, several at the same time, until one fails. It returns the error of
// the lowest number of those that failed.
func inParallel(count int, do func(i int) error) error {
	var next atomic.Int64
	var isOver atomic.Bool
	errs := make([]error, count)
	var running sync.WaitGroup
	for range min(opensAtOnce, count) {
		running.Go(func() {
			for i := int(next.Add(1)) - 1; i < count && !isOver.Load(); i = int(next.Add(1)) - 1 {
				if errs[i] = do(i); errs[i] != nil {
					isOver.Store(true)
				}
			}
		})
	}
	running.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
