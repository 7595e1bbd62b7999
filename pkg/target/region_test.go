package target

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/farlog"
)

// What a target says of its regions is what a ring in them gives.
func TestRegions_TellTheLevelOfTheirRings(t *testing.T) {
	one := newTarget(t, t.TempDir())
	ring := see(one, want("a", 5))[0].State
	if regions := one.agent().Regions; len(regions) != 1 || regions[0].Level != ring.Contract.Level ||
		regions[0].Error != "" || regions[0].Uri != "mem:"+one.config.Dir {
		t.Errorf("told %v, the ring has %v", regions, ring.Contract)
	}
}

// A ring is made in the first region that gives its level, and in none that does not; a region that cannot be used is
// said with its reason.
func TestRegions_RingIsMadeWhereItsLevelIs(t *testing.T) {
	memory, err := os.MkdirTemp("/dev/shm", "farlog-test-")
	if err != nil {
		t.Skip("no tmpfs at /dev/shm: ", err)
	}
	defer os.RemoveAll(memory)
	dir := t.TempDir()
	if contract, err := farlog.Probe("mem:" + filepath.Join(dir, "x")); err != nil ||
		contract.Level < farlog.LevelPersistent {
		t.Skipf("the directory for tests gives %v (%v), expected a disk", contract.Level, err)
	}
	one := newTarget(t, filepath.Join(dir, "target"))
	weak, strong := "mem:"+filepath.Join(memory, "region")+"?size=8388608",
		"mem:"+filepath.Join(dir, "region")+"?size=8388608"
	one.config.Regions = []string{"mem:/nowhere/at/all?size=8388608", weak, strong}
	one.probeRegions()
	told := one.agent().Regions
	if told[0].Level != 0 || !strings.Contains(told[0].Error, "/nowhere/at/all") ||
		told[1].Level != api.Level_LEVEL_VISIBLE || told[2].Level != api.Level_LEVEL_PERSISTENT {
		t.Fatalf("told %v", told)
	}
	one.config.Regions = one.config.Regions[1:]
	one.probeRegions()
	persistent := want("a", 5)
	persistent.Stream.Spec.Level = api.Level_LEVEL_PERSISTENT
	seen := see(one, persistent, want("b", 6))
	if !strings.HasPrefix(seen[0].State.Uri, strong) || !strings.HasPrefix(seen[1].State.Uri, weak) {
		t.Errorf("made at %s and %s", seen[0].State.Uri, seen[1].State.Uri)
	}
	one.config.Regions = one.config.Regions[:1]
	one.probeRegions()
	other := want("c", 7)
	other.Stream.Spec.Level = api.Level_LEVEL_PERSISTENT
	if state := see(one, other)[0].State; !strings.Contains(state.Error, "no region gives level persistent") ||
		len(state.RingUuid) > 0 {
		t.Errorf("made all the same: %v", state)
	}
}

// A ring that was lost before anybody was let in is made again when the control plane says so, for that ring and no
// other.
func TestObserve_LostRingIsMadeAnewWhenToldSo(t *testing.T) {
	one := newTarget(t, t.TempDir())
	first := see(one, want("a", 5))[0].State
	remove := func() {
		t.Helper()
		if err := os.Remove(one.ringPath("a")); err != nil {
			t.Fatal(err)
		}
	}
	remove()
	bound := want("a", 5)
	bound.RingUuid = first.RingUuid
	if state := see(one, bound)[0].State; !state.Missing || len(state.RingUuid) > 0 ||
		!strings.Contains(state.Error, "farlog stream delete a --ring-lost") {
		t.Fatalf("not missed: %v", state)
	}
	other := want("a", 5)
	other.LostUuid = []byte("fedcba9876543210")
	if state := see(one, other)[0].State; len(state.RingUuid) > 0 {
		t.Fatalf("made again although another ring was lost: %v", state)
	}
	again := want("a", 5)
	again.LostUuid = first.RingUuid
	second := see(one, again)[0].State
	if len(second.RingUuid) == 0 || bytes.Equal(second.RingUuid, first.RingUuid) || second.Missing {
		t.Fatalf("not made again: %v", second)
	}
	remove() // the control plane's word was of the first ring
	if state := see(one, again)[0].State; len(state.RingUuid) > 0 || !state.Missing {
		t.Errorf("made a third time: %v", state)
	}
}

// A target that listens serves all of its rings to other hosts: it makes none where it could not.
func TestRegions_ListeningTargetMakesNoRingInANamespace(t *testing.T) {
	regions := []string{"nvme:/dev/nvme2n1", "mem:/somewhere?size=8388608"}
	for name, one := range map[string]*Target{
		"listening": newListening(t, t.TempDir()),
		"alone":     newTarget(t, t.TempDir()),
	} {
		one.config.Regions = regions
		got := one.regionsFor(api.Level_LEVEL_VISIBLE)
		if want := len(regions) - len(one.remote.listeners); len(got) != want || got[len(got)-1] != regions[1] {
			t.Errorf("%s: %q", name, got)
		}
	}
}
