package vm

import (
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"
)

// end is a guest's end of a cable: what QEMU would do.
type end struct {
	t    *testing.T
	conn net.Conn
	mac  byte
}

func plug(t *testing.T, w *Wire, name string, mac byte) (*Port, *end) {
	t.Helper()
	port, err := w.Plug(name)
	if err != nil {
		t.Fatal(err)
	}
	return port, connect(t, port, mac)
}

func connect(t *testing.T, port *Port, mac byte) *end {
	t.Helper()
	conn, err := net.Dial("unix", port.path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	for until := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		port.wire.mu.Lock()
		isPlugged := port.peer != nil
		port.wire.mu.Unlock()
		if isPlugged {
			return &end{t, conn, mac}
		}
		if time.Now().After(until) {
			t.Fatal("the wire did not take the cable")
		}
	}
}

func (e *end) send(to, content byte) {
	e.t.Helper()
	data := make([]byte, prefixLen+ethernetLen+1)
	binary.BigEndian.PutUint32(data, ethernetLen+1)
	data[prefixLen+macLen-1], data[prefixLen+2*macLen-1] = to, e.mac
	if to == 0xff {
		data[prefixLen] = groupBit
	}
	data[len(data)-1] = content
	if _, err := e.conn.Write(data); err != nil {
		e.t.Fatal(err)
	}
}

// receive gives the contents of the next count frames.
func (e *end) receive(count int) []byte {
	e.t.Helper()
	var contents []byte
	data := make([]byte, prefixLen+ethernetLen+1)
	for range count {
		if err := e.conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			e.t.Fatal(err)
		}
		if _, err := io.ReadFull(e.conn, data); err != nil {
			e.t.Fatal(err)
		}
		contents = append(contents, data[len(data)-1])
	}
	return contents
}

func newWire(t *testing.T) *Wire {
	w := NewWire(t.TempDir(), 1)
	t.Cleanup(w.Close)
	return w
}

func TestWire_FramesGoWhereTheirReceiverIs(t *testing.T) {
	w := newWire(t)
	_, a := plug(t, w, "a", 1)
	_, b := plug(t, w, "b", 2)
	_, c := plug(t, w, "c", 3)
	a.send(0xff, 10) // to all: the wire learns where a is
	if got := b.receive(1)[0]; got != 10 {
		t.Errorf("b received %d, want 10", got)
	}
	b.send(1, 11)
	if got := a.receive(1)[0]; got != 11 {
		t.Errorf("a received %d, want 11", got)
	}
	b.send(0xff, 12)
	if got := c.receive(2); got[0] != 10 || got[1] != 12 {
		t.Errorf("c received %v, want what was sent to all: 10, 12", got)
	}
}

func TestWire_CutCableCarriesNothingAndHeals(t *testing.T) {
	w := newWire(t)
	_, a := plug(t, w, "a", 1)
	port, b := plug(t, w, "b", 2)
	port.SetFaults(Faults{Cut: true})
	a.send(0xff, 1)
	for until := time.Now().Add(10 * time.Second); w.Counters().Cut == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("the wire has not seen the frame")
		}
	}
	port.SetFaults(Faults{})
	a.send(0xff, 2)
	if got := b.receive(1)[0]; got != 2 {
		t.Errorf("b received %d, want 2: a cut cable carried a frame", got)
	}
}

func TestWire_LosesItsShareFromTheSeed(t *testing.T) {
	const count = 2000
	w := newWire(t)
	port, a := plug(t, w, "a", 1)
	_, b := plug(t, w, "b", 2)
	port.SetFaults(Faults{Loss: 0.05})
	for range count {
		a.send(0xff, 1)
	}
	for until := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if c := w.Counters(); c.Forwarded+c.Lost == count {
			b.receive(int(c.Forwarded))
			if c.Lost < count/40 || c.Lost > count/10 {
				t.Errorf("%d of %d frames were lost, want about 5 %%", c.Lost, count)
			}
			return
		}
		if time.Now().After(until) {
			t.Fatalf("the wire has not seen %d frames: %+v", count, w.Counters())
		}
	}
}

