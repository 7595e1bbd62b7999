// Package powercut is a disk whose power can be cut: what was written to it since the last flush is kept in any subset,
// sector by sector. A loop device lies on it, so that the kernel's own file system stands between it and the programs,
// with its journal and its flushes.
package powercut

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

const sectorLen = 512

// Disk is a file that this process serves to the kernel by FUSE, with a loop device on it.
type Disk struct {
	tb     testing.TB
	dir    string // Mount puts the file system here
	image  string
	isOn   bool
	done   chan struct{} // when serve has ended
	device *os.File

	mu       sync.Mutex
	isCut    bool
	released chan struct{} // closed when what is asked of a dead disk is refused
	visible  []byte
	durable  []byte
	pending  []pendingWrite // since the last flush, in order
	flushes  int
}

type pendingWrite struct {
	off  uint64
	data []byte
}

// Missing says what this host lacks for such a disk; "" = nothing.
func Missing() string {
	if os.Geteuid() != 0 {
		return "mounting needs root, this is another user"
	}
	for _, device := range []string{"/dev/fuse", "/dev/loop-control"} {
		if fd, err := unix.Open(device, unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
			return fmt.Sprintf("%s: %v", device, err)
		} else {
			unix.Close(fd)
		}
	}
	if _, err := exec.LookPath("mkfs.ext4"); err != nil {
		return "mkfs.ext4 is missing (Debian: e2fsprogs)"
	}
	return ""
}

// New makes a disk with an empty ext4 on it, mounted at dir/disk.
func New(tb testing.TB, dir string, size int) *Disk {
	tb.Helper()
	d := &Disk{
		tb: tb, dir: filepath.Join(dir, "disk"), image: filepath.Join(dir, "image"), visible: make([]byte, size),
		durable: make([]byte, size),
	}
	for _, err := range []error{os.Mkdir(d.dir, 0o755), os.WriteFile(d.image, nil, 0o600)} {
		if err != nil {
			tb.Fatal(err)
		}
	}
	tb.Cleanup(d.Off)
	d.serveImage()
	d.run("mkfs.ext4", "-q", "-F", "-E", "nodiscard", d.image)
	d.mount()
	return d
}

// Dir is where its file system is.
func (d *Disk) Dir() string { return d.dir }

// Flushes counts what has been asked of the disk to make durable.
func (d *Disk) Flushes() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.flushes
}

// Cut cuts the power: from now on nothing that is asked of the disk comes back, until Off.
func (d *Disk) Cut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.isCut = true
}

// RejectWrites lets those go who wait for a disk without power: with an error. Whoever was killed before sees nothing
// of it.
func (d *Disk) RejectWrites() { close(d.released) }

// Off takes the file system away. Without a cut before it, that is an orderly shutdown.
func (d *Disk) Off() {
	d.tb.Helper()
	if !d.isOn {
		return
	}
	d.isOn = false
	d.run("umount", d.dir)
	d.run("umount", d.image)
	<-d.done
	d.device.Close()
}

// On brings the power back after a cut. Of what had not been flushed each sector of each write is there with a chance
// that differs from cut to cut.
func (d *Disk) On(random *rand.Rand) {
	d.tb.Helper()
	keepOf256 := random.IntN(257)
	for _, write := range d.pending {
		for at := 0; at < len(write.data); at += sectorLen {
			if random.IntN(256) < keepOf256 {
				copy(d.durable[write.off+uint64(at):], write.data[at:min(at+sectorLen, len(write.data))])
			}
		}
	}
	for _, write := range d.pending {
		end := write.off + uint64(len(write.data))
		copy(d.visible[write.off:end], d.durable[write.off:end])
	}
	d.pending, d.isCut = nil, false
	d.serveImage()
	d.mount()
}

func (d *Disk) run(name string, args ...string) {
	d.tb.Helper()
	if output, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		d.tb.Errorf("%s %v: %v: %s", name, args, err, output)
	}
}

func (d *Disk) serveImage() {
	d.tb.Helper()
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		d.tb.Fatalf("/dev/fuse: %v", err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=%o,user_id=0,group_id=0,max_read=%d", fd, mode, maxWrite)
	if err := unix.Mount("powercut", d.image, "fuse", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		d.tb.Fatalf("mount a file by FUSE at %s: %v", d.image, err)
	}
	d.device, d.done, d.released = os.NewFile(uintptr(fd), "/dev/fuse"), make(chan struct{}), make(chan struct{})
	go d.serve(d.device)
}

// mount takes the loop device away with the file system.
func (d *Disk) mount() {
	d.tb.Helper()
	d.isOn = true
	d.run("mount", "-t", "ext4", "-o", "loop", d.image, d.dir)
	if d.tb.Failed() {
		d.tb.FailNow()
	}
}

// wait gives whether the disk has power; without it, it waits until it may say so.
func (d *Disk) wait() bool {
	d.mu.Lock()
	isCut := d.isCut
	d.mu.Unlock()
	if isCut {
		<-d.released
	}
	return !isCut
}

func (d *Disk) read(off uint64, size uint32) ([]byte, unix.Errno) {
	if !d.wait() {
		return nil, unix.EIO
	}
	off = min(off, uint64(len(d.visible)))
	return d.visible[off:min(off+uint64(size), uint64(len(d.visible)))], 0
}

func (d *Disk) write(off uint64, data []byte) unix.Errno {
	if !d.wait() {
		return unix.EIO
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isCut { // meanwhile
		return unix.EIO
	}
	if off+uint64(len(data)) > uint64(len(d.visible)) {
		return unix.ENOSPC
	}
	copy(d.visible[off:], data)
	d.pending = append(d.pending, pendingWrite{off, bytes.Clone(data)})
	return 0
}

func (d *Disk) sync() unix.Errno {
	if !d.wait() {
		return unix.EIO
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isCut {
		return unix.EIO
	}
	for _, write := range d.pending {
		copy(d.durable[write.off:], write.data)
	}
	d.pending, d.flushes = nil, d.flushes+1
	return 0
}
