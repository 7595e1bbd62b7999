package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/farlog/farlog/testbed/vm"
)

const (
	controlPort  = 7070
	daemonStream = "desk/orders"
	// goOnLimit tells a writer that hangs from one on a busy machine; that an append keeps its deadline is looked at
	// apart.
	goOnLimit = 5 * time.Minute

	targetMetrics = "127.0.0.1:9465"
	targetDir     = "/var/target"

	// What farlog append says of a ring that was opened as it should be: over verbs, by the device's own FLUSH.
	openedByFlush = "flush rdma-flush, acknowledges persistent"
)

// crew is the daemons as they would be installed: a control plane, a target whose rings lie on devdax and are reached
// by verbs, and drains, each of which has a store of its own. The writers are farlog append's.
type crew struct {
	bed     *bed
	guests  map[string]*vm.Guest
	control string // --control ADDRESS
	duties  []duty

	mu      sync.Mutex
	parts   map[string]*vm.Process
	writers int
}

// duty is a daemon: its name, the guest that it runs in, its command line.
type duty struct{ name, guest, command string }

// newCrew tells the daemons' command lines, in the order in which they are started. drains are guests.
func (b *bed) newCrew(guests map[string]*vm.Guest, controlOn string, drains ...string) *crew {
	control := fmt.Sprintf("--control %s:%d", addresses[controlOn], controlPort)
	c := &crew{
		bed: b, guests: guests, control: control, parts: map[string]*vm.Process{},
		duties: []duty{controlDuty(controlOn), targetDuty("target", "target", addresses["target"], control)},
	}
	for _, guest := range drains {
		c.duties = append(c.duties, drainDuty(guest, control))
	}
	return c
}

func controlDuty(guest string) duty {
	return duty{"control", guest, fmt.Sprintf("farlogd control --data-dir /var/control --listen %s:%d --host-name %s "+
		"--metrics-listen off --audit-stream off",
		addresses[guest], controlPort, guest)}
}

func targetDuty(name, guest, address, control string) duty {
	return duty{name, guest, fmt.Sprintf("farlogd target %s --data-dir %s --host-name %s --metrics-listen %s "+
		"--region %s --listen verbs://%s:%d", control,
		targetDir, guest, targetMetrics, devdax, address, farPort)}
}

func drainDuty(guest, control string) duty {
	return duty{"drain-" + guest, guest, fmt.Sprintf("farlogd drain %s --data-dir /var/drain --store-dir %s "+
		"--host-name %s --metrics-listen off", control, storeDir, guest)}
}

// startAll prepares the target's memory and starts these daemons.
func (c *crew) startAll(ctx context.Context, names ...string) error {
	if _, err := c.guests["target"].Run(ctx, "dax-up"); err != nil {
		return err
	}
	for _, name := range names {
		if err := c.start(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// start starts a daemon and waits until it says that it is ready.
func (c *crew) start(ctx context.Context, name string) error {
	for _, d := range c.duties {
		if d.name != name {
			continue
		}
		ready := "/run/" + name + ".ready"
		g := c.guests[d.guest]
		p, err := c.bed.start(g, name, fmt.Sprintf("rm -f %s; exec %s --ready-file %s", ready, d.command, ready))
		if err != nil {
			return err
		}
		c.keep(name, p)
		if _, err := g.Run(ctx, "wait-for test -s "+ready); err != nil {
			return fmt.Errorf("%s did not get ready: %w: %s", name, err, p.Stderr())
		}
		return nil
	}
	return fmt.Errorf("no daemon is named %s", name)
}

func (c *crew) keep(name string, p *vm.Process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.parts[name] = p
}

func (c *crew) part(name string) *vm.Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.parts[name]
}

// kill ends a part as nothing but a crash would, and waits for its end. False: it had ended by itself before.
func (c *crew) kill(ctx context.Context, name string) (bool, error) {
	p := c.part(name)
	select {
	case <-p.Ended():
		return false, nil
	default:
	}
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return false, err
	}
	select {
	case <-p.Ended():
		return true, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// stop ends a daemon in order.
func (c *crew) stop(ctx context.Context, name string) error {
	p := c.part(name)
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return p.Wait(ctx)
}

// serve makes a stream, and returns when the target serves its ring to other hosts and a drain has it.
func (c *crew) serve(ctx context.Context, stream, size string) error {
	host := c.guests["host"]
	// Once more where a control plane on a busy machine did not answer in time: it may have made the stream.
	create := fmt.Sprintf("farlog stream show %[1]s %[3]s || farlog stream create %[1]s --size %[2]s --wait 180s %[3]s",
		stream, size, c.control)
	if _, err := host.Run(ctx, "wait-for sh -c '"+create+"'"); err != nil {
		return err
	}
	_, err := host.Run(ctx, fmt.Sprintf("wait-for is-served %s %s", stream, c.control))
	return err
}

// startWriter starts a writer of a stream on the trading host. It opens the ring when it has a record.
func (c *crew) startWriter(stream string, window int) (*vm.Process, error) {
	p, err := c.bed.start(c.guests["host"], "append", fmt.Sprintf(
		"exec farlog append %s --stream %s --takeover --transport verbs --format length-prefixed --ack text --window "+
			"%d --acquire-timeout 180s",
		c.control, stream, window))
	if err != nil {
		return nil, err
	}
	c.keep("writer", p)
	c.mu.Lock()
	c.writers++
	c.mu.Unlock()
	return p, nil
}

// checkWriter asks a writer that has acknowledged something how it did that.
func checkWriter(p *vm.Process) error {
	if said := p.Stderr(); !strings.Contains(said, "ring verbs://") || !strings.Contains(said, openedByFlush) {
		return fmt.Errorf("the writer does not append over verbs by native FLUSH: %s", said)
	}
	return nil
}

// drained waits until a drain has stored all of a ledger, ends the drain, and looks the records up in its store.
// Of others, further streams in that store, too.
func (c *crew) drained(ctx context.Context, stream, guest string, l *ledger, others ...streamLedger) (proof, error) {
	for _, one := range append(others, streamLedger{stream, l}) {
		if _, err := c.guests["host"].Run(ctx, fmt.Sprintf("wait-drained %s %d %s", one.stream, one.lastLSN,
			c.control)); err != nil {
			return proof{}, fmt.Errorf("%w: %s", err, c.part("drain-"+guest).Stderr())
		}
	}
	if err := c.stop(ctx, "drain-"+guest); err != nil {
		return proof{}, err
	}
	return c.bed.fetchAndProve(ctx, c.guests[guest], stream, l, others...)
}

// more waits until so many further records were acknowledged.
func (c *crew) more(ctx context.Context, l *ledger, count int, writing <-chan error) error {
	from := l.acknowledged()
	ctx, cancel := context.WithTimeoutCause(ctx, goOnLimit, fmt.Errorf("the writer did not go on within %s", goOnLimit))
	defer cancel()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for l.acknowledged() < from+count {
		select {
		case <-ticker.C:
		case err := <-writing:
			return fmt.Errorf("writing ended: %w", err)
		case <-ctx.Done():
			return fmt.Errorf("%w: %s", context.Cause(ctx), c.part("writer").Stderr())
		}
	}
	return nil
}

// rdma tells what guests asked of others' devices, as the wire saw it.
func (b *bed) rdma(guest string) (vm.RDMACounters, error) {
	port, err := b.port(guest)
	if err != nil {
		return vm.RDMACounters{}, err
	}
	return port.RDMA(), nil
}
