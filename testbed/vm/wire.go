// Package vm boots virtual machines by QEMU, joins them by a wire, and runs commands in them.
package vm

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Faults is what a cable does to the frames that pass it, in either direction.
type Faults struct {
	Cut   bool          // nothing passes; the guests' links stay up, as with a dead switch behind a live one
	Loss  float64       // the share of frames that get lost, 0 to 1
	Delay time.Duration // how much later a frame arrives
}

// WireCounters count frames.
type WireCounters struct {
	Forwarded, Cut, Lost, Overrun uint64 // Overrun: the receiver did not take them in time
}

const (
	frameLenMax   = 64 << 10
	queueLen      = 1 << 14
	macLen        = 6
	prefixLen     = 4
	ethernetLen   = 14
	groupBit      = 1
	socketBufSize = 1 << 18
)

// Wire is an Ethernet switch in this process. Each guest plugs in by a Unix socket of its own (QEMU's stream netdev),
// so that a guest can be killed and booted again, and faults are made here: from a seed, on one cable, without the
// guests' help.
type Wire struct {
	dir string

	mu       sync.Mutex
	ports    []*Port
	where    map[[macLen]byte]*Port // learned from the frames' sources
	random   *rand.Rand
	counters WireCounters
	keys     map[uint32]bool // of WRITEs
	isClosed bool
}

// Port is a socket of the switch and the cable in it.
type Port struct {
	wire     *Wire
	path     string
	listener net.Listener
	out      chan frame

	// Owned by wire.mu.
	faults    Faults
	peer      net.Conn // the present guest's; nil when none is plugged in
	rdma      RDMACounters
	lastWrite RDMAPlace
}

type frame struct {
	due  time.Time
	data []byte // with the length in front, as it goes through the socket
}

// NewWire makes a switch whose sockets lie in dir. The seed decides which frames get lost.
func NewWire(dir string, seed uint64) *Wire {
	return &Wire{
		dir: dir, where: map[[macLen]byte]*Port{}, keys: map[uint32]bool{},
		random: rand.New(rand.NewPCG(seed, 0)),
	}
}

// Plug adds a port. Its path is what QEMU connects to.
func (w *Wire) Plug(name string) (*Port, error) {
	path := filepath.Join(w.dir, name+".wire")
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("make port of the wire: %w", err)
	}
	p := &Port{wire: w, path: path, listener: listener, out: make(chan frame, queueLen)}
	w.mu.Lock()
	w.ports = append(w.ports, p)
	w.mu.Unlock()
	go p.accept()
	go p.deliver()
	return p, nil
}

// Close ends the switch and its ports.
func (w *Wire) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isClosed {
		return
	}
	w.isClosed = true
	for _, p := range w.ports {
		p.listener.Close()
		if p.peer != nil {
			p.peer.Close()
		}
		close(p.out)
	}
}

// Counters tells what became of the frames so far.
func (w *Wire) Counters() WireCounters {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.counters
}

// SetFaults changes what the cable does, from the next frame on.
func (p *Port) SetFaults(f Faults) {
	p.wire.mu.Lock()
	defer p.wire.mu.Unlock()
	p.faults = f
}

func (p *Port) accept() {
	for {
		peer, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		p.wire.mu.Lock()
		if p.peer != nil {
			p.peer.Close() // of a guest that is gone
		}
		p.peer = peer
		p.wire.mu.Unlock()
		go p.receive(peer)
	}
}

// receive forwards what a guest sends until it is unplugged.
func (p *Port) receive(peer net.Conn) {
	defer peer.Close()
	reader := bufio.NewReaderSize(peer, socketBufSize)
	for {
		var prefix [prefixLen]byte
		if _, err := io.ReadFull(reader, prefix[:]); err != nil {
			return
		}
		length := binary.BigEndian.Uint32(prefix[:])
		if length < ethernetLen || length > frameLenMax {
			return // not a frame: the stream is out of step, and cannot be found again
		}
		data := make([]byte, prefixLen+length)
		copy(data, prefix[:])
		if _, err := io.ReadFull(reader, data[prefixLen:]); err != nil {
			return
		}
		p.wire.forward(p, data)
	}
}

func (w *Wire) forward(from *Port, data []byte) {
	destination, source := [macLen]byte(data[prefixLen:]), [macLen]byte(data[prefixLen+macLen:])
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	from.count(data)
	if w.isClosed || w.isLost(from.faults) {
		return
	}
	w.where[source] = from
	to := w.where[destination]
	for _, p := range w.ports {
		isMeant := p == to || to == nil || destination[0]&groupBit != 0
		if p == from || !isMeant || w.isLost(p.faults) {
			continue
		}
		select {
		case p.out <- frame{now.Add(from.faults.Delay + p.faults.Delay), data}:
			w.counters.Forwarded++
		default:
			w.counters.Overrun++
		}
	}
}

func (w *Wire) isLost(f Faults) bool {
	switch {
	case f.Cut:
		w.counters.Cut++
		return true
	case f.Loss > 0 && w.random.Float64() < f.Loss:
		w.counters.Lost++
		return true
	default:
		return false
	}
}

// deliver writes frames to the present guest when they are due, in the order in which they came.
func (p *Port) deliver() {
	for f := range p.out {
		time.Sleep(time.Until(f.due))
		p.wire.mu.Lock()
		peer := p.peer
		p.wire.mu.Unlock()
		if peer != nil {
			_, _ = peer.Write(f.data) // fails when the guest was killed: its frames are lost, as on a cable
		}
	}
}
