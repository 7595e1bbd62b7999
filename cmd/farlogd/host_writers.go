//go:build cgo

package main

import (
	"cmp"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/durationpb"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/target"
)

const (
	stalledLeast  = time.Second // shorter ones are not told
	writersListed = 1024        // HostState.writers
)

// counted is what the counters of a writer on this host say.
type counted struct {
	stream     string
	writer     hostWriter
	uuid       [16]byte
	counters   *farlog.Counters
	stalledFor time.Duration
	isDead     bool // of a dead one nobody waits, and nothing is appended
}

// counts are what a writer had appended at a look.
type counts struct {
	epoch, records, appendedLSN uint64
	at                          time.Time
}

// rates gives records and bytes a second since the look before; 0 where that was at another writer's counters.
func (c counts) rates(before counts) (records, bytes float64) {
	elapsed := c.at.Sub(before.at).Seconds()
	if before.at.IsZero() || elapsed <= 0 || c.epoch != before.epoch || c.records < before.records ||
		c.appendedLSN < before.appendedLSN {
		return 0, 0
	}
	return float64(c.records-before.records) / elapsed, float64(c.appendedLSN-before.appendedLSN) / elapsed
}

// readCounters reads the counters of all writers that are known here. Those of one that has not opened yet are left
// out, and all of a host that was restarted. The caller holds the mutex.
func (r *hostRole) readCounters(now time.Time) (all []counted) {
	for stream, writer := range r.writers {
		uuid, err := hex.DecodeString(writer.RingUUID)
		if err != nil || len(uuid) != 16 {
			continue
		}
		if !writer.owns(r.settings.countersDir) {
			continue
		}
		one := counted{stream: stream, writer: writer, uuid: [16]byte(uuid)}
		if one.counters, err = farlog.ReadCounters(r.settings.countersDir, one.uuid); err != nil {
			continue
		}
		if r.stalls[stream] == nil {
			r.stalls[stream] = new(farlog.Stall)
		}
		one.stalledFor = r.stalls[stream].Update(one.counters, now)
		if one.isDead = !isCounting(r.settings.countersDir, writer.RingUUID); one.isDead {
			one.stalledFor = 0
		}
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b counted) int { return cmp.Compare(a.stream, b.stream) })
	return all
}

// writerStates lists the writers of this host for the control plane: those first to which no acknowledgement has come
// for longest, then by name. Rates are since it was told last.
func (r *hostRole) writerStates(now time.Time) (told []*api.HostWriter) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	all, seen := r.readCounters(now), make(map[string]counts)
	slices.SortStableFunc(all, func(a, b counted) int { return cmp.Compare(b.stalledFor, a.stalledFor) })
	for _, one := range all[:min(len(all), writersListed)] {
		at := counts{one.counters.Epoch(), one.counters.RecordCount(), one.counters.AppendedLSN(), now}
		seen[one.stream] = at
		records, bytes := at.rates(r.told[one.stream])
		if one.isDead {
			records, bytes = 0, 0
		}
		writer := &api.HostWriter{
			Stream: one.stream, Epoch: uint32(one.counters.Epoch()),
			Counters: target.CountersOf(one.counters, records, bytes),
		}
		if one.stalledFor >= stalledLeast {
			writer.StalledFor = durationpb.New(one.stalledFor)
		}
		told = append(told, writer)
	}
	r.told = seen
	return told
}

// owns reports whether the counters are of the user who was granted the stream, or of the super-user: the directory is
// open to all, and whoever comes first could leave what he likes there.
func (w hostWriter) owns(dir string) bool {
	info, err := os.Lstat(countersPath(dir, w.RingUUID))
	if err != nil {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && (w.Owner == "" || stat.Uid == 0 || w.Owner == strconv.FormatUint(uint64(stat.Uid), 10))
}

func countersPath(dir, ringUUID string) string {
	return filepath.Join(cmp.Or(dir, countersDirDefault), ringUUID+".counters")
}

// isCounting reports whether the writer of these counters lives: it has the file locked for life.
func isCounting(dir, ringUUID string) bool {
	file, err := os.OpenFile(countersPath(dir, ringUUID), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer file.Close()
	return unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil
}
