package target

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/identity"
)

// watchPause is how long a target that ends may wait for who watches its writers.
const watchPause = 100 * time.Millisecond

// remoteServer lets clients of other hosts into the rings, one listener a transport. What the control plane wants of a
// ring is done by a goroutine of its own: tearing down a connection and flushing a medium take their time, and no ring
// waits for another.
type remoteServer struct {
	listeners []*farlog.Target
	uris      []string // of the listeners, as clients dial them
	moved     func()   // something was done that is worth a look

	workers   sync.WaitGroup
	isClosing atomic.Bool
	mutex     sync.Mutex
	rings     map[string]*servedRing // by stream

	refusals []*refusals // of the listeners; of the goroutine that looks at the rings
}

// servedRing is one ring as the listeners know it. Fields are of the server's mutex; those from served on belong to the
// goroutine while isBusy.
type servedRing struct {
	wanted *api.RingSpec
	region string
	uuid   []byte
	isBusy bool
	isNew  bool // wanted has changed since the goroutine looked

	served     []byte              // uuid of the ring that the listeners serve; nil: none
	granted    map[string][]string // by token: the addresses from which it may be brought
	fenced     uint32
	admitted   uint32
	generation uint64 // of the drain
	readers    uint64 // let in up to that generation
	failure    string
}

// openRemoteServer listens. Without addresses nobody comes from other hosts.
func openRemoteServer(addresses []string, advertise, hostName string, moved func()) (*remoteServer, error) {
	d := &remoteServer{moved: moved, rings: make(map[string]*servedRing)}
	for _, address := range addresses {
		listener, err := farlog.OpenTarget(address)
		if err != nil {
			d.close()
			return nil, fmt.Errorf("target.listen %q: %w", address, err)
		}
		d.listeners = append(d.listeners, listener)
		d.refusals = append(d.refusals, newRefusals(listener.URI(), listener.Refusals))
		uri, err := advertised(listener.URI(), advertise, hostName)
		if err != nil {
			d.close()
			return nil, fmt.Errorf("target.listen %q: %w", address, err)
		}
		d.uris = append(d.uris, uri)
	}
	for _, listener := range d.listeners {
		d.workers.Go(func() { d.watchWriters(listener) })
	}
	return d, nil
}

// watchWriters has the rings looked at when a writer has come or gone: whoever stands by for it waits for that.
func (d *remoteServer) watchWriters(listener *farlog.Target) {
	for seen := uint64(0); !d.isClosing.Load(); {
		if now := listener.AwaitWriters(seen, watchPause); now != seen {
			seen = now
			d.moved()
		}
	}
}

// advertised puts the host that clients dial in place of the one that is listened at: host if one is given, and where
// it is listened at all addresses otherwise.
func advertised(uri, host, otherwise string) (string, error) {
	scheme, address, ok := strings.Cut(uri, "//")
	if !ok {
		return "", fmt.Errorf("uri %q: expected scheme://host:port", uri)
	}
	listened, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", err
	}
	host = cmp.Or(host, listened)
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = otherwise
	}
	return scheme + "//" + net.JoinHostPort(host, port), nil
}

func (d *remoteServer) close() {
	d.isClosing.Store(true)
	d.workers.Wait()
	for _, listener := range d.listeners {
		listener.Close()
	}
}

// setWanted takes the control plane's word on a ring that is there.
func (d *remoteServer) setWanted(spec *api.RingSpec, region string, uuid []byte) {
	if len(d.listeners) == 0 {
		return
	}
	d.mutex.Lock()
	defer d.mutex.Unlock()
	stream := spec.Stream.Spec.Name
	one := d.rings[stream]
	if one == nil {
		one = &servedRing{granted: make(map[string][]string)}
		d.rings[stream] = one
	}
	one.wanted, one.region, one.uuid = spec, region, uuid
	if one.isBusy {
		one.isNew = true
		return
	}
	if one.isDone() {
		return
	}
	one.isBusy = true
	d.workers.Go(func() { d.work(stream, one) })
}

