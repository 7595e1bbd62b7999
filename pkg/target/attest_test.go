package target

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/farlog"
)

func said(region string) Attestation {
	return Attestation{Region: region, Attestation: farlog.Attestation{
		ReadFlush: farlog.ReadFlushDDIOOff, Domain: farlog.DomainMemoryController, By: "Ada", Date: "2026-11-21",
	}}
}

// What the memory denies ends the start, and leaves the directory to the next one.
func TestNew_AttestationOfAPageCacheIsRefused(t *testing.T) {
	dir, region := t.TempDir(), filepath.Join(t.TempDir(), "region")
	if err := os.WriteFile(region, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	settings := Config{
		Dir: dir, Agent: &api.Agent{Id: "t1", Host: "alpha"}, Logger: slog.New(slog.DiscardHandler),
		Regions: []string{"mem:" + region},
		Listen:  []string{"ofi:tcp://127.0.0.1:0"}, Attestations: []Attestation{said(region)},
		AttestationFile: "site.yaml",
	}
	_, err := New(settings)
	if err == nil {
		t.Fatal("a file in a page cache was attested to be flushed by a READ")
	}
	for _, part := range []string{"site.yaml: ", `"mem:` + region + `"`, "expected a DAX device"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
	settings.Listen = nil // for writers on this host alone
	_, err = New(settings)
	if err == nil || !strings.Contains(err.Error(), "site.yaml: ") ||
		!strings.Contains(err.Error(), "nothing to attest") {
		t.Errorf("without a listener: %v", err)
	}
	settings.Attestations = nil
	one, err := New(settings)
	if err != nil {
		t.Fatalf("what was refused is still there: %v", err)
	}
	one.remote.close()
	one.lock.Close()
}

// An attestation that no listener heeds ends the start, as does one that the memory denies.
func TestNew_AttestedCommitIsOfAListenerAndOfItsMemory(t *testing.T) {
	region := filepath.Join(t.TempDir(), "region")
	if err := os.WriteFile(region, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	for provider, parts := range map[string][]string{"efa": {
		`commit_flushes "efa"`, "does not listen by it",
		"ofi:PROVIDER://",
	}, "tcp": {`commit_flushes "tcp"`, "expected a DAX device"}} {
		one := Attestation{Region: region, Attestation: farlog.Attestation{
			CommitProvider: provider, By: "Ada",
			Date: "2026-11-21",
		}}
		_, err := New(Config{
			Dir: t.TempDir(), Agent: &api.Agent{Id: "t1", Host: "alpha"},
			Logger: slog.New(slog.DiscardHandler), Regions: []string{"mem:" + region},
			Listen: []string{"ofi:tcp://127.0.0.1:0"}, Attestations: []Attestation{one}, AttestationFile: "site.yaml",
		})
		if err == nil {
			t.Fatalf("a commit of %s was taken for a flush", provider)
		}
		for _, part := range append(parts, "site.yaml: ", region) {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q does not say %q", err, part)
			}
		}
	}
}

// A ring's state says on whose word its region's contract rests.
func TestObserve_AttestationOfTheRegionIsInTheContract(t *testing.T) {
	region := filepath.Join(t.TempDir(), "region")
	one := newTarget(t, t.TempDir())
	one.config.Regions = []string{"mem:" + region + "?size=16777216"}
	one.config.Attestations = []Attestation{said(filepath.Dir(region)), said(region)}
	state := see(one, want("desk7/orders", 5))[0].State
	if state.Error != "" ||
		state.Contract.GetAttestation() != "ddio-off, memory_controller by attestation of Ada, 2026-11-21" {
		t.Fatalf("seen: %v", state)
	}
	one.config.Attestations = one.config.Attestations[:1]
	if state = see(one, want("desk7/orders", 5))[0].State; state.Contract.GetAttestation() != "" {
		t.Errorf("said of another region: %v", state.Contract)
	}
}

// Rings on this host are opened at the level that others are promised: by the same word.
func TestAttestedRegions_HaveTheWordInTheirURI(t *testing.T) {
	bar := Attestation{Region: "/sys/resource2", Attestation: farlog.Attestation{ReadFlush: farlog.ReadFlushBAR}}
	known := Attestation{Region: "/dev/dax1.0", Attestation: farlog.Attestation{ReadFlush: farlog.ReadFlushDDIOOff}}
	regions := []string{
		"mem:/dev/dax0.0", "mem:/dev/dax0.0?size=16777216", "mem:/dev/dax1.0", "mem:/sys/resource2",
		"nvme:/dev/nvme2n1",
	}
	want := []string{
		"mem:/dev/dax0.0?attest=memory_controller",
		"mem:/dev/dax0.0?size=16777216&attest=memory_controller",
		"mem:/dev/dax1.0", "mem:/sys/resource2?attest=bar", "nvme:/dev/nvme2n1",
	}
	got := attestedRegions(regions, []Attestation{said("/dev/dax0.0"), known, bar})
	if !slices.Equal(got, want) {
		t.Fatalf("got %q, want %q", got, want)
	}
	one := newTarget(t, t.TempDir())
	for uri, level := range map[string]farlog.Level{regions[3]: farlog.LevelVisible, got[3]: farlog.LevelPersistent} {
		one.config.Regions = []string{uri}
		one.probeRegions()
		if seen := one.agent().Regions[0]; seen.Level != api.Level(level) || seen.Error != "" {
			t.Errorf("%s: %v", uri, seen)
		}
	}
}
