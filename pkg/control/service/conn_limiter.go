package service

import (
	"fmt"
	"net"
	"slices"
	"sync"
)

// connLimiter counts connections by address: authenticated ones, whose other end has shown a certificate, and apart
// from them those that are not yet. These cannot keep anybody else out: where there are too many, the oldest is closed.
type connLimiter struct {
	mutex           sync.Mutex
	authenticated   map[string]int
	unauthenticated map[string][]*trackedConn // the oldest first
}

func newConnLimiter() *connLimiter {
	return &connLimiter{authenticated: map[string]int{}, unauthenticated: map[string][]*trackedConn{}}
}

// trackedConn is one connection that a limiter counts.
type trackedConn struct {
	limiter                     *connLimiter
	host                        string
	conn                        net.Conn
	isAuthenticated, isReleased bool // under the limiter's mutex
}

// track counts a new connection as unauthenticated.
func (l *connLimiter) track(conn net.Conn) *trackedConn {
	host, _, err := net.SplitHostPort(conn.RemoteAddr().String())
	if err != nil {
		host = conn.RemoteAddr().String()
	}
	c := &trackedConn{limiter: l, host: host, conn: conn}
	l.mutex.Lock()
	l.unauthenticated[host] = append(l.unauthenticated[host], c)
	var oldest *trackedConn
	if len(l.unauthenticated[host]) > unauthenticatedMax {
		oldest = l.unauthenticated[host][0]
		oldest.releaseLocked()
	}
	l.mutex.Unlock()
	if oldest != nil {
		_ = oldest.conn.Close()
	}
	return c
}

// promote counts a connection as authenticated. It is false where there are too many of them, or this one was closed.
func (c *trackedConn) promote() bool {
	c.limiter.mutex.Lock()
	defer c.limiter.mutex.Unlock()
	if c.isReleased || c.limiter.authenticated[c.host] >= connectionsMax {
		return false
	}
	c.releaseLocked()
	c.isReleased, c.isAuthenticated = false, true
	c.limiter.authenticated[c.host]++
	return true
}

// release is called when the connection ends, once or more often.
func (c *trackedConn) release() {
	c.limiter.mutex.Lock()
	defer c.limiter.mutex.Unlock()
	c.releaseLocked()
}

// releaseLocked takes a connection out of the count that it is in; the caller holds the mutex.
func (c *trackedConn) releaseLocked() {
	l := c.limiter
	switch {
	case c.isReleased:
	case c.isAuthenticated:
		if l.authenticated[c.host]--; l.authenticated[c.host] == 0 {
			delete(l.authenticated, c.host)
		}
	default:
		isThis := func(one *trackedConn) bool { return one == c }
		l.unauthenticated[c.host] = slices.DeleteFunc(l.unauthenticated[c.host], isThis)
		if len(l.unauthenticated[c.host]) == 0 {
			delete(l.unauthenticated, c.host)
		}
	}
	c.isReleased = true
}

// counted is released by its limiter when it is closed.
type counted struct {
	net.Conn
	release func()
}

// Close implements net.Conn.
func (c counted) Close() error {
	c.release()
	return c.Conn.Close()
}

// CloseWrite lets a refusal arrive: the other end is told that nothing follows it.
func (c counted) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return fmt.Errorf("%T cannot be closed on one side", c.Conn)
}
