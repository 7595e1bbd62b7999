package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/internal/testenv"
)

const (
	stallLeast = 3.0                    // seconds that a status tells of, before the target goes on
	stallPause = 200 * time.Millisecond // between two looks: who looks takes time from who is looked at
)

// A target that stands while a program on another host appends: the status says for how long no acknowledgement has
// come, the append says who does not answer, and when the target goes on every record is acknowledged. The longest
// latency shows the stall while it lasts and afterwards: in status, top, metrics and the summary of append.
func TestStall_TargetStandsUnderAnAppend(t *testing.T) {
	testenv.SkipWhenShort(t)
	t.Parallel()
	b := newHostBench(t)
	s := &stallBench{hostBench: b}
	s.start()
	s.feed(10)
	s.wait(10)
	b.cluster.Target.Pause()
	s.feed(30)
	during := s.untilStalled(stallLeast)
	later := s.untilStalled(during.Stalled + 1)
	if during.Max < during.Stalled || later.Max < later.Stalled {
		t.Errorf("the longest latency is below the stall that lasts: %+v, then %+v", during, later)
	}
	if top := s.figures("top", "--once"); top.Stalled < later.Stalled || top.Max < later.Max {
		t.Errorf("top shows %+v after status has shown %+v", top, later)
	}
	shown, _, _ := testenv.Run(t, "farlog", "status", streamName, "--control", b.cluster.ControlAddress)
	if !strings.Contains(shown, "  stalled  no acknowledgement for ") {
		t.Errorf("farlog status while the target stands:\n%s", shown)
	}
	if text := s.process.Log(); !strings.Contains(text, "no acknowledgement for ") ||
		!strings.Contains(text, "the target of "+b.uri(streamName)+" does not answer") {
		t.Errorf("farlog append while its target stands says %q", text)
	}
	b.cluster.Target.Signal(syscall.SIGCONT)
	s.wait(30)
	testenv.Until(t, "the status shows the stall as the longest latency, and that it is over", func() (bool, error) {
		time.Sleep(stallPause)
		after := s.figures("status")
		return after.Stalled == 0 && after.Max >= later.Stalled && after.P50 > 0 && after.P50 < later.Stalled, nil
	})
	if metric := s.metric("farlog_writer_append_max_seconds"); metric < later.Stalled {
		t.Errorf("farlog_writer_append_max_seconds is %v after a stall of at least %v s", metric, later.Stalled)
	}
	s.end(later.Stalled)
}

// stallBench is a farlog append by a stream's name, fed line by line.
type stallBench struct {
	*hostBench
	process *testenv.Process
	stdin   *os.File
	acks    chan string
	fed     int
}

func (s *stallBench) start() {
	s.Helper()
	reader, stdin, err := os.Pipe()
	if err != nil {
		s.Fatal(err)
	}
	acks, stdout, err := os.Pipe()
	if err != nil {
		s.Fatal(err)
	}
	s.stdin, s.acks = stdin, make(chan string, 1000)
	s.process = testenv.Start(s.T, reader, stdout, "farlog", "append", "--ring", s.uri(streamName),
		"--window", "8", "--ack", "text")
	reader.Close()
	stdout.Close()
	s.Cleanup(func() { stdin.Close() })
	go func() {
		defer close(s.acks)
		defer acks.Close()
		for lines := bufio.NewScanner(acks); lines.Scan(); {
			s.acks <- lines.Text()
		}
	}()
}

func (s *stallBench) feed(count int) {
	s.Helper()
	for range count {
		s.fed++
		if _, err := fmt.Fprintf(s.stdin, "order-%d\n", s.fed); err != nil {
			s.Fatal(err)
		}
	}
}

// wait takes so many acknowledgements.
func (s *stallBench) wait(count int) {
	s.Helper()
	for range count {
		select {
		case line, ok := <-s.acks:
			if !ok {
				s.Fatalf("farlog append ended: %s", s.process.Log())
			}
			if strings.HasPrefix(line, "refused") {
				s.Fatalf("farlog append says %q", line)
			}
		case <-time.After(testenv.Timeout):
			s.Fatalf("no acknowledgement: %s", s.process.Log())
		}
	}
}

// streamFigures are in seconds; what is not known is 0.
type streamFigures struct {
	Stalled float64 `json:"append_stalled_seconds"`
	Max     float64 `json:"append_max_seconds"`
	P50     float64 `json:"append_p50_seconds"`
}

// figures are what status or top says.
func (s *stallBench) figures(args ...string) streamFigures {
	s.Helper()
	text, _, _ := testenv.Run(s.T, "farlog", append(args, "--output", "json", "--control",
		s.cluster.ControlAddress)...)
	var answer struct{ Streams []streamFigures }
	if err := json.Unmarshal([]byte(text), &answer); err != nil || len(answer.Streams) != 1 {
		s.Fatalf("farlog %s: %v: %s", strings.Join(args, " "), err, text)
	}
	return answer.Streams[0]
}

// metric is the agent's figure of the stream.
func (s *stallBench) metric(name string) float64 {
	s.Helper()
	response, err := http.Get("http://" + s.metrics + "/metrics")
	if err != nil {
		s.Fatal(err)
	}
	defer response.Body.Close()
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if text, value, _ := strings.Cut(lines.Text(), "} "); strings.HasPrefix(text, name+"{") &&
			strings.Contains(text, `stream="`+streamName+`"`) {
			seconds, err := strconv.ParseFloat(value, 64)
			if err != nil {
				s.Fatalf("%s: %v", lines.Text(), err)
			}
			return seconds
		}
	}
	s.Fatalf("no %s of %s at %s", name, streamName, s.metrics)
	return 0
}

func (s *stallBench) untilStalled(seconds float64) (seen streamFigures) {
	s.Helper()
	testenv.Until(s.T, fmt.Sprintf("the status tells of a stall of %.1f s", seconds), func() (bool, error) {
		seen = s.figures("status")
		if seen.Stalled < seconds {
			time.Sleep(stallPause)
		}
		return seen.Stalled >= seconds, nil
	})
	return seen
}

// end closes the input: append has acknowledged all, and its summary tells of the stall.
func (s *stallBench) end(stalled float64) {
	s.Helper()
	if err := s.stdin.Close(); err != nil {
		s.Fatal(err)
	}
	if err := s.process.Wait(); err != nil {
		s.Errorf("farlog append: %v", err)
	}
	text := s.process.Log()
	if !strings.Contains(text, fmt.Sprintf("acknowledged %d records", s.fed)) {
		s.Errorf("the summary of %d records: %s", s.fed, text)
	}
	_, wait, _ := strings.Cut(text, "longest wait for an acknowledgement: ")
	wait, _, _ = strings.Cut(wait, "\n")
	if longest, err := time.ParseDuration(wait); err != nil || longest.Seconds() < stalled {
		s.Errorf("the longest wait that append tells of is %q, expected at least %v s: %s", wait, stalled, text)
	}
}
