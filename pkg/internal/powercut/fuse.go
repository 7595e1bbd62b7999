package powercut

import (
	"encoding/binary"
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Of include/uapi/linux/fuse.h: what the kernel asks of a file system that is a single file. All else is answered with
// ENOSYS, after which the kernel does without.
const (
	opGetattr = 3
	opOpen    = 14
	opRead    = 15
	opWrite   = 16
	opStatfs  = 17
	opRelease = 18
	opFsync   = 20
	opFlush   = 25
	opInit    = 26
	opForget  = 2

	opInterrupt   = 36
	opBatchForget = 42

	headerLen = 40 // of a request
	replyLen  = 16 // its answer's header
	writeLen  = 40 // of fuse_write_in
	attrLen   = 88

	version      = 7
	minorVersion = 31
	bigWrites    = 1 << 5
	maxWrite     = 128 << 10
	mode         = unix.S_IFREG | 0o600
)

// serve answers the kernel until the file system is unmounted.
func (d *Disk) serve(device *os.File) {
	defer close(d.done)
	request := make([]byte, maxWrite+4096)
	for {
		n, err := unix.Read(int(device.Fd()), request)
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return // ENODEV: it is unmounted
		}
		operation := binary.LittleEndian.Uint32(request[4:])
		if operation == opForget || operation == opInterrupt || operation == opBatchForget {
			continue // those have no answer
		}
		body, errno := d.answer(operation, request[headerLen:n])
		reply := make([]byte, replyLen, replyLen+len(body))
		binary.LittleEndian.PutUint32(reply, uint32(replyLen+len(body)))
		binary.LittleEndian.PutUint32(reply[4:], uint32(-int32(errno)))
		copy(reply[8:], request[8:16])                              // which request it was
		_, _ = unix.Write(int(device.Fd()), append(reply, body...)) // whoever asked may be gone
	}
}

func (d *Disk) answer(operation uint32, in []byte) ([]byte, unix.Errno) {
	little := binary.LittleEndian
	switch operation {
	case opInit:
		out := make([]byte, 64)
		little.PutUint32(out, version)
		little.PutUint32(out[4:], minorVersion)
		little.PutUint32(out[8:], little.Uint32(in[8:])) // max_readahead
		little.PutUint32(out[12:], bigWrites)
		little.PutUint32(out[20:], maxWrite)
		return out, 0
	case opGetattr:
		out := make([]byte, 16+attrLen)
		little.PutUint64(out, 1<<30) // seconds that this is true
		little.PutUint64(out[16:], 1)
		little.PutUint64(out[24:], uint64(len(d.visible)))
		little.PutUint64(out[32:], uint64(len(d.visible)/sectorLen))
		little.PutUint32(out[16+60:], mode)
		little.PutUint32(out[16+64:], 1)
		little.PutUint32(out[16+80:], 4096)
		return out, 0
	case opOpen:
		return make([]byte, 16), 0
	case opStatfs:
		return make([]byte, 80), 0
	case opRelease, opFlush:
		return nil, 0
	case opRead:
		return d.read(little.Uint64(in[8:]), little.Uint32(in[16:]))
	case opWrite:
		size := little.Uint32(in[16:])
		errno := d.write(little.Uint64(in[8:]), in[writeLen:writeLen+size])
		return little.AppendUint64(nil, uint64(size)), errno
	case opFsync:
		return nil, d.sync()
	}
	return nil, unix.ENOSYS
}
