package target

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/nvmet"
)

// A ring in a namespace is written by hosts that have connected the namespace, past this daemon. Their locks are not
// seen here: that a writer is gone is said by the ring, when its writer has closed it, or by the target, when it has
// evicted the writer's host. Whoever neither closed nor was evicted may still write, dead or alive.

// directoryLen is what the directory of rings takes of a device (docs/reference/format.md).
const directoryLen = 0x28000

// namespaceSpace is what a ring would get in a namespace.
type namespaceSpace struct {
	level   api.Level
	free    uint64 // size of the largest ring
	failure string // why there can be none; "": there can
}

// requestProbe has the namespaces probed soon.
func (t *Target) requestProbe() {
	select {
	case t.probe <- struct{}{}:
	default: // one is asked for already
	}
}

// probeNamespaces looks at what each namespace gives, and has a change reported.
func (t *Target) probeNamespaces() {
	t.mutex.Lock()
	exported, before := t.exported, t.spaces
	t.mutex.Unlock()
	spaces, isNews := make(map[string]namespaceSpace, len(exported)), false
	for _, one := range exported {
		space := probeSpace(one.Device)
		isNews = isNews || space != before[one.Device]
		spaces[one.Device] = space
	}
	t.mutex.Lock()
	t.spaces = spaces
	t.mutex.Unlock()
	if isNews {
		t.requestReport()
	}
}

func probeSpace(device string) namespaceSpace {
	region := "nvme:" + device
	contract, err := farlog.Probe(region)
	if err == nil {
		err = checkLBA(device, contract.Granularity)
	}
	if err != nil {
		return namespaceSpace{failure: oneLine(err)}
	}
	space := namespaceSpace{level: api.Level(contract.Level)}
	listed, err := farlog.ListRegion(region)
	switch {
	case errors.Is(err, farlog.ErrNotFound): // it is blank
		space.free = contract.SizeBytes - min(contract.SizeBytes, directoryLen)
	case errors.Is(err, farlog.ErrExists):
		return namespaceSpace{
			failure: fmt.Sprintf("device %s is one ring as a whole: expected one that is empty or has "+
				"a directory of rings: declare another device", device),
		}
	case err != nil:
		return namespaceSpace{failure: oneLine(err)}
	default:
		space.free = listed.LargestFreeBytes
	}
	space.free &^= 4095
	return space
}

// checkLBA refuses a plain file whose LBAs are others here than for the hosts that connect it: the kernel's target
// exports a file by the blocks of its file system. A ring is made for one length, and is not opened by another.
func checkLBA(device string, lba uint32) error {
	info, err := os.Stat(device)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.Mode().IsRegular() {
		return nil
	}
	if exported := min(uint64(stat.Blksize), 4096); exported != uint64(lba) {
		return fmt.Errorf("file %s has LBAs of %d bytes, and of %d for hosts that connect it: declare a block device, "+
			"such as a loop device of the file (losetup)", device, lba, exported)
	}
	return nil
}

// regionOfNamespace is where rings of a subsystem lie on this host; "": it is not declared.
func (t *Target) regionOfNamespace(subsystem string) string {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if one := t.exported[subsystem]; one != nil {
		return "nvme:" + one.Device
	}
	return ""
}

func errUndeclared(subsystem string) error {
	return fmt.Errorf("namespace of subsystem %s is not declared of this host: declare it again, with its device",
		subsystem)
}

// lastWriter is somebody who may still write a ring in a namespace.
type lastWriter struct {
	host  uint64 // by farlog.HostNumber; 0: this one
	nqn   string // of one that has not opened its epoch; "": its ring names the host
	epoch uint32
}

// lastWriters are all who may still write a ring: who opened it last and has not closed it, and who was granted a later
// epoch and may be opening it.
func (t *Target) lastWriters(spec *api.RingSpec, former farlog.Former, isHeldHere bool) (list []lastWriter) {
	if former.Epoch > 0 && former.Host != 0 && !former.IsClosed || isHeldHere {
		list = append(list, lastWriter{host: former.Host, epoch: former.Epoch})
	}
	for _, grant := range spec.GetAdmission().GetGrants() {
		if grant.HostNqn != "" && grant.Epoch > max(former.Epoch, t.outUpTo(spec, grant.HostNqn)) {
			list = append(list, lastWriter{farlog.HostNumber(grant.HostNqn), grant.HostNqn, grant.Epoch})
		}
	}
	return list
}

