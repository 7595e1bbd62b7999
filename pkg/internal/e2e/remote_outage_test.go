package e2e

import (
	"encoding/hex"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/internal/testenv"
)

const (
	outageTime      = time.Second
	outageBefore    = outageTime / 2
	outageRounds    = 12      // the first that is as fast is enough: other work on the machine spoils some
	outageCountMax  = 100_000 // appends: 64 MiB have space for twice as many
	outageP50Ratio  = 1.5
	outageP99Ratio  = 3.0
	outageRateRatio = 0.5
)

// pace is what single appends took, one behind the other.
type pace struct {
	count    int
	perTime  float64 // appends a second
	p50, p99 time.Duration
}

// A drain that stands still for a second does not slow appends while the ring has space. That none waits for it is told
// by each: the drain goes on only when the last append of its outage has come back, so that one which waits comes back
// without an acknowledgement. That none is slower is told by their times against those just before, in the same writer;
// other work on the machine makes a round worse, the drain would make all of them so.
func TestFar_DrainOutageDoesNotSlowAppends(t *testing.T) {
	cluster := testenv.NewRemoteCluster(t, testenv.MemoryDir(t), farHost, nil)
	uri := cluster.CreateStream(streamName, "--size", "64MiB", "--level", "visible")
	o := &outage{T: t, ledger: newLedger(t, "O")}
	o.open((&badGrants{T: t, cluster: cluster, dir: t.TempDir()}).grant(streamName))
	o.append(outageBefore) // the first ones fetch what is cold
	isAsFast := false
	for round := 0; round < outageRounds && !isAsFast; round++ {
		waitDrained(t, uri)
		before := o.append(outageBefore)
		cluster.Drain.Pause()
		during := o.append(outageTime)
		cluster.Drain.Signal(syscall.SIGCONT)
		t.Logf("with the drain %+v, without %+v", before, during)
		isAsFast = during.p50.Seconds() <= outageP50Ratio*before.p50.Seconds() &&
			during.p99.Seconds() <= outageP99Ratio*before.p99.Seconds() &&
			during.perTime >= outageRateRatio*before.perTime
	}
	if !isAsFast {
		t.Errorf("in each of %d outages of the drain appends were slower than before: wanted are p50 at most %.1f "+
			"times, p99 %.1f times as long, and %.1f times as many a second",
			outageRounds, outageP50Ratio, outageP99Ratio, outageRateRatio)
	}
	if err := o.writer.Close(); err != nil {
		t.Error(err)
	}
	waitDrained(t, uri)
	cluster.Drain.Stop()
	checkStore(t, cluster.StoreDir, o.ledger)
}

type outage struct {
	*testing.T
	ledger *ledger
	writer *farlog.Writer
}

func (o *outage) open(grant grantFile) {
	o.Helper()
	token, err := hex.DecodeString(grant.Token)
	if err != nil || len(token) != farlog.TokenLen {
		o.Fatalf("token %q: %v", grant.Token, err)
	}
	o.writer, err = farlog.OpenWriter(grant.Ring, farlog.WriterOptions{
		Level: farlog.LevelVisible, Epoch: grant.Epoch,
		Spin:  true,
		Token: (*[farlog.TokenLen]byte)(token), Policy: farlog.PolicyReject, Deadline: 10 * time.Second,
	})
	if err != nil {
		o.Fatal(err)
	}
}

// append goes on for so long at least, one record after another. Each must be acknowledged.
func (o *outage) append(lasts time.Duration) pace {
	o.Helper()
	var times []time.Duration
	began := time.Now()
	for time.Since(began) < lasts && len(times) < outageCountMax {
		raw, hash := o.ledger.next()
		start := time.Now()
		position, err := o.writer.Append(farlog.Entry{Data: raw}, 0)
		times = append(times, time.Since(start))
		if err != nil {
			o.Fatalf("append %d: %v", len(times), err)
		}
		o.ledger.acknowledged[place{position.Epoch, position.LSN}] = hash
	}
	var total time.Duration
	for _, took := range times {
		total += took
	}
	time.Sleep(lasts - time.Since(began)) // should there have been so many
	slices.Sort(times)
	return pace{len(times), float64(len(times)) / total.Seconds(), times[len(times)/2], times[len(times)*99/100]}
}
