package target

import (
	"bytes"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/internal/loop"
)

// at gives a target a clock that stands still.
func at(t *Target) (now *time.Time) {
	now = new(time.Time)
	*now = time.Unix(1_700_000_000, 0)
	t.now = func() time.Time { return *now }
	return now
}

// until looks until a ring is as expected.
func until(t *testing.T, one *Target, what string, isSo func([]Ring) bool, specs ...*api.RingSpec) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !isSo(see(one, specs...)); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never %s: %v", what, one.Rings()[0].State)
		}
	}
}

func isMade(rings []Ring) bool { return len(rings[0].State.RingUuid) > 0 && rings[0].State.Error == "" }

// What cannot be made is tried again after pauses, not at each look; it is said in the ring's state all the time, and
// in the log once.
func TestUnmade_IsTriedAgainAfterPausesThatDouble(t *testing.T) {
	one := newTarget(t, t.TempDir())
	var log bytes.Buffer
	one.config.Logger = slog.New(slog.NewTextHandler(&log, nil))
	now := at(one)
	inTheWay := filepath.Join(one.config.Dir, formingPrefix+"a"+ringSuffix)
	if err := os.MkdirAll(filepath.Join(inTheWay, "x"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, pause := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		for range 3 {
			if state := see(one, want("a", 5))[0].State; !strings.Contains(state.Error, inTheWay) ||
				!strings.Contains(state.Error, "not empty") {
				t.Fatalf("not said why: %v", state)
			}
			one.makers.Wait()
		}
		if got := one.unmade["a"].next.Sub(*now); got != pause*time.Second {
			t.Errorf("tried again after %v, want %v", got, pause*time.Second)
		}
		*now = now.Add(pause * time.Second)
	}
	see(one, want("a", 5))
	one.makers.Wait()
	if got := strings.Count(log.String(), "level=WARN"); got != 1 || !strings.Contains(log.String(), "stream=a") {
		t.Errorf("%d warnings, want one: %s", got, log.String())
	}
	if err := os.RemoveAll(inTheWay); err != nil {
		t.Fatal(err)
	}
	*now = now.Add(time.Minute - 1)
	if state := see(one, want("a", 5))[0].State; state.Error == "" {
		t.Error("tried before its time")
	}
	*now = now.Add(1)
	until(t, one, "made", isMade, want("a", 5))
	one.makers.Wait()
	if see(one, want("a", 5)); len(one.unmade) > 0 || !strings.Contains(log.String(), "created ring") {
		t.Errorf("not forgotten: %v", one.unmade)
	}
}

// One that is deleted before it could be made is gone at once, and tried at once when it is wanted again.
func TestUnmade_IsForgottenWhenItIsNotWanted(t *testing.T) {
	one := newTarget(t, t.TempDir())
	at(one)
	inTheWay := filepath.Join(one.config.Dir, formingPrefix+"a"+ringSuffix)
	if err := os.MkdirAll(filepath.Join(inTheWay, "x"), 0o755); err != nil {
		t.Fatal(err)
	}
	see(one, want("a", 5))
	ending := want("a", 5)
	ending.Deletion = api.DeletionStage_DELETION_STAGE_REMOVING
	if state := see(one, ending)[0].State; !state.Removed || state.Error != "" {
		t.Errorf("not gone: %v", state)
	}
	if err := os.RemoveAll(inTheWay); err != nil {
		t.Fatal(err)
	}
	if !isMade(see(one, want("a", 5))) {
		t.Errorf("not tried: %v", one.Rings()[0].State)
	}
}

// ext4 takes all that is free before it says that this is too little, and a disk may stand still: those whose rings are
// there notice neither.
func TestUnmade_OthersOnTheDiskNoticeNothing(t *testing.T) {
	disk := loop.Disk(t, 64<<20)
	one := newTarget(t, filepath.Join(disk, "target"))
	now := at(one)
	see(one, want("b", 6))
	before := freeOf(t, disk)
	large := want("a", 5)
	large.Stream.Spec.RingSizeBytes = 1 << 40
	state := see(one, large, want("b", 6))[0].State
	for _, part := range []string{
		"1099511627776 bytes", disk, "free, of which",
		"take a smaller size or another disk",
	} {
		if !strings.Contains(state.Error, part) {
			t.Errorf("%q does not say %q", state.Error, part)
		}
	}
	if after := freeOf(t, disk); after != before {
		t.Errorf("%d bytes are free, were %d", after, before)
	}
	freeze(t, disk)
	*now = now.Add(unmadePauseFirst)
	looked := make(chan []Ring)
	go func() { looked <- see(one, large, want("b", 6)) }()
	select {
	case rings := <-looked:
		if rings[0].State.Error == "" || !isMade(rings[1:]) {
			t.Errorf("while the disk stands still: %v", rings)
		}
	case <-time.After(30 * time.Second):
		thaw(t, disk)
		<-looked
		t.Fatal("a look at the other rings waits for a disk that stands still")
	}
	if !one.isMaking(large) {
		t.Error("it is not tried again, and the test shows nothing")
	}
	thaw(t, disk)
	one.makers.Wait()
	large.Stream.Spec.RingSizeBytes = 1 << 20
	*now = now.Add(unmadePauseMax)
	until(t, one, "made", isMade, large, want("b", 6))
	one.makers.Wait()
}

func freeOf(t *testing.T, dir string) uint64 {
	t.Helper()
	var disk unix.Statfs_t
	if err := unix.Statfs(dir, &disk); err != nil {
		t.Fatal(err)
	}
	return disk.Bfree
}

func freeze(t *testing.T, dir string) {
	t.Helper()
	if said, err := exec.Command("fsfreeze", "--freeze", dir).CombinedOutput(); err != nil {
		t.Skipf("fsfreeze: %v: %s", err, said)
	}
	t.Cleanup(func() { exec.Command("fsfreeze", "--unfreeze", dir).Run() })
}

func thaw(t *testing.T, dir string) {
	t.Helper()
	if said, err := exec.Command("fsfreeze", "--unfreeze", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
}