// isDone reports whether the listeners have done all that is wanted.
func (o *servedRing) isDone() bool {
	if o.failure != "" || !bytes.Equal(o.served, o.uuid) || o.fenced < o.wanted.GetAdmission().GetEpochMin() {
		return false
	}
	for _, grant := range o.wanted.GetAdmission().GetGrants() {
		if !o.hasGranted(grant) {
			return false
		}
	}
	return !o.hasStrangeDrain()
}

// hasGranted reports whether the listeners let in who has this token, and from where it may come now.
func (o *servedRing) hasGranted(grant *api.RemoteGrant) bool {
	from, ok := o.granted[string(grant.Token)]
	return ok && slices.Equal(from, grant.Addresses)
}

// hasStrangeDrain reports whether a drain was let in that is no longer wanted.
func (o *servedRing) hasStrangeDrain() bool {
	var wanted uint64
	for _, grant := range o.wanted.GetAdmission().GetGrants() {
		if grant.Role == api.GrantRole_GRANT_ROLE_DRAIN {
			wanted = grant.Generation
		}
	}
	return o.generation != 0 && o.generation != wanted
}

// work does what is wanted, again while that changes. What fails is tried again at the next look at the rings.
func (d *remoteServer) work(stream string, one *servedRing) {
	for {
		d.mutex.Lock()
		attempt := *one
		one.isNew = false
		d.mutex.Unlock()
		err := d.perform(stream, &attempt)
		d.mutex.Lock()
		attempt.failure = ""
		if err != nil {
			attempt.failure = oneLine(err)
		}
		// the same failure again is no reason to look, and to try, at once
		isNews := err == nil || attempt.failure != one.failure
		attempt.wanted, attempt.region, attempt.uuid, attempt.isNew = one.wanted, one.region, one.uuid, one.isNew
		attempt.isBusy = attempt.isNew && err == nil
		*one = attempt
		isBusy := one.isBusy
		d.mutex.Unlock()
		if isNews {
			d.moved()
		}
		if !isBusy {
			return
		}
	}
}

// perform brings the listeners to what is wanted, in this order: the ring, the fence, those who are let in.
func (d *remoteServer) perform(stream string, one *servedRing) error {
	if err := d.serve(stream, one); err != nil {
		return err
	}
	admission := one.wanted.GetAdmission()
	if epoch := admission.GetEpochMin(); one.fenced < epoch {
		for _, listener := range d.listeners {
			if _, err := listener.Fence(stream, epoch); err != nil {
				return fmt.Errorf("fence writers below epoch %d: %w", epoch, err)
			}
		}
		one.fenced = epoch
	}
	for _, grant := range admission.GetGrants() {
		if err := d.grant(stream, one, grant); err != nil {
			return err
		}
	}
	return nil
}

// serve begins to serve the ring, from the start when it is another one than before or a drain has to go: then all
// connections are torn down, and those who are still wanted come again by themselves.
func (d *remoteServer) serve(stream string, one *servedRing) error {
	if bytes.Equal(one.served, one.uuid) && !one.hasStrangeDrain() {
		return nil
	}
	for _, listener := range d.listeners {
		if err := listener.Forget(stream); err != nil && !errors.Is(err, farlog.ErrNotFound) {
			return fmt.Errorf("end remote connections: %w", err)
		}
	}
	one.served, one.fenced, one.admitted, one.generation, one.readers, one.granted = nil, 0, 0, 0, 0,
		make(map[string][]string)
	for _, listener := range d.listeners {
		if err := listener.Serve(stream, one.region, tenantOf(stream)); err != nil {
			return fmt.Errorf("serve ring to other hosts at %s: %w", listener.URI(), err)
		}
	}
	one.served = one.uuid
	return nil
}