// mustGo reports whether a writer is to be kept out: it is below the fence, and on another host than the one who is let
// in. On one host the ring's lock lets one in at a time. A control plane that lost its state may have granted an epoch
// twice: who was granted it before is kept out too.
func (w lastWriter) mustGo(spec *api.RingSpec) bool {
	newest := newestGrant(spec)
	isOther := newest == nil || w.host == 0 || w.host != farlog.HostNumber(newest.HostNqn)
	isAgain := w.nqn != "" && w.epoch == newest.GetEpoch()
	return isOther && (isAgain || w.epoch < spec.GetAdmission().GetEpochMin())
}

// newestGrant is that of the writer that is let in; nil: nobody is. Of two of one epoch it is the first, the control
// plane's.
func newestGrant(spec *api.RingSpec) (newest *api.RemoteGrant) {
	for _, grant := range spec.GetAdmission().GetGrants() {
		if grant.HostNqn != "" && grant.Epoch >= spec.Admission.EpochMin && grant.Epoch > newest.GetEpoch() {
			newest = grant
		}
	}
	return newest
}

// admitToNamespace says who may still write a ring in a namespace, fences those below the wanted epoch, and confirms
// that they are out and the next one is let in.
func (t *Target) admitToNamespace(spec *api.RingSpec, ring Ring) Ring {
	state := ring.State
	if len(state.RingUuid) == 0 || state.Error != "" {
		return ring
	}
	former, err := farlog.FormerOf(state.Uri)
	if err != nil {
		state.Error = oneLine(fmt.Errorf("read who wrote the ring last: %w", err))
		return ring
	}
	writers := t.lastWriters(spec, former, state.WriterHeld)
	state.WriterHeld = len(writers) > 0
	if state.WriterHeld {
		shown := writers[len(writers)-1]
		if at := slices.IndexFunc(writers, func(one lastWriter) bool { return one.mustGo(spec) }); at >= 0 {
			shown = writers[at]
		}
		state.WriterHost = t.hostNamed(spec.Subsystem, shown.host)
	}
	least := spec.GetAdmission().GetEpochMin()
	if least == 0 {
		return ring
	}
	staying := slices.DeleteFunc(slices.Clone(writers), func(one lastWriter) bool { return one.mustGo(spec) })
	isBelow := func(one lastWriter) bool { return one.epoch < least }
	// Not where a writer of the host that is let in has it: that writer ends when the lock is free, or not at all.
	if least > state.EpochMin && !slices.ContainsFunc(staying, isBelow) {
		if err := farlog.Fence(state.Uri, least); err != nil {
			state.FenceError = oneLine(fmt.Errorf("fence writers below epoch %d: %w", least, err))
			return ring
		}
		state.EpochMin = least
	}
	t.confirm(spec, state, writers)
	return ring
}

// confirm says that nobody below the fence is left who may write, once that is so.
func (t *Target) confirm(spec *api.RingSpec, state *api.RingState, writers []lastWriter) {
	least := spec.Admission.EpochMin
	if t.isUnsaved.Load() {
		state.FenceError = "the target could not save whom it lets in: see its log"
		return
	}
	for _, one := range writers {
		if !one.mustGo(spec) {
			continue
		}
		state.EpochFenced, state.FenceError = min(one.epoch, least-1), t.whyNotOut(spec.Subsystem, one)
		return
	}
	state.EpochFenced = least
	state.EpochAdmitted = newestGrant(spec).GetEpoch()
}

// whyNotOut says what keeps a writer that must go from being out.
func (t *Target) whyNotOut(subsystem string, one lastWriter) string {
	host := cmp.Or(t.hostNamed(subsystem, one.host), one.nqn)
	if one.nqn == unknownNQN {
		host = "that is not known any more"
	}
	switch {
	case one.host == 0:
		return fmt.Sprintf("a process on the target's own host has it open (epoch %d): end that", one.epoch)
	case host == "":
		return fmt.Sprintf("its writer of epoch %d has not closed it, and was on a host that the namespace does not "+
			"declare: farlog target nvmet evict HOST-NQN --subsystem %s", one.epoch, subsystem)
	case !t.isEvicting(subsystem):
		return fmt.Sprintf(
			"its writer of epoch %d on host %s has not closed it, and nothing evicts that host: close it "+
				"there, or declare evict: true of the namespace (farlog apply)",
			one.epoch,
			host,
		)
	}
	return fmt.Sprintf("its writer of epoch %d on host %s has not closed it, and that host is being evicted", one.epoch,
		host)
}

