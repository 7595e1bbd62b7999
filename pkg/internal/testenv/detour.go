package testenv

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	detourPackets = 4096 // under way; more are lost, as in a cable
	ipv4Header    = 20
)

// NewDetour makes a way to this host that takes so much longer in each direction: what goes to outside comes back to
// inside, and answers go the same way. It needs root and a device for tunnels, and skips where they are not there. A
// packet is sent back with its addresses exchanged, which changes no checksum.
func NewDetour(tb testing.TB, delay time.Duration) (inside, outside string) {
	tb.Helper()
	if os.Geteuid() != 0 {
		tb.Skip("a tunnel needs root, this is another user")
	}
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		tb.Skipf("/dev/net/tun: %v: no way can be made longer here", err)
	}
	name := fmt.Sprintf("farlog%d", os.Getpid())
	request, err := unix.NewIfreq(name)
	if err != nil {
		tb.Fatal(err)
	}
	request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		unix.Close(fd)
		tb.Skipf("make tunnel %s: %v", name, err)
	}
	tun := os.NewFile(uintptr(fd), "/dev/net/tun") // not before there is a tunnel: it could not be waited for
	tb.Cleanup(func() { tun.Close() })
	// Of the network for measurements (RFC 2544), a part for each process.
	part := os.Getpid() % (1 << 14)
	address := func(last int) string { return fmt.Sprintf("198.18.%d.%d", part>>6, part&63*4+last) }
	inside, outside = address(1), address(2)
	for _, command := range [][]string{{"address", "add", inside + "/30", "dev", name}, {"link", "set", name, "up"}} {
		if output, err := exec.Command("ip", command...).CombinedOutput(); err != nil {
			tb.Fatalf("ip %v: %v: %s", command, err, output)
		}
	}
	go carry(tun, delay)
	return inside, outside
}

// packet is one that is under way.
type packet struct {
	bytes []byte
	due   time.Time
}

// carry ends when the tunnel is closed.
func carry(tun *os.File, delay time.Duration) {
	way := make(chan packet, detourPackets)
	go func() {
		for one := range way {
			time.Sleep(time.Until(one.due))
			tun.Write(one.bytes) // what the host does not take is lost
		}
	}()
	defer close(way)
	for {
		bytes := make([]byte, 1<<16)
		length, err := tun.Read(bytes)
		if err != nil {
			return
		}
		if length < ipv4Header || bytes[0]>>4 != 4 {
			continue
		}
		for i := range 4 {
			bytes[12+i], bytes[16+i] = bytes[16+i], bytes[12+i]
		}
		select {
		case way <- packet{bytes[:length], time.Now().Add(delay)}:
		default:
		}
	}
}
