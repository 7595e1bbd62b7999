package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/farlog/farlog/testbed/vm"
)

const (
	farPort = 7471
	devdax  = "mem:/dev/dax0.0"
)

// farTarget is a target's process in a guest, which does what it is told.
type farTarget struct {
	process *vm.Process
}

// startTarget listens on the guest's address.
func (b *bed) startTarget(ctx context.Context, g *vm.Guest) (*farTarget, error) {
	return b.startTargetOf(ctx, g, "far")
}

// startTargetOf starts the target of a program: far, or far-fault, which can pause revocations.
func (b *bed) startTargetOf(ctx context.Context, g *vm.Guest, program string) (*farTarget, error) {
	p, err := b.start(g, "target", fmt.Sprintf("exec %s target verbs://%s:%d", program, addresses[g.Name], farPort))
	if err != nil {
		return nil, err
	}
	line, err := p.ReadLine(ctx)
	if errors.Is(err, io.EOF) {
		err = p.Wait(ctx)
	}
	if err != nil || !strings.HasPrefix(line, "listening ") {
		return nil, fmt.Errorf("the target said %q: %w", line, err)
	}
	return &farTarget{p}, nil
}

// say gives one command and returns the answer behind "ok". What the target refuses is an error with its text.
func (t *farTarget) say(ctx context.Context, format string, args ...any) (string, error) {
	line := fmt.Sprintf(format, args...)
	if _, err := fmt.Fprintln(t.process, line); err != nil {
		return "", err
	}
	answer, err := t.process.ReadLine(ctx)
	if err != nil {
		return "", fmt.Errorf("target: %s: %w", line, err)
	}
	verdict, rest, _ := strings.Cut(answer, " ")
	if verdict != "ok" {
		return "", fmt.Errorf("target: %s: %s", line, rest)
	}
	return strings.TrimSpace(rest), nil
}

// count gives the target's counters of a ring.
func (t *farTarget) count(ctx context.Context, ring string) (map[string]int, error) {
	answer, err := t.say(ctx, "count %s", ring)
	if err != nil {
		return nil, err
	}
	counters := map[string]int{}
	for _, field := range strings.Fields(answer) {
		name, value, _ := strings.Cut(field, "=")
		if counters[name], err = strconv.Atoi(value); err != nil {
			return nil, fmt.Errorf("counter %q: %w", field, err)
		}
	}
	return counters, nil
}

// stop ends the target in order.
func (t *farTarget) stop(ctx context.Context) error {
	if err := t.process.CloseInput(); err != nil {
		return err
	}
	return t.process.Wait(ctx)
}

// grant is who may write.
type grant struct {
	token string
	epoch int
}

func (b *bed) newGrant(epoch int) grant {
	token := make([]byte, 16)
	for i := range token {
		token[i] = byte(1 + b.draw(255))
	}
	b.hide(token)
	return grant{hex.EncodeToString(token), epoch}
}

// serveDevdax starts a target whose NVDIMM is the ring "orders", for whoever has the grants.
func (b *bed) serveDevdax(ctx context.Context, g *vm.Guest, isNew bool, grants ...grant) (*farTarget, error) {
	setUp := "dax-up"
	if isNew {
		setUp = "dax-up && farlog ring format " + devdax + " --stream desk/orders"
	}
	if _, err := g.Run(ctx, setUp); err != nil {
		return nil, err
	}
	t, err := b.startTarget(ctx, g)
	if err != nil {
		return nil, err
	}
	if _, err := t.say(ctx, "serve orders %s desk", devdax); err != nil {
		return nil, err
	}
	for _, each := range grants {
		if _, err := t.say(ctx, "grant orders %s writer %d", each.token, each.epoch); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// writeFar starts a writer in a guest to ring "orders" of the target guest, and returns once it is open. options follow
// the URI: "?flush=...".
func (b *bed) writeFar(ctx context.Context, g *vm.Guest, by grant, options, flags string) (*vm.Process, error) {
	uri := fmt.Sprintf("verbs://%s:%d/orders%s", addresses["target"], farPort, options)
	p, err := b.start(g, "write", fmt.Sprintf("exec far write -token %s -epoch %d %s '%s'", by.token, by.epoch, flags,
		uri))
	if err != nil {
		return nil, err
	}
	return p, p.WaitText(ctx, "recovered_tail=")
}

func (b *bed) targetMemory() string { return filepath.Join(b.dir, "target.nvdimm") }

// finish ends a writer in order.
func finish(ctx context.Context, writer *vm.Process) error {
	if err := writer.CloseInput(); err != nil {
		return err
	}
	return writer.Wait(ctx)
}