// hostNamed is what the fabric calls a host; "": it declares none of this number.
func (t *Target) hostNamed(subsystem string, number uint64) string {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	for _, one := range t.exported[subsystem].GetHosts() {
		if farlog.HostNumber(one.Nqn) == number {
			return one.Host
		}
	}
	return ""
}

func (t *Target) isEvicting(subsystem string) bool {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return t.exported[subsystem].GetEvict()
}

// outHost is a host and a ring of which it has no writer that has not opened it.
type outHost struct {
	ring ledgerKey
	nqn  string
}

// outUpTo is the epoch up to which a host has no writer of a ring that has not opened it.
func (t *Target) outUpTo(spec *api.RingSpec, nqn string) uint32 {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return t.out[outHost{keyOf(spec), nqn}]
}

// exportedRings are Rings, with what the control plane wants of them.
type exportedRings struct {
	Rings
	target *Target
}

// ExportedRings are the rings in this host's namespaces, for who evicts hosts from them.
func (t *Target) ExportedRings() nvmet.Rings { return exportedRings{target: t} }

// Formers gives who wrote each ring last, and who may be opening one with an epoch that it was granted. Of the rings of
// streams it is the control plane who says whom it wants out: a writer that opens a ring raises its fence as well.
func (r exportedRings) Formers(device string) ([]nvmet.Former, error) {
	formers, err := r.Rings.Formers(device)
	for _, spec := range r.target.wantedIn(device) {
		uri := ringURI(device, spec.Stream.Spec.Name)
		at := slices.IndexFunc(formers, func(one nvmet.Former) bool { return one.Ring == uri })
		if at < 0 {
			continue
		}
		last := farlog.Former{Epoch: formers[at].Epoch}
		formers[at].IsFenced = lastWriter{host: formers[at].Host, epoch: last.Epoch}.mustGo(spec)
		for _, one := range r.target.lastWriters(spec, last, false) {
			formers = append(formers, nvmet.Former{
				Ring: uri, Host: one.host, HostNQN: one.nqn, Epoch: one.epoch, IsFenced: one.mustGo(spec),
				IsShared: true,
			})
		}
	}
	return formers, err
}

// Out says that a writer is out, in the ring if that names it. Of one that has not opened its epoch the fence is raised
// above that: it finds out when it opens the ring after all, by a connection of later.
func (r exportedRings) Out(former nvmet.Former) error {
	now, err := farlog.FormerOf(former.Ring)
	if err != nil {
		return err
	}
	if former.Epoch <= now.Epoch {
		return r.Rings.Out(former)
	}
	if now.EpochMin <= former.Epoch {
		if err := farlog.Fence(former.Ring, former.Epoch+1); err != nil {
			return err
		}
	}
	r.target.noteOut(former)
	return nil
}

// noteOut keeps it until a restart: then the host is evicted once more, if the ring still names none that came later.
func (t *Target) noteOut(former nvmet.Former) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	for _, spec := range t.wanted {
		one := t.exported[spec.Subsystem]
		if one == nil || ringURI(one.Device, spec.Stream.Spec.Name) != former.Ring {
			continue
		}
		for _, grant := range spec.GetAdmission().GetGrants() {
			if grant.HostNqn != "" && farlog.HostNumber(grant.HostNqn) == former.Host && grant.Epoch <= former.Epoch {
				key := outHost{keyOf(spec), grant.HostNqn}
				t.out[key] = max(t.out[key], grant.Epoch)
			}
		}
	}
}

// wantedIn are the rings that are wanted in the namespace of a device.
func (t *Target) wantedIn(device string) (specs []*api.RingSpec) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	for _, spec := range t.wanted {
		if one := t.exported[spec.Subsystem]; one != nil && one.Device == device {
			specs = append(specs, spec)
		}
	}
	return specs
}

// ringURI is a ring of a device as Rings.Formers names it.
func ringURI(device, stream string) string { return inRegion("nvme:"+device, stream).uri }
