//go:build farlog_fault

package drain

import (
	"flag"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/merge"
)

// What this file proves, and how. Several streams, each with its host, its ring and its clock, are drained into one
// store, whose streams are merged: writer, ring, drain, store and merge are the real ones, in one thread that plays all
// hosts and their time. Writers, rings, drains, the store's host and the merge die at any operation, with or without
// power; writers are fenced and followed by others with other clocks; rings are idle but for heartbeats, silent, late
// with what they have, or new. Whatever happens: no acknowledged record is lost, changed or twice in the order, no two
// have one lsn and no epoch is given twice; what a reader was once given of the order stays as it is; it goes by (time,
// stream, seq); who is in time is waited for, who is not is marked; each entry leads back to its record. In the end the
// order is taken away and made again from the start in one go: it must be the same, byte for byte.

var mergedRuns = flag.Int("merged.runs", 60, "runs of TestMerged_FaultsLeaveTheOrderAsItWas")

const mutantRunsMax = 300

// playMerged plays runs until one fails.
func playMerged(t *testing.T, seed uint64, runs int) (sum mergedTally, failedSeed uint64, err error) {
	t.Helper()
	runtime.LockOSThread() // whose played time it is
	defer runtime.UnlockOSThread()
	defer farlog.FaultSetUTC(time.Time{})
	for run := range uint64(runs) {
		one, err := playMergedRun(seed + run)
		sum.add(one)
		if err != nil {
			return sum, seed + run, err
		}
	}
	return sum, 0, nil
}

func TestMerged_FaultsLeaveTheOrderAsItWas(t *testing.T) {
	first := firstSeed(t)
	t.Logf("first seed %d (FARLOG_TEST_SEED repeats it)", first)
	began := time.Now()
	sum, seed, err := playMerged(t, first, *mergedRuns)
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	t.Logf("%d runs in %s: %+v", *mergedRuns, time.Since(began).Round(time.Millisecond), sum)
	if sum.Late == 0 || sum.Ties == 0 || sum.Takeovers == 0 || sum.Crashes < *mergedRuns {
		t.Error("nothing was late, nothing at the same time, no writer followed another or hardly anything died: the " +
			"test no longer tests")
	}
}

// A seed that is printed plays the same run again.
func TestMerged_FaultsOfASeedComeAgain(t *testing.T) {
	first := firstSeed(t)
	for seed := first; seed < first+3; seed++ {
		one, failedSeed, err := playMerged(t, seed, 1)
		if err != nil {
			t.Fatalf("seed %d: %v", failedSeed, err)
		}
		again, _, err := playMerged(t, seed, 1)
		if err != nil || one != again {
			t.Fatalf("seed %d: played %+v, and again %+v: %v", seed, one, again, err)
		}
	}
}

func TestMerged_FaultsCatchTheMutants(t *testing.T) {
	for _, c := range []struct {
		name   string
		mutant merge.Mutant
	}{
		{"heartbeat of an idle ring ignored", merge.MutantHeartbeatIgnored},
		{"idle ring not waited for", merge.MutantIdleNotWaited},
		{"equal times by arrival", merge.MutantTieByArrival},
		{"late record not marked", merge.MutantLateUnmarked},
		{"decision not kept", merge.MutantDecisionForgotten},
	} {
		t.Run(c.name, func(t *testing.T) {
			merge.SetMutant(c.mutant)
			defer merge.SetMutant(merge.MutantNone)
			sum, seed, err := playMerged(t, firstSeed(t), mutantRunsMax)
			if err == nil {
				t.Fatalf("not caught in %d runs", mutantRunsMax)
			}
			t.Logf("caught in run %d, seed %d: %v", sum.Runs, seed, err)
		})
	}
}

// mergedTally is what runs did; a run that is played again has the same.
type mergedTally struct {
	Runs, Crashes, Takeovers, Openings, Acknowledged, Undone int
	Entries, Late, Back, Ties, Calms                         int
	Digest                                                   uint64 // of the orders
}

func (t *mergedTally) add(other mergedTally) {
	t.Runs += other.Runs
	t.Crashes += other.Crashes
	t.Takeovers += other.Takeovers
	t.Openings += other.Openings
	t.Acknowledged += other.Acknowledged
	t.Undone += other.Undone
	t.Entries += other.Entries
	t.Late += other.Late
	t.Back += other.Back
	t.Ties += other.Ties
	t.Calms += other.Calms
	t.Digest ^= other.Digest
}

func (l *lane) String() string { return fmt.Sprintf("stream %s", l.name) }
