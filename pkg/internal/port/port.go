// Package port finds TCP ports for programs that must listen at the same one each time they are started.
package port

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// The kernel gives a socket that names no port one from net.ipv4.ip_local_port_range, by default 32768 to 60999
// (ip(7)): a port from there that is free at one moment can be the near end of anyone's connection at the next. These
// it never gives.
const (
	first = 12000
	last  = 31999
)

var (
	lock  sync.Mutex
	claim []net.Listener // kept open for as long as this process lives
)

// Reserve finds a port at which nobody listens on any address, and which no other process gets from Reserve while this
// one lives. Any goroutine; it waits for nothing.
func Reserve() (int, error) {
	for range 1000 {
		port := first + rand.IntN(last-first+1)
		// A name without a file, which ends with the process: two that ask at once do not get the same port.
		name, err := net.Listen("unix", fmt.Sprintf("@farlog-port-%d", port))
		if err != nil {
			continue
		}
		listener, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
		if err != nil {
			name.Close()
			continue
		}
		listener.Close()
		lock.Lock()
		claim = append(claim, name)
		lock.Unlock()
		return port, nil
	}
	return 0, fmt.Errorf("no free port from %d to %d in 1000 attempts: end what listens there", first, last)
}
