package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/farlog/farlog/testbed/vm"
)

// onWire is a machine with nothing but a network.
func onWire(name string) machine { return machine{name: name, isOnWire: true} }

// wireSmoke proves the ground that others stand on: that machines reach each other by RDMA, that the wire's faults are
// felt, and that RDMA survives those that it should survive. The programs are rdma-core's own.
func wireSmoke(ctx context.Context, b *bed) (string, error) {
	guests, err := b.bootAll(ctx, onWire("host"), onWire("target"), onWire("central"))
	if err != nil {
		return "", err
	}
	host, target := guests["host"], guests["target"]
	for _, pair := range [][2]string{{"host", "target"}, {"target", "central"}, {"central", "host"}} {
		if _, err := b.pingpong(ctx, guests[pair[0]], guests[pair[1]], 200); err != nil {
			return "", fmt.Errorf("%s and %s: %w", pair[0], pair[1], err)
		}
	}
	if err := b.rping(ctx, host, target); err != nil {
		return "", err
	}
	loss, err := b.feelLoss(ctx, host, target)
	if err != nil {
		return "", err
	}
	if err := b.feelCut(ctx, host, target); err != nil {
		return "", fmt.Errorf("cable cut: %w", err)
	}
	if err := b.feelDelay(ctx, host, target); err != nil {
		return "", err
	}
	if err := b.feelCarrier(ctx, host, target); err != nil {
		return "", err
	}
	return fmt.Sprintf("three pairs by verbs, rdma_cm, %s; the wire: %+v", loss, b.wire.Counters()), nil
}

// pingpong runs ibv_rc_pingpong between two guests and returns when both ends are content.
func (b *bed) pingpong(ctx context.Context, client, server *vm.Guest, rounds int) (time.Duration, error) {
	began := time.Now()
	asking, listening, err := b.pingpongEnds(ctx, client, server, rounds)
	if err != nil {
		return 0, err
	}
	err = asking.Wait(ctx)
	if err == nil {
		err = listening.Wait(ctx)
	}
	return time.Since(began), err
}

// errStalled is an exchange of which neither end came to its end in time; both were ended.
var errStalled = errors.New("the exchange stands still")

// pingpongFor is pingpong with a limit.
func (b *bed) pingpongFor(ctx context.Context, limit time.Duration, client, server *vm.Guest,
	rounds int,
) (time.Duration, error) {
	began := time.Now()
	asking, listening, err := b.pingpongEnds(ctx, client, server, rounds)
	if err != nil {
		return 0, err
	}
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for _, end := range []*vm.Process{asking, listening} {
		select {
		case <-end.Ended():
			if err := end.Wait(ctx); err != nil {
				return 0, err
			}
		case <-bounded.Done():
			for _, one := range []*vm.Process{asking, listening} {
				if err := one.Signal(syscall.SIGKILL); err != nil && !one.HasEnded() {
					return 0, err
				}
				select {
				case <-one.Ended():
				case <-ctx.Done():
					return 0, ctx.Err()
				}
			}
			return 0, errStalled
		}
	}
	return time.Since(began), nil
}

// pingpongEnds starts both ends.
func (b *bed) pingpongEnds(ctx context.Context, client, server *vm.Guest, rounds int) (asking, listening *vm.Process,
	err error,
) {
	command := fmt.Sprintf("ibv_rc_pingpong -d rxe0 -g 1 -m 4096 -s 4096 -n %d", rounds)
	if listening, err = b.start(server, "pingpong", "exec "+command); err != nil {
		return nil, nil, err
	}
	if _, err = server.Run(ctx, "wait-for is-listening 18515"); err != nil {
		return nil, nil, err
	}
	asking, err = b.start(client, "pingpong", "exec "+command+" "+addresses[server.Name])
	return asking, listening, err
}

// rping is a connection by rdma_cm.
func (b *bed) rping(ctx context.Context, client, server *vm.Guest) error {
	listening, err := b.start(server, "rping", "rping -s -C 20 -v")
	if err != nil {
		return err
	}
	if _, err := server.Run(ctx, "wait-for is-listening 7174 rdma"); err != nil {
		return err
	}
	if _, err := client.Run(ctx, "rping -c -C 20 -a "+addresses[server.Name]); err != nil {
		return err
	}
	return listening.Wait(ctx)
}

// lossTries and lossTime bound the exchanges under loss: SoftRoCE's own retransmission has been seen to stand still for
// good there, with both ends waiting (kernel 6.12; an exchange takes 5 to 15 s). One that finishes shows what this
// scenario is about; farlog's own scenarios bound themselves.
const (
	lossTries = 3
	lossTime  = 40 * time.Second
)

