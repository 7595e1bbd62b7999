package target

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/timestamppb"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/farlog"
)

const (
	mediaInterval = time.Minute
	healthLen     = 512
	dataUnitBytes = 512 * 1000
)

// ParseHealth reads the log page SMART / Health Information: NVM Express Base Specification 2.0, section 5.16.1.3,
// figure 207. Numbers are little-endian.
func ParseHealth(page []byte) (*api.MediaHealth, error) {
	if len(page) < healthLen {
		return nil, fmt.Errorf("health page of %d bytes: expected %d", len(page), healthLen)
	}
	if spare := page[3]; spare > 100 {
		return nil, fmt.Errorf("health page says %d %% of the spare capacity is left: expected at most 100", spare)
	}
	// Data Units Written, of 1000 times 512 bytes
	low, high := binary.LittleEndian.Uint64(page[48:]), binary.LittleEndian.Uint64(page[56:])
	written := low * dataUnitBytes
	if high != 0 || low > math.MaxUint64/dataUnitBytes {
		written = math.MaxUint64
	}
	return &api.MediaHealth{
		CriticalWarning: uint32(page[0]), SpareRatio: float64(page[3]) / 100,
		SpareThresholdRatio: float64(page[4]) / 100, UsedRatio: float64(page[5]) / 100, WrittenBytes: written,
	}, nil
}

// media asks the devices below the rings how they are.
type media struct {
	sys    string // "/sys"
	health func(device string) ([]byte, error)
	told   map[string]bool // of what is wrong with them, the log has been told
}

func newMedia() *media {
	return &media{sys: "/sys", health: farlog.DeviceHealth, told: map[string]bool{}}
}

// watchMedia asks now and then, by a goroutine of its own: a device that is at its end may take its time, and the rings
// on it are served meanwhile.
func (t *Target) watchMedia(ctx context.Context) {
	m := newMedia()
	tick := time.NewTicker(mediaInterval)
	defer tick.Stop()
	for {
		states := m.readHealth(t.mediaPaths(), func(device string, err error) {
			t.config.Logger.Warn("a device does not report its wear", "device", device, "error", oneLine(err))
		})
		t.mutex.Lock()
		t.media = states
		t.mutex.Unlock()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// Media is what the devices below the rings said last. The result must not be changed.
func (t *Target) Media() []*api.MediaHealth {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return t.media
}

// mediaPaths are the files and devices in which the rings are. A namespace that is named by its subsystem is not among
// them.
func (t *Target) mediaPaths() (paths []string) {
	for _, one := range t.namespaces() {
		paths = append(paths, one.Device)
	}
	if len(t.config.Regions) == 0 {
		return append(paths, t.config.Dir)
	}
	for _, region := range t.config.Regions {
		_, path, _ := strings.Cut(region, ":")
		if path, _, _ = strings.Cut(path, "?"); strings.HasPrefix(path, "/") {
			paths = append(paths, path)
		}
	}
	return paths
}

// readHealth gives the health of each NVMe device below the paths. What does not tell is left out, and said once.
func (m *media) readHealth(paths []string, complain func(device string, err error)) (states []*api.MediaHealth) {
	var devices []string
	for _, path := range paths {
		devices = append(devices, m.devicesBelow(path)...)
	}
	slices.Sort(devices)
	for _, device := range slices.Compact(devices) {
		page, err := m.health(device)
		var state *api.MediaHealth
		if err == nil {
			state, err = ParseHealth(page)
		}
		if err != nil && !m.told[device] {
			complain(device, err)
		}
		m.told[device] = err != nil
		if err == nil {
			state.Device, state.ReadTime = device, timestamppb.Now()
			states = append(states, state)
		}
	}
	return states
}

// devicesBelow lists the namespaces on which a file lies, or that a device is or is made of. A directory that is not
// there yet lies where the one above it does.
func (m *media) devicesBelow(path string) []string {
	var info unix.Stat_t
	err := unix.Stat(path, &info)
	for errors.Is(err, unix.ENOENT) && path != "/" {
		path = filepath.Dir(path)
		err = unix.Stat(path, &info)
	}
	if err != nil {
		return nil
	}
	number := info.Dev
	switch info.Mode & unix.S_IFMT {
	case unix.S_IFBLK:
		number = info.Rdev
	case unix.S_IFCHR: // device DAX
		return nil
	}
	return m.namespaces(filepath.Join(m.sys, "dev/block", fmt.Sprintf("%d:%d", unix.Major(number), unix.Minor(number))))
}

var namespaceName = regexp.MustCompile(`^nvme[0-9]+n[0-9]+$`)

// namespaces goes from a block device down to what it is made of: a partition to its disk, device mapper and RAID to
// their parts.
func (m *media) namespaces(dir string) []string {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil // an anonymous device: tmpfs, overlay, btrfs
	}
	for at := real; len(at) > len(m.sys); at = filepath.Dir(at) {
		if namespaceName.MatchString(filepath.Base(at)) {
			return []string{"/dev/" + filepath.Base(at)}
		}
	}
	parts, err := os.ReadDir(filepath.Join(real, "slaves"))
	if err != nil {
		return nil
	}
	var found []string
	for _, part := range parts {
		found = append(found, m.namespaces(filepath.Join(real, "slaves", part.Name()))...)
	}
	return found
}
