package target

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/internal/loop"
	"github.com/farlog/farlog/pkg/nvmet"
)

// blank is a plain file of a size.
func blank(t *testing.T, size int64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "blocks")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
	return path
}

// A device that is somebody else's is not exported, and the error says what is there; one that is empty, or has rings
// of farlog, is.
func TestUsable_RefusesWhatIsNotFarlogs(t *testing.T) {
	partitioned := blank(t, 8<<20)
	table := make([]byte, 512)
	// a DOS partition table with one partition of 1 MiB, type Linux
	copy(table[446:], []byte{0, 0, 2, 0, 0x83, 0, 0, 0, 0, 8, 0, 0, 0, 8, 0, 0})
	table[510], table[511] = 0x55, 0xAA
	if err := os.WriteFile(partitioned, table, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(partitioned, 8<<20); err != nil {
		t.Fatal(err)
	}
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte(strings.Repeat("orders\n", 1<<20)), 0o600); err != nil {
		t.Fatal(err)
	}
	ring, directory := filepath.Join(t.TempDir(), "ring"), blank(t, 16<<20)
	options := farlog.FormatOptions{SizeBytes: 4 << 20, StreamName: "desk7/orders"}
	for _, uri := range []string{"nvme:" + ring, "nvme:" + directory + "?ring=desk7/orders"} {
		if err := farlog.Format(uri, options); err != nil {
			t.Fatal(err)
		}
	}
	for what, one := range map[string]struct{ device, want string }{
		"empty":              {blank(t, 8<<20), ""},
		"a ring":             {ring, ""},
		"rings":              {directory, ""},
		"too small":          {blank(t, 4096), "has 4096 bytes: expected at least 1048576"},
		"partitioned":        {partitioned, "holds a partition table (dos): expected one that is empty"},
		"a file of others":   {text, "bytes that are not zero"},
		"no device":          {filepath.Join(t.TempDir(), "none"), "no such file or directory"},
		"a directory":        {t.TempDir(), "expected a block device or a plain file"},
		"a character device": {"/dev/null", "expected a block device or a plain file"},
	} {
		err := Rings{}.Usable(one.device)
		if one.want == "" && err != nil || one.want != "" && (err == nil || !strings.Contains(err.Error(), one.want) ||
			!strings.Contains(err.Error(), one.device)) {
			t.Errorf("%s: error %v, want %q", what, err, one.want)
		}
	}
}

// A block device that is mounted is in use; once it is not, it still has a file system.
func TestUsable_RefusesWhatIsMounted(t *testing.T) {
	device, dir := loop.Device(t, 16<<20), t.TempDir()
	if err := (Rings{}).Usable(device); err != nil {
		t.Errorf("an empty device: %v", err)
	}
	if said, err := exec.Command("mkfs.ext4", "-q", "-F", device).CombinedOutput(); err != nil {
		t.Skipf("mkfs.ext4: %v: %s", err, said)
	}
	if said, err := exec.Command("mount", device, dir).CombinedOutput(); err != nil {
		t.Skipf("no ext4 can be mounted here: %v: %s", err, said)
	}
	mounted := Rings{}.Usable(device)
	if said, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
		t.Fatalf("umount: %v: %s", err, said)
	}
	if mounted == nil || !strings.Contains(mounted.Error(), device+": it is in use: mounted") {
		t.Errorf("mounted: error %v, want that it is in use", mounted)
	}
	if err := (Rings{}).Usable(device); err == nil || !strings.Contains(err.Error(), "ext4, a file system") {
		t.Errorf("with a file system: error %v, want it named", err)
	}
}

// A control plane that knows no declaration of this host, such as one that lost its state, ends no export, also not
// over a restart of the target. An empty declaration does.
func TestNamespaces_StayUntilTheyAreDeclaredAway(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(t.TempDir(), "nvmet.yaml")
	if err := os.WriteFile(file, []byte("subsystems: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// A keeper with a file lists what it is given at once, and leaves the kernel alone.
	begin := func() *Target {
		one := newTarget(t, dir)
		exports, err := nvmet.NewKeeper(file, filepath.Join(dir, "nvmet.json"), "", slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		one.config.Exports = exports
		return one
	}
	restart := func(one *Target) *Target {
		one.lock.Close()
		one = begin()
		recalled, err := one.recall(wantedName)
		if err != nil {
			t.Fatal(err)
		}
		one.declareNamespaces(recalled)
		return one
	}
	expect := func(one *Target, when string, want int) {
		t.Helper()
		if got := one.namespaces(); len(got) != want {
			t.Errorf("%s: %d namespaces are to be exported, want %d", when, len(got), want)
		}
	}
	one := restart(begin())
	expect(one, "before it was told anything", 0)
	one.applyWanted(&api.WatchRingsResponse{
		Namespaces: []*api.Namespace{{Name: "desk7", Device: "/dev/desk7", Subsystem: "nqn.2026-01.com.example:desk7"}},
		Ports:      []*api.NamespacePort{{Transport: "tcp", Address: "10.7.0.2"}},
	})
	expect(one, "declared", 1)
	one.applyWanted(new(api.WatchRingsResponse))
	expect(one, "without a declaration", 1)
	one = restart(one)
	expect(one, "after a restart", 1)
	one.applyWanted(new(api.WatchRingsResponse))
	expect(one, "again without a declaration", 1)
	if recalled, err := one.recall(wantedName); err != nil || len(recalled.Ports) != 1 {
		t.Errorf("saved is %v, %v, want the port as well", recalled, err)
	}
	one.applyWanted(&api.WatchRingsResponse{NamespacesDeclared: true})
	expect(one, "declared away", 0)
	one = restart(one)
	one.applyWanted(new(api.WatchRingsResponse))
	expect(one, "after they were declared away", 0)
}