// feelLoss: 5 % loss during a long exchange. A reliable connection sends again; both ends must finish.
func (b *bed) feelLoss(ctx context.Context, client, server *vm.Guest) (string, error) {
	const rounds = 500
	port, err := b.port(client.Name)
	if err != nil {
		return "", err
	}
	port.SetFaults(vm.Faults{Loss: 0.05})
	var took time.Duration
	stalled := 0
	for ; stalled < lossTries; stalled++ {
		took, err = b.pingpongFor(ctx, lossTime, client, server, rounds)
		if !errors.Is(err, errStalled) {
			break
		}
	}
	if err != nil {
		return "", fmt.Errorf("at 5 %% loss, try %d of %d: %w", min(stalled+1, lossTries), lossTries, err)
	}
	port.SetFaults(vm.Faults{})
	lost := b.wire.Counters().Lost
	if lost == 0 {
		return "", fmt.Errorf("at 5 %% loss no frame was lost: %+v", b.wire.Counters())
	}
	return fmt.Sprintf("%d exchanges at 5 %% loss in %.1f s with %d frames lost, after %d that stood still", rounds,
		took.Seconds(), lost, stalled), nil
}

// cutTime is how long a cable stays cut.
const cutTime = 3 * time.Second

// feelCut: while the cable is cut nothing arrives and nothing ends; when it is whole again the exchange goes on where
// it was. This program asks for 7 retries, which SoftRoCE takes for retries without end: with 6 or fewer the end that
// has something under way gets an error.
func (b *bed) feelCut(ctx context.Context, client, server *vm.Guest) error {
	port, err := b.port(client.Name)
	if err != nil {
		return err
	}
	asking, listening, err := b.pingpongEnds(ctx, client, server, 2000)
	if err != nil {
		return err
	}
	// Neither end prints before it is done, since its output is no terminal.
	if _, err := client.Run(ctx, "wait-for has-qp RTS"); err != nil {
		return err
	}
	port.SetFaults(vm.Faults{Cut: true})
	select {
	case <-asking.Ended():
		return fmt.Errorf("the exchange ended while its cable was cut: %w", asking.Wait(ctx))
	case <-listening.Ended():
		return fmt.Errorf("the exchange ended while its cable was cut: %w", listening.Wait(ctx))
	case <-time.After(cutTime):
	}
	if b.wire.Counters().Cut == 0 {
		return fmt.Errorf("no frame met the cut: %+v", b.wire.Counters())
	}
	port.SetFaults(vm.Faults{})
	return errors.Join(asking.Wait(ctx), listening.Wait(ctx))
}

// feelDelay: 20 ms on a cable are 40 ms to and fro.
func (b *bed) feelDelay(ctx context.Context, client, server *vm.Guest) error {
	port, err := b.port(client.Name)
	if err != nil {
		return err
	}
	port.SetFaults(vm.Faults{Delay: 20 * time.Millisecond})
	defer port.SetFaults(vm.Faults{})
	output, err := client.Run(ctx, "ping -c 3 -i 0.2 -q "+addresses[server.Name])
	if err != nil {
		return err
	}
	_, times, _ := strings.Cut(output, " = ")
	least, _, _ := strings.Cut(times, "/")
	if ms, err := strconv.ParseFloat(least, 64); err != nil || ms < 40 {
		return fmt.Errorf("with 20 ms of delay in each direction a ping took %q: %w", output, err)
	}
	return nil
}

// feelCarrier: the link goes and comes; RDMA's port goes and comes with it.
func (b *bed) feelCarrier(ctx context.Context, client, server *vm.Guest) error {
	for _, step := range []struct {
		isUp  bool
		state string
	}{{false, "DOWN"}, {true, "ACTIVE"}} {
		if err := client.SetLink(ctx, step.isUp); err != nil {
			return err
		}
		if _, err := client.Run(ctx, "wait-for is-rxe "+step.state); err != nil {
			return err
		}
	}
	_, err := b.pingpong(ctx, client, server, 100)
	return err
}

// countingClock proves that under the counting clock a ratio of two times is one of the work, repeatably, however busy
// the machine is: twice the work takes twice the time, within a few percent.
func countingClock(ctx context.Context, b *bed) (string, error) {
	guest, err := b.boot(ctx, machine{name: "counting", isCounting: true})
	if err != nil {
		return "", err
	}
	measure := func(count int) (float64, error) {
		output, err := guest.Run(ctx, fmt.Sprintf("spin %d", count))
		if err != nil {
			return 0, err
		}
		return strconv.ParseFloat(strings.TrimSpace(output), 64)
	}
	// its programs are read from the disk once, and waiting is what this clock cannot count
	if _, err := measure(1); err != nil {
		return "", err
	}
	var ratios []string
	for range 3 {
		var took [3]float64 // of no work, which is starting and ending; of some; of twice as much
		for times := range took {
			if took[times], err = measure(times * 2_000_000); err != nil {
				return "", err
			}
		}
		ratio := (took[2] - took[0]) / (took[1] - took[0])
		ratios = append(ratios, fmt.Sprintf("%.3f", ratio))
		if ratio < 1.9 || ratio > 2.1 {
			return "", fmt.Errorf("twice the work took %.3f times as long by the guest's clock (%.0f ns)", ratio, took)
		}
	}
	return "twice the work takes " + strings.Join(ratios, ", ") + " times as long", guest.PowerOff(ctx)
}