func TestWire_DelaysInOrder(t *testing.T) {
	w := newWire(t)
	port, a := plug(t, w, "a", 1)
	_, b := plug(t, w, "b", 2)
	port.SetFaults(Faults{Delay: 20 * time.Millisecond})
	began := time.Now()
	a.send(0xff, 1)
	a.send(0xff, 2)
	if got := b.receive(2); got[0] != 1 || got[1] != 2 {
		t.Errorf("b received %v, want 1, 2", got)
	}
	if took := time.Since(began); took < 20*time.Millisecond {
		t.Errorf("the frames took %s, want at least 20 ms", took)
	}
}

func TestWire_GuestIsPluggedInAgain(t *testing.T) {
	w := newWire(t)
	_, a := plug(t, w, "a", 1)
	port, b := plug(t, w, "b", 2)
	b.conn.Close()
	port.wire.mu.Lock()
	port.peer = nil // so that connect waits for the new one
	port.wire.mu.Unlock()
	again := connect(t, port, 2)
	a.send(0xff, 5)
	if got := again.receive(1)[0]; got != 5 {
		t.Errorf("the guest received %d, want 5", got)
	}
}

// roce is a frame with a RoCE v2 packet on IPv4: an operation, and where it goes.
func roce(operation byte, to RDMAPlace) []byte {
	const at = prefixLen + ethernetLen + ipv4LenLeast + udpLen
	data := make([]byte, at+transportLen+remoteLen)
	binary.BigEndian.PutUint32(data, uint32(len(data)-prefixLen))
	binary.BigEndian.PutUint16(data[prefixLen+2*macLen:], etherIPv4)
	data[prefixLen+ethernetLen] = 4<<4 | ipv4LenLeast/ipv4LenUnit
	data[prefixLen+ethernetLen+ipv4Protocol] = protocolUDP
	binary.BigEndian.PutUint16(data[prefixLen+ethernetLen+ipv4LenLeast+udpDestAt:], roceUDPPort)
	data[at] = operation
	binary.BigEndian.PutUint64(data[at+transportLen:], to.Address)
	binary.BigEndian.PutUint32(data[at+transportLen+keyAt:], to.Key)
	binary.BigEndian.PutUint32(data[at+transportLen+lenAt:], to.Len)
	return data
}

func TestWire_CountsWhatDevicesAreAsked(t *testing.T) {
	w := newWire(t)
	port, a := plug(t, w, "a", 1)
	record := RDMAPlace{Address: 0x7f0012345640, Key: 0x1a2b, Len: 256}
	other := roce(opWriteOnly, record)
	binary.BigEndian.PutUint16(other[prefixLen+ethernetLen+ipv4LenLeast+udpDestAt:], roceUDPPort+1)
	port.SetFaults(Faults{Cut: true}) // asked is asked
	for _, data := range [][]byte{
		roce(opWriteFirst, RDMAPlace{1, 2, 8192}), roce(opWriteOnly, record), roce(opWriteOnly, RDMAPlace{3, 4, 8}),
		roce(opReadRequest, record),
		roce(opFlush, record), roce(opFlush, record), roce(opSendOnly, record), roce(opAcknowledge, record), other,
		roce(opAcknowledge, RDMAPlace{Address: nakRemoteAccess << 56}),
		roce(opAcknowledge, RDMAPlace{Address: (nakRemoteAccess - 1) << 56}),
	} {
		if _, err := a.conn.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	for until := time.Now().Add(10 * time.Second); w.Counters().Cut < 11; time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("the wire has not seen the frames: %+v", w.Counters())
		}
	}
	if got, want := port.RDMA(), (RDMACounters{Writes: 3, Reads: 1, Flushes: 2, Sends: 1, Denials: 1}); got != want {
		t.Errorf("counted %+v, want %+v", got, want)
	}
	if got := port.LastWrite(); got != record {
		t.Errorf("the last WRITE of a line or more goes to %+v, want %+v", got, record)
	}
}
