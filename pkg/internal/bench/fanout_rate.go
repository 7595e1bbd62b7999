package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"
)

// The highest rate held: up a ladder, each rung a quarter above the one before, until two in a row are not held. One
// alone may have met something else on this machine.
const (
	fanoutFirst     = 1_000
	fanoutRung      = 100_000 // from here on by quarters, below by tens
	fanoutLateMax   = 0.01    // of the run, by which the producer may have ended late
	fanoutBehindMax = 100 * time.Millisecond
	fanoutMissesMax = 2
)

// fanoutAsk is what a run may be told by its environment.
type fanoutAsk struct {
	length time.Duration // of each rate
	p99Max time.Duration
}

func fanoutAsked() (fanoutAsk, error) {
	ask := fanoutAsk{length: 3 * time.Second, p99Max: 50 * time.Millisecond}
	if text := os.Getenv("FARLOG_BENCH_SECONDS"); text != "" {
		seconds, err := strconv.ParseFloat(text, 64)
		if err != nil || seconds <= 0 || seconds > 3600 {
			return ask, fmt.Errorf("FARLOG_BENCH_SECONDS=%q: expected seconds for each rate, above 0, such as 3", text)
		}
		ask.length = time.Duration(seconds * float64(time.Second))
	}
	if text := os.Getenv("FARLOG_BENCH_P99"); text != "" {
		limit, err := time.ParseDuration(text)
		if err != nil || limit <= 0 {
			return ask, fmt.Errorf("FARLOG_BENCH_P99=%q: expected the highest p99 that counts as held, such as 50ms",
				text)
		}
		ask.p99Max = limit
	}
	return ask, nil
}

// isHeld: the producer kept to the rate, every reader has every message, none was far behind at the end, where a lag
// that grows is longest, and the p99 is in bounds.
func (a *fanoutAsk) isHeld(run *fanoutRun) error {
	length := run.dueOf(run.count)
	switch {
	case run.why != nil:
		return run.why
	case run.took > length+time.Duration(float64(length)*fanoutLateMax):
		return fmt.Errorf("%w: the producer took %s for %s", errNotKept, run.took.Round(time.Millisecond), length)
	case run.last > fanoutBehindMax:
		return fmt.Errorf("%w: a reader had the last message %s late", errNotKept, run.last.Round(time.Millisecond))
	case run.delays.quantile(0.99) > a.p99Max:
		return fmt.Errorf("%w: p99 above %s", errNotKept, a.p99Max)
	}
	return nil
}

// benchFanout prints the source document's table: of each rate mean, p99 and standard deviation from supply to receipt;
// and the highest rate held.
func benchFanout() error {
	ask, err := fanoutAsked()
	if err != nil {
		return err
	}
	table := fmt.Sprintf("| 1 producer, %d readers, %d bytes, %s a rate | mean | p99 | standard deviation | longest "+
		"| held |\n|---|---|---|---|---|---|\n", fanoutReaders, fanoutPayload, ask.length)
	held, misses := 0, 0
	for rate := fanoutFirst; misses < fanoutMissesMax; rate = nextRate(rate) {
		run, err := fanoutOnce(rate, ask.length, fanoutRingBytes)
		if err != nil {
			return err
		}
		why := ask.isHeld(run)
		word := "yes"
		if why == nil {
			held, misses = rate, 0
		} else {
			// below, every machine keeps up by itself; what speaks against it is something else that runs
			if rate > fanoutRung {
				misses++
			}
			word = "no: " + why.Error()
		}
		d := &run.delays
		table += fmt.Sprintf("| %d messages/s | %s | %s | %s | %s | %s |\n", rate, short(d.mean()),
			short(d.quantile(0.99)), short(d.deviation()), short(d.max), word)
		if why == nil || errors.Is(why, errNotKept) && d.count > 0 {
			err = reportFanout(run, word)
		}
		if err != nil {
			return err
		}
	}
	fmt.Fprint(os.Stderr, table)
	return report(result{
		Name: "fanout/rate-held", Ours: float64(held), Unit: "messages/s", Flush: "none",
		Level: "visible",
		Note: fmt.Sprintf("highest of a ladder by quarters; producer within 1 %%, last message of each of %d readers "+
			"within %s, p99 within %s, %s a rate", fanoutReaders, fanoutBehindMax, ask.p99Max, ask.length),
	}, 0)
}

func reportFanout(run *fanoutRun, held string) error {
	note := fmt.Sprintf("1 producer, %d readers, %d bytes, %d messages a second; held: %s", fanoutReaders,
		fanoutPayload, run.rate, held)
	for _, one := range []struct {
		what  string
		value time.Duration
	}{{"mean", run.delays.mean()}, {"p99", run.delays.quantile(0.99)}, {"deviation", run.delays.deviation()}} {
		name := fmt.Sprintf("fanout/%d/%s", run.rate, one.what)
		if err := report(result{
			Name: name, Ours: float64(one.value) / 1e3, Unit: "us", Flush: "none", Level: "visible",
			Note: note,
		}, 0); err != nil {
			return err
		}
	}
	return nil
}

func nextRate(rate int) int {
	if rate < fanoutRung {
		return rate * 10
	}
	return rate * 5 / 4
}

// short shows three digits.
func short(d time.Duration) string {
	for unit := time.Nanosecond; ; unit *= 10 {
		if d < 1000*unit {
			return d.Round(unit).String()
		}
	}
}
