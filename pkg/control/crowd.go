package control

import (
	"fmt"
	"net"
	"slices"
	"sync"
)

// crowd counts connections by address: those whose other end has shown a certificate, and apart from them strangers, from before they have said anything.
// Strangers cannot keep anybody else out: where there are too many, the one that came first goes.
type crowd struct {
	mutex     sync.Mutex
	known     map[string]int
	strangers map[string][]*visitor // in the order in which they came
}

func newCrowd() *crowd { return &crowd{known: map[string]int{}, strangers: map[string][]*visitor{}} }

// visitor is one connection in a crowd.
type visitor struct {
	crowd           *crowd
	host            string
	conn            net.Conn
	isKnown, isGone bool // of the crowd's mutex
}

// enter takes a stranger in.
func (c *crowd) enter(conn net.Conn) *visitor {
	host, _, err := net.SplitHostPort(conn.RemoteAddr().String())
	if err != nil {
		host = conn.RemoteAddr().String()
	}
	v := &visitor{crowd: c, host: host, conn: conn}
	c.mutex.Lock()
	c.strangers[host] = append(c.strangers[host], v)
	var first *visitor
	if len(c.strangers[host]) > strangersMax {
		first = c.strangers[host][0]
		first.forget()
	}
	c.mutex.Unlock()
	if first != nil {
		first.conn.Close()
	}
	return v
}

// settle counts a stranger who has said who he is among the known. It is false where there are too many of them, or he had to go already.
func (v *visitor) settle() bool {
	v.crowd.mutex.Lock()
	defer v.crowd.mutex.Unlock()
	if v.isGone || v.crowd.known[v.host] >= connectionsMax {
		return false
	}
	v.forget()
	v.isGone, v.isKnown = false, true
	v.crowd.known[v.host]++
	return true
}

// leave is called when the connection ends, once or more often.
func (v *visitor) leave() {
	v.crowd.mutex.Lock()
	defer v.crowd.mutex.Unlock()
	v.forget()
}

// forget takes a visitor out of the count that has him; the caller holds the mutex.
func (v *visitor) forget() {
	c := v.crowd
	switch {
	case v.isGone:
	case v.isKnown:
		if c.known[v.host]--; c.known[v.host] == 0 {
			delete(c.known, v.host)
		}
	default:
		c.strangers[v.host] = slices.DeleteFunc(c.strangers[v.host], func(one *visitor) bool { return one == v })
		if len(c.strangers[v.host]) == 0 {
			delete(c.strangers, v.host)
		}
	}
	v.isGone = true
}

// counted leaves the crowd when it is closed.
type counted struct {
	net.Conn
	leave func()
}

// Close implements net.Conn.
func (c counted) Close() error {
	c.leave()
	return c.Conn.Close()
}

// CloseWrite lets a refusal arrive: the other end is told that nothing follows it.
func (c counted) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return fmt.Errorf("%T cannot be closed on one side", c.Conn)
}