func (d *remoteServer) grant(stream string, one *servedRing, wanted *api.RemoteGrant) error {
	if one.hasGranted(wanted) {
		return nil
	}
	grant := farlog.TargetGrant{Role: farlog.GrantDrain, Epoch: wanted.Epoch}
	switch wanted.Role {
	case api.GrantRole_GRANT_ROLE_WRITER:
		grant.Role = farlog.GrantWriter
	case api.GrantRole_GRANT_ROLE_READER:
		grant.Role = farlog.GrantReader
	}
	if len(wanted.Token) != len(grant.Token) {
		return fmt.Errorf("grant of stream %q has a token of %d bytes, expected %d", stream, len(wanted.Token),
			len(grant.Token))
	}
	copy(grant.Token[:], wanted.Token)
	for _, text := range wanted.Addresses {
		network, err := identity.Network(text)
		if err != nil {
			return fmt.Errorf("grant of stream %q: %w", stream, err)
		}
		grant.From = append(grant.From, network)
	}
	if wanted.ExpireTime != nil {
		grant.Expires = wanted.ExpireTime.AsTime()
	}
	for _, listener := range d.listeners {
		// An epoch below the floor is not let in, and its holder learns that from the listener.
		if err := listener.Grant(stream, grant); err != nil && !errors.Is(err, farlog.ErrFenced) {
			return fmt.Errorf("admit a client of another host: %w", err)
		}
	}
	one.granted[string(wanted.Token)] = wanted.Addresses
	switch grant.Role {
	case farlog.GrantWriter:
		one.admitted = max(one.admitted, wanted.Epoch)
	case farlog.GrantReader:
		one.readers = max(one.readers, wanted.Generation)
	default:
		one.generation = wanted.Generation
	}
	return nil
}

// describe adds to a ring's state what other hosts need to know of it.
func (d *remoteServer) describe(state *api.RingState) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	one := d.rings[state.Stream]
	if one == nil {
		return
	}
	state.EpochFenced, state.EpochAdmitted, state.DrainGeneration, state.ReaderGeneration = one.fenced, one.admitted,
		one.generation, one.readers
	if one.failure != "" && state.Error == "" {
		state.Error = one.failure
	}
}

// reach tells how other hosts reach a ring, whether the listeners serve it yet or not: a target that has just been
// started would else say for a moment that it has none, and a client that comes just then would be refused for good.
// Until they serve it nobody is told that he is let in.
func (d *remoteServer) reach(state *api.RingState) {
	for _, uri := range d.uris {
		state.RemoteUris = append(state.RemoteUris, uri+"/"+state.Stream)
	}
}

// ServedRing is one ring at all listeners of one transport, for metrics.
type ServedRing struct {
	Stream, Transport string
	Counters          []farlog.Counter
}

// add counts another listener's in.
func (d *ServedRing) add(counters []farlog.Counter) {
	for i := range d.Counters {
		d.Counters[i].Value += counters[i].Value
	}
}

// ServedRings gives the counters of the listeners.
func (t *Target) ServedRings() []ServedRing {
	d := t.remote
	d.mutex.Lock()
	streams := make([]string, 0, len(d.rings))
	for stream := range d.rings {
		streams = append(streams, stream)
	}
	d.mutex.Unlock()
	var list []ServedRing
	known := make(map[[2]string]int) // by stream and transport: where it is in the list
	for _, listener := range d.listeners {
		transport, _, _ := strings.Cut(listener.URI(), ":")
		for _, stream := range streams {
			counters, err := listener.Counters(stream)
			if err != nil {
				continue
			}
			at := [2]string{stream, transport}
			if i, ok := known[at]; ok {
				list[i].add(counters.All())
				continue
			}
			known[at] = len(list)
			list = append(list, ServedRing{Stream: stream, Transport: transport, Counters: counters.All()})
		}
	}
	return list
}

// tenantOf is the part of a stream's name before the first slash: desk7/orders belongs to desk7.
func tenantOf(stream string) string {
	tenant, _, _ := strings.Cut(stream, "/")
	return tenant
}
