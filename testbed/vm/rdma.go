package vm

import (
	"encoding/binary"
	"maps"
)

// RDMACounters count requests of RoCE v2 that a guest put on the wire, whether or not they passed: what a program asked
// of its device, told by nobody but the device. Repeats are counted as well.
type RDMACounters struct {
	Writes, Reads, Flushes, Sends uint64 // packets with the first or only part of a request; reads have one
	// answers to others' requests: that the key does not open what they ask for (NAK, remote access error)
	Denials uint64
}

// RDMAPlace is where a request goes in the peer's memory, and by which key: it is on the wire for all to read.
type RDMAPlace struct {
	Address uint64
	Key     uint32
	Len     uint32
}

const (
	etherIPv4     = 0x0800
	protocolUDP   = 17
	udpLen        = 8
	roceUDPPort   = 4791
	transportLen  = 12 // the base transport header
	remoteLen     = 16 // the extended one that tells where: address, key, length
	ipv4LenLeast  = 20
	ipv4LenUnit   = 4
	ipv4LenMask   = 0xf
	ipv4Protocol  = 9
	udpDestAt     = 2
	keyAt         = 8
	lenAt         = 12
	opSendFirst   = 0x00
	opSendOnly    = 0x04
	opWriteFirst  = 0x06
	opWriteOnly   = 0x0a
	opReadRequest = 0x0c
	opAcknowledge = 0x11 // or not: the syndrome tells
	opFlush       = 0x1c

	nakRemoteAccess = 0x62 // syndrome: a NAK, code 2

	lineLen = 64
)

// count takes a frame, with its length in front. The caller holds wire.mu.
func (p *Port) count(data []byte) {
	packet := transportPacket(data[prefixLen:])
	if packet == nil {
		return
	}
	switch packet[0] {
	case opSendFirst, opSendOnly:
		p.rdma.Sends++
	case opWriteFirst, opWriteOnly:
		p.rdma.Writes++
		if len(packet) < transportLen+remoteLen {
			return
		}
		remote := packet[transportLen:]
		p.wire.keys[binary.BigEndian.Uint32(remote[keyAt:])] = true
		if length := binary.BigEndian.Uint32(remote[lenAt:]); length >= lineLen {
			p.lastWrite = RDMAPlace{binary.BigEndian.Uint64(remote), binary.BigEndian.Uint32(remote[keyAt:]), length}
		}
	case opReadRequest:
		p.rdma.Reads++
	case opFlush:
		p.rdma.Flushes++
	case opAcknowledge:
		if len(packet) > transportLen && packet[transportLen] == nakRemoteAccess {
			p.rdma.Denials++
		}
	}
}

// transportPacket is what a frame carries for a RoCE v2 device on IPv4, from the base transport header on; nil:
// something else.
func transportPacket(frame []byte) []byte {
	if len(frame) < ethernetLen+ipv4LenLeast || binary.BigEndian.Uint16(frame[2*macLen:]) != etherIPv4 {
		return nil
	}
	ip := frame[ethernetLen:]
	headerLen := int(ip[0]&ipv4LenMask) * ipv4LenUnit
	if ip[ipv4Protocol] != protocolUDP || len(ip) < headerLen+udpLen+transportLen {
		return nil
	}
	udp := ip[headerLen:]
	if binary.BigEndian.Uint16(udp[udpDestAt:]) != roceUDPPort {
		return nil
	}
	return udp[udpLen:]
}

// RDMA tells what the guest at this port asked of other guests' devices so far.
func (p *Port) RDMA() RDMACounters {
	p.wire.mu.Lock()
	defer p.wire.mu.Unlock()
	return p.rdma
}

// LastWrite is where the last WRITE of a line or more that this guest sent goes: shorter ones are words of a header.
func (p *Port) LastWrite() RDMAPlace {
	p.wire.mu.Lock()
	defer p.wire.mu.Unlock()
	return p.lastWrite
}

// Keys are those by which guests wrote to each other's memory.
func (w *Wire) Keys() map[uint32]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.keys)
}
