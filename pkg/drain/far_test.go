package drain

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/farlog"
)

// Of two living drains with one token the older one ends, and says why, instead of opening the ring again and again
// against the other.
func TestRun_AnotherDrainHasTheToken(t *testing.T) {
	b := newFarBench(t, 1, nil)
	config := b.configs[0]
	started := make(chan struct{})
	var once sync.Once
	config.OnProgress = func(Progress) { once.Do(func() { close(started) }) }
	ctx, cancel := context.WithTimeout(context.Background(), waitMax)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, config) }()
	select {
	case <-started:
	case err := <-ended:
		t.Fatal(err)
	}
	twin, err := farlog.OpenReader(config.RingURI, farlog.ReaderOptions{Drain: true, Token: config.Token})
	if err != nil {
		t.Fatal(err)
	}
	defer twin.Close()
	if err := <-ended; !errors.Is(err, ErrSuperseded) {
		t.Fatalf("the older drain ended with %v, expected %v", err, ErrSuperseded)
	}
	b.append(0)
	var batch farlog.Batch
	for err = farlog.ErrNotYet; errors.Is(err, farlog.ErrNotYet) && ctx.Err() == nil; time.Sleep(time.Millisecond) {
		batch, err = twin.Read(make([]byte, 64<<10))
	}
	if err == nil {
		err = twin.Release(batch.NextLSN, batch.NextSeq, batch.LastEpoch)
	}
	if err != nil {
		t.Errorf("the newer drain: %v", err)
	}
}
