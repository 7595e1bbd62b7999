package hostagent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	pathSamplesMax  = 32 // that a way is judged by
	pathBurst       = 4  // handshakes with a listener that is new
	pathTimeout     = time.Second
	pathAtOnce      = 8 // listeners that are measured at the same time
	failureTextMost = 200
)

// Listener is where a target lets clients of other hosts in: ofi:tcp://host:port or verbs://host:port.
type Listener struct{ Target, URI string }

// Path is how long the way to a listener is, of the last measurements. Count is 0 where none ever succeeded.
type Path struct {
	Listener
	Least, Median time.Duration
	Count         int
	Measured      time.Time // the last one that succeeded
	Failures      uint64    // since the listener is known
	Failure       string    // of the last one; empty: it succeeded
}

// Paths measures the paths to the listeners of targets, by the handshake of TCP connections that say nothing and are
// closed again. What libfabric's tcp provider takes a connection by is such a handshake; a verbs device has no port
// there, and then the answer that there is none has come the same way. Any goroutine may call its methods.
type Paths struct {
	OnMeasured func() // called after each handshake, from several goroutines; nil: nobody is told. Set before Measure

	mutex sync.Mutex
	known map[Listener]*pathKnown
}

type pathKnown struct {
	Path
	samples []time.Duration // the last ones, in their order
}

// Follow says which listeners there are. It reports whether one of them is new; of those that are not named any more
// all is forgotten.
func (p *Paths) Follow(listeners []Listener) (isNew bool) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	before := p.known
	p.known = make(map[Listener]*pathKnown, len(listeners))
	for _, listener := range listeners {
		if p.known[listener] = before[listener]; p.known[listener] == nil {
			p.known[listener], isNew = &pathKnown{Path: Path{Listener: listener}}, true
		}
	}
	return isNew
}

// Measure goes to each listener once, and several times to one where nobody was before. It takes a second at most for
// each eight listeners that do not answer.
func (p *Paths) Measure(ctx context.Context) {
	var running sync.WaitGroup
	places := make(chan struct{}, pathAtOnce)
	for _, one := range p.List() {
		rounds := 1
		if one.Count == 0 && one.Failure == "" {
			rounds = pathBurst
		}
		places <- struct{}{}
		running.Go(func() {
			defer func() { <-places }()
			for range rounds {
				took, err := handshake(ctx, one.URI)
				if ctx.Err() != nil {
					return
				}
				p.note(one.Listener, took, err)
				if p.OnMeasured != nil {
					p.OnMeasured()
				}
			}
		})
	}
	running.Wait()
}

// List gives what is known, by target and listener.
func (p *Paths) List() (list []Path) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for _, one := range p.known {
		list = append(list, one.Path)
	}
	slices.SortFunc(list, func(a, b Path) int {
		return cmp.Or(cmp.Compare(a.Target, b.Target),
			cmp.Compare(a.URI, b.URI))
	})
	return list
}

func (p *Paths) note(listener Listener, took time.Duration, err error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	one := p.known[listener]
	switch {
	case one == nil: // forgotten meanwhile
	case err != nil:
		one.Failures++
		one.Failure = oneLine(err.Error())
		one.Failure = strings.ToValidUTF8(one.Failure[:min(len(one.Failure), failureTextMost)], "")
		// it is away for so long that nothing is known of it any more
		if one.samples = one.samples[min(1, len(one.samples)):]; len(one.samples) == 0 {
			one.Least, one.Median, one.Count = 0, 0, 0
			return
		}
		one.judge()
	default:
		if one.samples = append(one.samples, took); len(one.samples) > pathSamplesMax {
			one.samples = one.samples[1:]
		}
		one.Measured, one.Failure = time.Now(), ""
		one.judge()
	}
}

// judge takes the figures of the samples. The least is the way itself, as far as it was ever free; what is more is
// waiting.
func (k *pathKnown) judge() {
	sorted := slices.Sorted(slices.Values(k.samples))
	k.Least, k.Median, k.Count = sorted[0], sorted[len(sorted)/2], len(sorted)
}

// handshake gives the time that a connection took to be made, by the kernel's own clock where it tells: that leaves out
// when this process was woken.
func handshake(ctx context.Context, uri string) (time.Duration, error) {
	scheme, address, isURI := strings.Cut(uri, "://")
	if !isURI {
		return 0, fmt.Errorf("listener %q: expected scheme://host:port", uri)
	}
	dialer := net.Dialer{Timeout: pathTimeout}
	began := time.Now()
	conn, err := dialer.DialContext(ctx, "tcp", address)
	took := time.Since(began)
	if errors.Is(err, syscall.ECONNREFUSED) && scheme == "verbs" {
		return took, nil
	}
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if raw, err := conn.(*net.TCPConn).SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil &&
				info.Rtt > 0 {
				took = min(took, time.Duration(info.Rtt)*time.Microsecond)
			}
		})
	}
	return took, nil
}
