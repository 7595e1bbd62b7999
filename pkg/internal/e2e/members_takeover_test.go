package e2e

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/internal/testenv"
)

const (
	takeoverRounds  = 3       // in make test; FARLOG_TAKEOVER_ROUNDS says otherwise
	takeoverBytes   = 1 << 20 // that lie undrained meanwhile; FARLOG_TAKEOVER_BYTES
	takeoverBurst   = 500     // records fed at once until so much lies there
	takeoverRecords = 20      // that each writer begins with
)

func numberFrom(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	number, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s %q: expected a number", variable, text)
	}
	return number
}

// succession is a stream of which each writer is followed by one that stands by.
type succession struct {
	*memberSite
	ledger *ledger
	active *writer
	times  []time.Duration
}

// open starts a writer that has records to append at once, on a host, and goes on with heartbeats.
func (s *succession) open(host string, args ...string) *writer {
	s.Helper()
	args = append([]string{
		"--stream", streamName, "--control", s.cluster.ControlAddress, "--window", "64",
		"--heartbeat", "300ms", "--transport", "ofi",
	}, args...)
	w := openWriterUnder(s.T, s.network.Under(host), s.ledger, args...)
	if err := w.feedBurst(takeoverRecords); err != nil {
		s.Fatal(err)
	}
	return w
}

func (s *succession) standBy(host string, args ...string) *writer {
	s.Helper()
	next := s.open(host, append(args, "--standby")...)
	testenv.Until(s.T, "the next writer stands by", func() (bool,
		error,
	) {
		return strings.Contains(next.process.Log(), "standing by for stream"), nil
	})
	return next
}

// await times from then until the next writer has an acknowledgement: of those that it began with all may have come by
// now.
func (s *succession) await(began time.Time, next *writer) {
	s.Helper()
	testenv.Until(s.T, "the next writer's first record is acknowledged",
		func() (bool, error) { return next.acks.Load() > 0, nil })
	s.times = append(s.times, time.Since(began))
	s.active = next
}

// Writers are killed one after another, each while the next one stands by, with much that is undrained; then one hangs,
// and an operator takes the stream from it; then one's host is cut off, and who stands by on another takes it by
// itself. What was acknowledged to any of them is in the store once, and those that live are told that they are fenced.
func TestMembers_StandbyTakesOver(t *testing.T) {
	t.Parallel()
	rounds, undrained := numberFrom(t, "FARLOG_TAKEOVER_ROUNDS", takeoverRounds),
		numberFrom(t, "FARLOG_TAKEOVER_BYTES", takeoverBytes)
	size := strconv.Itoa((undrained+undrained/2)/4096*4096 + 8<<20)
	s := &succession{
		memberSite: newMemberSite(t, "--size", size, "--record-len-max", "64KiB"),
		ledger:     newLedger(t, "T"),
	}
	s.cluster.Drain.Kill()
	s.active = s.open(s.network.Trading())
	ring := s.rings()[0]
	testenv.Until(t, "enough lies undrained", func() (bool, error) {
		status, err := farlog.Inspect(ring)
		if err == nil && status.LagBytes < uint64(undrained) {
			err = s.active.feedBurst(takeoverBurst)
		}
		return status.LagBytes >= uint64(undrained), err
	})
	for range rounds {
		next := s.standBy(s.network.Trading())
		began := time.Now()
		s.active.kill()
		s.await(began, next)
	}
	slices.Sort(s.times)
	t.Logf("SIGKILL of the writer to the first acknowledgement of the next, %d times with %d bytes undrained: p50 "+
		"%s, p99 %s", len(s.times), undrained,
		s.times[len(s.times)/2], s.times[(len(s.times)*99+99)/100-1])
	s.takeFromHung()
	s.takeFromCutOff()
	s.cluster.StartDrain()
	s.active.end(t)
	for _, uri := range s.rings() {
		waitDrained(t, uri)
	}
	s.cluster.Drain.Stop()
	checkStore(t, s.cluster.StoreDir, s.ledger)
}

// takeFromHung stops the writer: it holds all rings, and nobody who stands by knows that it hangs.
func (s *succession) takeFromHung() {
	s.Helper()
	hung, next := s.active, s.standBy(s.network.Trading())
	hung.process.Pause()
	hung.stopped()
	began := time.Now()
	said := testenv.MustRunUnder(s.T, s.cluster.Under, "farlog", "stream", "takeover", streamName, "--reason",
		"the writer hangs", "--control", s.cluster.ControlAddress)
	if !strings.Contains(said, "are fenced since 20") || !strings.Contains(said, "storage0") {
		s.Errorf("stream takeover said %q", said)
	}
	s.await(began, next)
	s.Logf("operator's takeover to the first acknowledgement of the next: %s; %s", s.times[len(s.times)-1],
		strings.TrimSpace(said))
	hung.process.Signal(syscall.SIGCONT)
	s.endFenced(hung)
}

// takeFromCutOff cuts the cable of the writer's host. One that stands by on another host finds that the stream brings
// nothing any more, without an operator.
func (s *succession) takeFromCutOff() {
	s.Helper()
	cutOff, next := s.active, s.standBy(s.network.Storage(), "--hung-after", "3s")
	s.network.Lose(100)
	cutOff.stopped()
	s.await(time.Now(), next)
	if log := next.process.Log(); !strings.Contains(log, "neither record nor heartbeat for") {
		s.Errorf("the writer that stood by said %q", log)
	}
	s.network.Lose(0)
	s.endFenced(cutOff)
}

// endFenced has a writer that others took over from append once more, and end.
func (s *succession) endFenced(former *writer) {
	s.Helper()
	if err := former.feedBurst(takeoverRecords); err != nil && !strings.Contains(err.Error(), "broken pipe") {
		s.Error(err)
	}
	if err := former.process.Wait(); err == nil || former.process.IsKilled() {
		s.Errorf("the writer that was taken over from ended with %v, expected exit code 1", err)
	}
	former.stdin.Close()
	former.done.Wait()
	if log := former.process.Log(); !strings.Contains(log, "is fenced") {
		s.Errorf("the writer that was taken over from said %q", log)
	}
}
