package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
	"time"

	"github.com/farlog/farlog/testbed/vm"
)

const (
	daemonKills  = 20
	controlPort  = 7070
	daemonStream = "desk/orders"
	goOnLimit    = 90 * time.Second

	idleWritersMax = 10
)

// crew is the daemons as they would be installed: control plane and drain on the central host, a target, a writer on the trading host.
type crew struct {
	bed     *bed
	guests  map[string]*vm.Guest
	control string // --control ADDRESS
	ledger  *ledger

	mu      sync.Mutex
	parts   map[string]*vm.Process
	writers int
}

// daemons in the order in which they are started, each with its guest and command line. The target's daemon keeps rings in files of a
// disk, which no RDMA device can write to: they are reached by libfabric's TCP, and flushed by the target's processor.
func (c *crew) daemons() []struct{ name, guest, command string } {
	return []struct{ name, guest, command string }{
		{"control", "central", fmt.Sprintf("farlogd control --data-dir /var/control --listen %s:%d --host-name central", addresses["central"], controlPort)},
		{"target", "target", fmt.Sprintf("farlogd target %s --data-dir /var/target --host-name target --target-listen ofi:tcp://%s:%d --target-advertise %s",
			c.control, addresses["target"], farPort, addresses["target"])},
		{"drain", "central", fmt.Sprintf("farlogd drain %s --data-dir /var/drain --store-dir %s --host-name central", c.control, storeDir)},
	}
}

// start starts a daemon and waits until it says that it is ready.
func (c *crew) start(ctx context.Context, name string) error {
	for _, d := range c.daemons() {
		if d.name != name {
			continue
		}
		ready := "/run/" + name + ".ready"
		g := c.guests[d.guest]
		p, err := c.bed.start(g, name, fmt.Sprintf("rm -f %s; exec %s --metrics-listen off --ready-file %s", ready, d.command, ready))
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

// kill ends a part as nothing but a crash would, and waits for its end.
func (c *crew) kill(ctx context.Context, name string) error {
	p := c.part(name)
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	select {
	case <-p.Ended():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// write starts one writer after another, and feeds each until it ends. A record that no writer acknowledged goes to the next one.
func (c *crew) write(ctx context.Context, isEnough func(int) bool) error {
	command := fmt.Sprintf("exec farlog append %s --stream %s --format length-prefixed --ack text --window 64 --acquire-timeout 60s --transport ofi", c.control, daemonStream)
	for idle := 0; idle < idleWritersMax; idle++ {
		before := c.ledger.acknowledged()
		p, err := c.bed.start(c.guests["host"], "append", command)
		if err != nil {
			return err
		}
		c.keep("writer", p)
		c.mu.Lock()
		c.writers++
		c.mu.Unlock()
		err = c.ledger.feed(ctx, c.bed, p, isEnough)
		if err == nil {
			return finish(ctx, p)
		}
		if !errors.Is(err, io.EOF) {
			return err
		}
		if c.ledger.acknowledged() > before {
			idle = -1
		}
	}
	return fmt.Errorf("%d writers in a row ended without an acknowledgement: %s", idleWritersMax, c.part("writer").Stderr())
}

// more waits until so many further records were acknowledged.
func (c *crew) more(ctx context.Context, count int, writing <-chan error) error {
	from := c.ledger.acknowledged()
	ctx, cancel := context.WithTimeoutCause(ctx, goOnLimit, fmt.Errorf("the writer did not go on within %s", goOnLimit))
	defer cancel()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for c.ledger.acknowledged() < from+count {
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

// daemonsKilled kills the control plane, the target's daemon, the drain and the writer at random, and starts them again. At the end every
// acknowledged record is in the store.
func daemonsKilled(ctx context.Context, b *bed) (string, error) {
	c, err := b.newCrew(ctx)
	if err != nil {
		return "", err
	}
	stop, writing := make(chan struct{}), make(chan error, 1)
	go func() {
		writing <- c.write(ctx, func(int) bool {
			select {
			case <-stop:
				return true
			default:
				return false
			}
		})
	}()
	kills := map[string]int{}
	for range daemonKills {
		if err := c.more(ctx, 50+b.draw(100), writing); err != nil {
			return "", fmt.Errorf("after kills %v: %w", kills, err)
		}
		name := []string{"control", "target", "drain", "writer"}[b.draw(4)]
		kills[name]++
		if err := c.kill(ctx, name); err != nil {
			return "", fmt.Errorf("kill %s: %w", name, err)
		}
		if name == "writer" {
			continue // the next one is started by write
		}
		if err := c.start(ctx, name); err != nil {
			return "", fmt.Errorf("after kills %v: %w", kills, err)
		}
	}
	if err := c.more(ctx, 100, writing); err != nil {
		return "", fmt.Errorf("after kills %v: %w", kills, err)
	}
	close(stop)
	if err := <-writing; err != nil {
		return "", err
	}
	proved, err := c.conclude(ctx)
	if err != nil {
		return "", fmt.Errorf("after kills %v: %w", kills, err)
	}
	return fmt.Sprintf("%d kills %v, %d writers: %s", daemonKills, kills, c.writers, proved), nil
}

func (b *bed) newCrew(ctx context.Context) (*crew, error) {
	guests, err := b.bootAll(ctx, machine{name: "target", cpus: 2, isOnWire: true}, hostMachine,
		machine{name: "central", cpus: 2, memoryMiB: 1024, isOnWire: true})
	if err != nil {
		return nil, err
	}
	records, err := newRecords("D", 60000)
	if err != nil {
		return nil, err
	}
	c := &crew{bed: b, guests: guests, control: fmt.Sprintf("--control %s:%d", addresses["central"], controlPort), ledger: newLedger(records),
		parts: map[string]*vm.Process{}}
	for _, d := range c.daemons() {
		if err := c.start(ctx, d.name); err != nil {
			return nil, err
		}
	}
	if _, err := guests["host"].Run(ctx, fmt.Sprintf("farlog stream create %s --size 8MiB --wait 60s %s", daemonStream, c.control)); err != nil {
		return nil, err
	}
	// Ready to be drained means: the target serves the ring to other hosts, and the drain on one of them has it.
	_, err = guests["host"].Run(ctx, fmt.Sprintf("wait-for is-served %s %s", daemonStream, c.control))
	return c, err
}

// conclude waits until the drain has stored all, ends it and looks the records up.
func (c *crew) conclude(ctx context.Context) (proof, error) {
	central := c.guests["central"]
	if _, err := central.Run(ctx, fmt.Sprintf("wait-drained %s %d %s", daemonStream, c.ledger.lastLSN, c.control)); err != nil {
		return proof{}, err
	}
	drain := c.part("drain")
	if err := drain.Signal(syscall.SIGTERM); err != nil {
		return proof{}, err
	}
	if err := drain.Wait(ctx); err != nil {
		return proof{}, err
	}
	return c.bed.fetchAndProve(ctx, central, c.ledger)
}
