package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

const (
	streamOfNamespace = "farlog://desk/orders"
	streamRing        = 8 << 20
	streamTries       = 5 // openings of a takeover: an emulated machine may need longer for one than an opening waits
)

// nvmeStreams proves that a stream in a namespace needs nothing but its declaration, by the daemons as they are
// installed: a program on the trading host opens it by name, and appends 100,000 records over rdma while the target,
// the drain, the agent and the control plane are killed and started again, and 100,000 over tcp. Then the writer is
// stopped, and another host takes the stream over: only when it asks for that, and only when the target has evicted
// the first one's host, of which nothing lands when it goes on. The drain beside the target has every record.
func nvmeStreams(ctx context.Context, b *bed) (string, error) {
	guests, err := b.bootAll(ctx, nvmeTarget, nvmeHost, nvmeSecond)
	if err != nil {
		return "", err
	}
	records, err := newRecords("NS", 2*nvmeRecords+nvmeTakeoverRecords)
	if err != nil {
		return "", err
	}
	c := b.newCrew(guests, "target", "target")
	c.duties[1].command = fmt.Sprintf("farlogd target %s --data-dir /var/target --host-name target --metrics-listen %s",
		c.control, targetMetrics)
	for _, guest := range []string{"host", "second"} {
		c.duties = append(c.duties, duty{"agent-" + guest, guest, fmt.Sprintf("farlogd host %s --data-dir /var/host "+
			"--host-name %s --metrics-listen off --host-nvme-keys /run/keys", c.control, guest)})
	}
	s := &nvmeRivals{bed: b, guests: guests, ledger: newLedger(records)}
	if err := c.beginStreams(ctx); err != nil {
		return "", err
	}
	var told []string
	for _, one := range []struct {
		transport string
		kills     []string
	}{{"rdma", []string{"target", "drain-target", "agent-host", "control"}}, {"tcp", nil}} {
		text, err := c.tradeStream(ctx, s.ledger, one.transport, one.kills)
		if err != nil {
			return "", fmt.Errorf("over %s: %w: %s", one.transport, err, c.part("target").Stderr())
		}
		told = append(told, text)
	}
	took, err := c.takeStream(ctx, s)
	if err != nil {
		return "", fmt.Errorf("taken over: %w: %s", err, c.part("target").Stderr())
	}
	proved, err := c.drained(ctx, daemonStream, "target", s.ledger)
	if err != nil {
		return "", err
	}
	if proved.others != 0 {
		return "", fmt.Errorf("%d records are in the store that nobody was told of: a former writer's landed",
			proved.others)
	}
	return fmt.Sprintf("%s; %s; %s", proved, strings.Join(told, "; "), took), nil
}

// beginStreams starts the daemons, declares namespace and stream in one file, and brings the hosts their keys.
func (c *crew) beginStreams(ctx context.Context) error {
	if err := c.prepareNVMe(ctx, "host", "second"); err != nil {
		return err
	}
	for _, name := range []string{"control", "target", "drain-target", "agent-host", "agent-second"} {
		if err := c.start(ctx, name); err != nil {
			return err
		}
	}
	if err := c.declareStream(ctx, "rdma", "tcp"); err != nil {
		return err
	}
	if err := c.giveAgentsKeys(ctx, "host", "second"); err != nil {
		return err
	}
	_, err := c.guests["host"].Run(ctx, fmt.Sprintf("wait-for is-served %s %s", daemonStream, c.control))
	return err
}

// declareStream applies a fabric with the namespace at these ports, and the stream in it.
func (c *crew) declareStream(ctx context.Context, transports ...string) error {
	return c.applyFabric(ctx, fmt.Sprintf(`targets:
- host: target
  namespaces:
  - name: desk
    device: %s
    subsystem: %s
    hosts: [{nqn: %s, host: host}, {nqn: %s, host: second}]
    evict: true
  ports: %s
streams:
- {name: %s, kind: nvmeof, size: %d}
`, nvmeDevice, nvmeSubsystem, nvmeHostNQN("host"), nvmeHostNQN("second"), nvmePorts(transports), daemonStream,
		streamRing))
}

