// Package keeper asks who keeps this host's clock, chrony or ptp4l, how far it is off. farlog doctor tells it, and
// every daemon's /metrics has it.
package keeper

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	askTimeout     = 3 * time.Second
	chronyFields   = 14 // of chronyc -c tracking, chrony 4
	unsynchronised = "Not synchronised"

	againAfter = 15 * time.Second // between two questions for metrics
	knownMost  = time.Minute      // how old an answer becomes there
)

// Ask runs a program that only tells something. errors.Is(err, exec.ErrNotFound): it is not on this host.
type Ask func(name string, args ...string) (said string, err error)

// Run is the Ask of this host. It gives a program 3 s.
func Run(name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	said, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	return strings.TrimSpace(string(said)), err
}

// Reading is what a keeper says.
type Reading struct {
	Keeper string  // chrony or ptp4l
	Offset float64 // seconds that the clock is off, either way
	Bound  float64 // with the way to the source, seconds at most; 0: it does not say
}

// Mistaken is an answer of chrony's that is no reading.
type Mistaken struct{ Why, Remedy string }

// Error implements error.
func (m *Mistaken) Error() string { return m.Why }

// Silent is nobody's answer. Each is exec.ErrNotFound where the program is not on this host.
type Silent struct {
	Said        string // by chronyc
	Chrony, PTP error
}

// Error implements error.
func (s *Silent) Error() string {
	if errors.Is(s.Chrony, exec.ErrNotFound) && errors.Is(s.PTP, exec.ErrNotFound) {
		return "neither chronyc nor pmc is on this host"
	}
	var why []string
	if !errors.Is(s.Chrony, exec.ErrNotFound) {
		why = append(why, "chronyc: "+strings.Join(append(strings.Fields(s.Said), s.Chrony.Error()), " "))
	}
	if !errors.Is(s.PTP, exec.ErrNotFound) {
		why = append(why, "pmc: "+s.PTP.Error())
	}
	return "the time daemon does not answer: " + strings.Join(why, "; ")
}

// Read asks chrony, else ptp4l. Errors: *Mistaken, *Silent.
func Read(ask Ask) (Reading, error) {
	said, chrony := ask("chronyc", "-n", "-c", "tracking")
	if chrony == nil {
		return chronyReading(said)
	}
	told, ptp := ask("pmc", "-u", "-b", "0", "GET CURRENT_DATA_SET")
	if ptp == nil {
		if offset, isThere := ptpOffset(told); isThere {
			return Reading{Keeper: "ptp4l", Offset: offset}, nil
		}
		ptp = errors.New("no ptp4l answers")
	}
	return Reading{}, &Silent{said, chrony, ptp}
}

// chronyReading reads a line of chronyc -c tracking: the fields of chronyc tracking, in its order, with commas between.
func chronyReading(said string) (Reading, error) {
	fields := strings.Split(said, ",")
	if len(fields) < chronyFields {
		return Reading{}, &Mistaken{
			fmt.Sprintf("chronyc says %.60q: expected %d fields", said, chronyFields),
			"chronyc tracking",
		}
	}
	var seconds [3]float64 // system time, root delay, root dispersion
	for i, at := range []int{4, 10, 11} {
		value, err := strconv.ParseFloat(fields[at], 64)
		if err != nil {
			return Reading{}, &Mistaken{fmt.Sprintf("chronyc says %.60q: expected a number of seconds in field %d",
				said, at+1), "chronyc tracking"}
		}
		seconds[i] = max(value, -value)
	}
	if fields[13] == unsynchronised {
		return Reading{}, &Mistaken{"chrony runs and follows nobody", "chronyc sources says whom it tries"}
	}
	return Reading{"chrony", seconds[0], seconds[0] + seconds[2] + seconds[1]/2}, nil // chronyc(1), tracking
}

var ptpOffsetLine = regexp.MustCompile(`(?m)^\s*offsetFromMaster\s+(-?[0-9.]+(?:[eE][-+]?[0-9]+)?)\s*$`)

// ptpOffset reads nanoseconds from pmc's CURRENT_DATA_SET. False: nobody answered, or no clock that follows another
// one.
func ptpOffset(said string) (seconds float64, isThere bool) {
	found := ptpOffsetLine.FindStringSubmatch(said)
	if found == nil {
		return 0, false
	}
	value, err := strconv.ParseFloat(found[1], 64)
	return max(value, -value) / 1e9, err == nil
}

// Watch remembers the last reading, so that nobody who looks waits for a program. Any goroutine may look.
type Watch struct {
	ask Ask

	mutex    sync.Mutex
	isAsking bool
	asked    time.Time
	last     Reading
	read     time.Time
}

// NewWatch asks nobody before somebody looks.
func NewWatch(ask Ask) *Watch { return &Watch{ask: ask} }

// Newest gives the last reading of the last minute, and has the keeper asked for the next one. False: there is none.
func (w *Watch) Newest() (Reading, bool) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	now := time.Now()
	if !w.isAsking && now.Sub(w.asked) >= againAfter {
		w.isAsking, w.asked = true, now
		go w.refresh()
	}
	return w.last, !w.read.IsZero() && now.Sub(w.read) < knownMost
}

func (w *Watch) refresh() {
	reading, err := Read(w.ask)
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.isAsking = false
	if err == nil {
		w.last, w.read = reading, time.Now()
	}
}
