package target

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/farlog"
)

func wantOf(name string, salt uint64, size uint64) *api.RingSpec {
	spec := want(name, salt)
	spec.Stream.Spec.RingSizeBytes = size
	return spec
}

func TestRegions_RingsShareThemAndAreFoundAgain(t *testing.T) {
	dir := t.TempDir()
	regions := []string{
		"mem:" + filepath.Join(dir, "first.region") + "?size=3145728",
		"mem:" + filepath.Join(dir, "second.region") + "?size=4194304",
	}
	specs := []*api.RingSpec{
		wantOf("desk7/orders", 5, 1<<20), wantOf("desk8/orders", 6, 1<<20),
		wantOf("desk9/orders", 7, 2<<20),
	}
	var uuids []string
	for range 2 {
		one := newTarget(t, dir)
		one.config.Regions = regions
		for i, ring := range see(one, specs...) {
			state := ring.State
			if state.Error != "" || !strings.HasSuffix(state.Uri, "&ring="+specs[i].Stream.Spec.Name) {
				t.Fatalf("ring %s at %s: %s", state.Stream, state.Uri, state.Error)
			}
			if isSecond := strings.Contains(state.Uri, "second"); isSecond != (i == 2) {
				t.Errorf("ring %s is at %s", state.Stream, state.Uri)
			}
			uuids = append(uuids, string(state.RingUuid))
		}
		one.lock.Close()
	}
	for i := range specs {
		if uuids[i] != uuids[i+len(specs)] {
			t.Errorf("ring %d was made again", i)
		}
	}
}

// A device is there before its first ring is, and all zero.
func TestRegions_BlankOnesAreBegun(t *testing.T) {
	dir := t.TempDir()
	var regions []string
	for _, name := range []string{"first.region", "second.region"} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, make([]byte, 3<<20), 0o600); err != nil {
			t.Fatal(err)
		}
		regions = append(regions, "mem:"+path)
	}
	one := newTarget(t, t.TempDir())
	one.config.Regions = regions
	for i, ring := range see(one, wantOf("a", 5, 2<<20), wantOf("b", 6, 2<<20)) {
		if ring.State.Error != "" || !strings.HasPrefix(ring.State.Uri, regions[i]+"?ring=") {
			t.Errorf("ring %s at %s: %s", ring.State.Stream, ring.State.Uri, ring.State.Error)
		}
	}
}

func TestRegions_RingTakesRecordsBesideTheOthers(t *testing.T) {
	for _, scheme := range []string{"mem:", "nvme:"} {
		t.Run(scheme, func(t *testing.T) { takeRecordsBesideOthers(t, scheme) })
	}
}

func takeRecordsBesideOthers(t *testing.T, scheme string) {
	t.Helper()
	one := newTarget(t, t.TempDir())
	one.config.Regions = []string{scheme + filepath.Join(t.TempDir(), "one.region") + "?size=4194304"}
	for _, ring := range see(one, want("a", 5), want("b", 6)) {
		writer, err := farlog.OpenWriter(ring.State.Uri,
			farlog.WriterOptions{Level: farlog.LevelVisible, CountersDir: "none"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := writer.Append(farlog.Entry{Data: []byte("order of " + ring.State.Stream)},
			stepTimeout); err != nil {
			t.Error(err)
		}
		if err := writer.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, ring := range see(one, want("a", 5), want("b", 6)) {
		if ring.State.LagRecords < 1 || ring.State.Error != "" {
			t.Errorf("ring %s holds %d records: %s", ring.State.Stream, ring.State.LagRecords, ring.State.Error)
		}
	}
}

func TestRegions_WithoutRoomIsNamed(t *testing.T) {
	one := newTarget(t, t.TempDir())
	one.config.Regions = []string{"mem:" + filepath.Join(t.TempDir(), "one.region") + "?size=2097152"}
	rings := see(one, want("a", 5), wantOf("b", 6, 2<<20))
	if rings[0].State.Error != "" || !strings.Contains(rings[1].State.Error, "no region has free space") {
		t.Errorf("seen %q and %q", rings[0].State.Error, rings[1].State.Error)
	}
	if rings = see(one, want("a", 5)); rings[0].State.Error != "" {
		t.Error(rings[0].State.Error)
	}
	bound := want("lost", 9)
	bound.RingUuid = []byte("0123456789abcdef")
	if state := see(one, bound)[0].State; !strings.Contains(state.Error, "is missing, and is not re-created") {
		t.Errorf("a ring that was there before: %q", state.Error)
	}
}
