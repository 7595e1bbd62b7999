//go:build cgo

package main

import (
	"cmp"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/durationpb"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/farlog"
)

const (
	stalledLeast  = time.Second // shorter ones are not told
	stalledListed = 256         // HostState.stalled
)

// counted is what the counters of a writer on this host say.
type counted struct {
	stream     string
	writer     hostWriter
	uuid       [16]byte
	counters   *farlog.Counters
	stalledFor time.Duration
}

// look reads the counters of all writers that are known here. Those of one that has not opened yet are left out, and
// all of a host that was started anew. The caller holds the mutex.
func (r *hostRole) look(now time.Time) (all []counted) {
	for stream, writer := range r.writers {
		uuid, err := hex.DecodeString(writer.RingUUID)
		if err != nil || len(uuid) != 16 {
			continue
		}
		one := counted{stream: stream, writer: writer, uuid: [16]byte(uuid)}
		if one.counters, err = farlog.ReadCounters(r.settings.countersDir, one.uuid); err != nil {
			continue
		}
		if r.stalls[stream] == nil {
			r.stalls[stream] = new(farlog.Stall)
		}
		one.stalledFor = r.stalls[stream].Look(one.counters, now)
		if one.stalledFor > 0 && !isCounting(r.settings.countersDir, writer.RingUUID) {
			one.stalledFor = 0 // of a dead writer nobody waits
		}
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b counted) int { return cmp.Compare(a.stream, b.stream) })
	return all
}

// stalled lists the writers of this host to which no acknowledgement comes, the longest first.
func (r *hostRole) stalled() (stalled []*api.StalledWriter) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	all := r.look(time.Now())
	slices.SortStableFunc(all, func(a, b counted) int { return cmp.Compare(b.stalledFor, a.stalledFor) })
	for _, one := range all[:min(len(all), stalledListed)] {
		if one.stalledFor >= stalledLeast {
			stalled = append(stalled, &api.StalledWriter{
				Stream: one.stream, Epoch: uint32(one.counters.Epoch()), StalledFor: durationpb.New(one.stalledFor),
			})
		}
	}
	return stalled
}

// isCounting tells whether the writer of these counters lives: it has the file locked for life.
func isCounting(dir, ringUUID string) bool {
	file, err := os.OpenFile(filepath.Join(cmp.Or(dir, countersDirDefault), ringUUID+".counters"),
		os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer file.Close()
	return unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil
}