// tradeStream appends 100,000 records by a transport, by a program that knows the stream's name alone. Each of the
// daemons that are named is killed, and started again after some more records.
func (c *crew) tradeStream(ctx context.Context, l *ledger, transport string, kills []string) (string, error) {
	if transport == "tcp" {
		if err := c.declareStream(ctx, "tcp"); err != nil {
			return "", err
		}
	}
	// The other host may have come by tcp, which is asked for where rdma takes an emulated machine too long.
	for host, by := range map[string]string{"host": transport, "second": "[a-z]*"} {
		if err := c.awaitListed(ctx, host, by); err != nil {
			return "", fmt.Errorf("%w: %s", err, c.part("agent-"+host).Stderr())
		}
	}
	writer, err := c.bed.start(c.guests["host"], "append-"+transport, fmt.Sprintf("exec farlog append --ring %s "+
		"--format length-prefixed --ack text --window %d --deadline %s", streamOfNamespace, nvmeWindow, nvmeDeadline))
	if err != nil {
		return "", err
	}
	from, began := l.next, time.Now()
	for batch := 0; l.next < from+nvmeRecords; batch++ {
		killed := ""
		if at := batch - 2; at >= 0 && at%5 == 0 && at/5 < len(kills) {
			killed = kills[at/5]
			if _, err := c.kill(ctx, killed); err != nil {
				return "", err
			}
		}
		if err := l.give(ctx, writer, min(nvmeBatch, from+nvmeRecords-l.next)); err != nil {
			return "", fmt.Errorf("%w: %s", err, writer.Stderr())
		}
		if killed != "" {
			if err := c.start(ctx, killed); err != nil {
				return "", err
			}
			c.bed.say("killed %s, and started it again", killed)
		}
	}
	took := time.Since(began)
	if err := finish(ctx, writer); err != nil {
		return "", err
	}
	c.bed.say("appended over %s in %.0f s", transport, took.Seconds())
	if l.lastLSN < streamRing {
		return "", fmt.Errorf("the writer came to lsn %d: it did not go round a ring of %d", l.lastLSN, streamRing)
	}
	return fmt.Sprintf("over %s in %.0f s, %d daemons killed", transport, took.Seconds(), len(kills)), nil
}

// takeStream: host writes and is stopped, second takes the stream over, host goes on and is out.
func (c *crew) takeStream(ctx context.Context, s *nvmeRivals) (string, error) {
	if err := s.openStream(ctx, "host", ""); err != nil {
		return "", err
	}
	former, err := s.stopped(ctx, "host", "")
	if err != nil {
		return "", err
	}
	text, err := c.guests["second"].Run(ctx, "echo order | farlog append --ring "+streamOfNamespace+" 2>&1")
	if err == nil || !strings.Contains(text+err.Error(), "held by a living writer") {
		return "", fmt.Errorf(
			"a writer of the other host was let on beside one that may still write: %s: %w",
			text,
			err,
		)
	}
	if strings.Contains(c.part("target").Stderr(), "nvmet host is evicted") {
		return "", errors.New("the target has evicted a host that nobody took the stream from")
	}
	began := time.Now()
	for try := 1; ; try++ {
		if err = s.openStream(ctx, "second", "?takeover=yes"); err == nil {
			break
		}
		if try == streamTries || ctx.Err() != nil {
			return "", err
		}
		c.bed.say("taking over: %s", err)
	}
	if err := c.part("target").WaitText(ctx, "nvmet host is evicted"); err != nil {
		return "", err
	}
	took := time.Since(began)
	if err := s.goOnOut(ctx, former); err != nil {
		return "", err
	}
	if err := s.ledger.give(ctx, s.writer, nvmeTakeoverTurn); err != nil {
		return "", err
	}
	return fmt.Sprintf("taken over in %s", took.Round(time.Millisecond)), finish(ctx, s.writer)
}

// openStream lets a guest open the stream by its name, and append.
func (s *nvmeRivals) openStream(ctx context.Context, name, options string) error {
	writer, err := s.bed.start(s.guests[name], "write-"+name,
		fmt.Sprintf("exec far write -deadline %s -patience 1s '%s'", nvmeTakeoverDeadline, streamOfNamespace+options))
	if err != nil {
		return err
	}
	if err := s.ledger.give(ctx, writer, nvmeTakeoverTurn); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, writer.Stderr())
	}
	s.writer = writer
	return nil
}
