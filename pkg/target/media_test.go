package target

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// healthPage is laid out by figure 207 of the NVM Express Base Specification 2.0, byte by byte; what is not looked at
// is not zero.
func healthPage() []byte {
	page := make([]byte, healthLen)
	for i := range page {
		page[i] = 0xA5
	}
	page[0] = 0x04                                  // critical warning: reliability is degraded
	binary.LittleEndian.PutUint16(page[1:], 273+41) // composite temperature, kelvin
	// available spare, its threshold, percentage used (which may pass 100)
	page[3], page[4], page[5] = 87, 10, 112
	binary.LittleEndian.PutUint64(page[32:], 1111)        // data units read
	binary.LittleEndian.PutUint64(page[40:], 0)           //
	binary.LittleEndian.PutUint64(page[48:], 123_456_789) // data units written
	binary.LittleEndian.PutUint64(page[56:], 0)           //
	return page
}

func TestParseHealth(t *testing.T) {
	got, err := ParseHealth(healthPage())
	if err != nil || got.CriticalWarning != 4 || got.SpareRatio != 0.87 || got.SpareThresholdRatio != 0.10 ||
		got.UsedRatio != 1.12 || got.WrittenBytes != 123_456_789*512_000 {
		t.Errorf("got %v, %v", got, err)
	}
	page := healthPage()
	page[56] = 1 // 2^64 units and more
	if got, err := ParseHealth(page); err != nil || got.WrittenBytes != math.MaxUint64 {
		t.Errorf("more than a number holds: %v, %v", got, err)
	}
	page[3] = 101
	for _, bad := range [][]byte{nil, page[:healthLen-1], page} {
		if got, err := ParseHealth(bad); err == nil {
			t.Errorf("%d bytes: %v", len(bad), got)
		}
	}
}

// What a file's file system lies on is found by the kernel's own tree: a partition's disk, the parts of device mapper
// and RAID; what is no NVMe device has none.
func TestMedia_DevicesBelow(t *testing.T) {
	m, dir := newMedia(), t.TempDir()
	m.sys = filepath.Join(dir, "sys")
	disk := func(path string, slaves ...string) string {
		path = filepath.Join(m.sys, "devices", path)
		if err := os.MkdirAll(filepath.Join(path, "slaves"), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, slave := range slaves {
			if err := os.Symlink(slave, filepath.Join(path, "slaves", filepath.Base(slave))); err != nil {
				t.Fatal(err)
			}
		}
		return path
	}
	partition := disk("pci0000:00/0000:00:05.0/nvme/nvme0/nvme0n1/nvme0n1p2")
	whole := disk("virtual/nvme-subsystem/nvme-subsys1/nvme1n2")
	raid := disk("virtual/block/md0", partition, whole)
	mapper := disk("virtual/block/dm-3", raid)
	for path, want := range map[string][]string{
		partition: {"/dev/nvme0n1"}, whole: {"/dev/nvme1n2"}, mapper: {"/dev/nvme0n1", "/dev/nvme1n2"},
		disk("pci0000:00/0000:00:06.0/ata1/host0/target0:0:0/0:0:0:0/block/sda/sda1"): nil,
		filepath.Join(m.sys, "no", "such"):                                            nil,
	} {
		if got := m.namespaces(path); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, expected %q", path, got, want)
		}
	}
	var info unix.Stat_t
	if err := unix.Stat(dir, &info); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(m.sys, "dev/block", fmt.Sprintf("%d:%d", unix.Major(info.Dev), unix.Minor(info.Dev)))
	if err := errors.Join(os.MkdirAll(filepath.Dir(link), 0o755), os.Symlink(mapper, link)); err != nil {
		t.Fatal(err)
	}
	if got := m.devicesBelow(filepath.Join(dir, "rings", "not there yet")); len(got) != 2 {
		t.Errorf("a directory that is to be made: %q", got)
	}
	if got := m.devicesBelow("/dev/null"); got != nil {
		t.Errorf("a character device lies on %q", got)
	}

	complaints, isBroken := 0, true
	m.health = func(device string) ([]byte, error) {
		if isBroken && device == "/dev/nvme1n2" {
			return nil, errors.New("it does not answer")
		}
		return healthPage(), nil
	}
	complain := func(device string, err error) {
		if complaints++; device != "/dev/nvme1n2" || !strings.Contains(err.Error(), "does not answer") {
			t.Errorf("%s: %v", device, err)
		}
	}
	for range 2 {
		states := m.readHealth([]string{dir, dir}, complain)
		if len(states) != 1 || states[0].Device != "/dev/nvme0n1" ||
			states[0].UsedRatio != 1.12 ||
			states[0].ReadTime == nil {
			t.Errorf("one of two tells: %v", states)
		}
	}
	isBroken = false
	if states := m.readHealth([]string{dir}, complain); len(states) != 2 || complaints != 1 {
		t.Errorf("both tell: %v, %d complaints", states, complaints)
	}
}

func TestCountWritten(t *testing.T) {
	const region = "mem:/dev/pmem0?size=1GiB"
	target := &Target{config: Config{Dir: "/rings", Regions: []string{"mem:/dev/pmem", region}}}
	ring := func(stream, uri, uuid string, appended uint64) Ring {
		return Ring{State: &api.RingState{Stream: stream, Uri: uri, RingUuid: []byte(uuid), AppendedLsn: appended}}
	}
	shared := inRegion(region, "a").uri
	looks := [][]Ring{
		// what was there before does not count
		{ring("a", shared, "u1", 1000), ring("b", "mem:/rings/b.ring", "u2", 5)},
		{ring("a", shared, "u1", 1300), ring("b", "mem:/rings/b.ring", "u2", 6)},
		// the log went back; a ring that is not there
		{ring("a", shared, "u1", 1200), ring("b", "mem:/rings/b.ring", "", 0)},
		{ring("a", shared, "u1", 1250), ring("b", "mem:/rings/b.ring", "u3", 900)},
		{ring("a", shared, "u1", 1250), ring("b", "mem:/rings/b.ring", "u3", 1000)},
	}
	var before []Ring
	for _, seen := range looks {
		target.countWritten(before, seen)
		before = seen
	}
	if got := target.Written(); len(got) != 2 || got[region] != 350 || got["/rings"] != 101 {
		t.Errorf("got %v, expected 350 and 101", got)
	}
}
