// Package signing signs by a program of the operator: it has the key, or asks a hardware security module that has.
package signing

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/farlog/farlog/pkg/store"
)

// Bounds of a signing command.
const (
	TimeoutDefault = 5 * time.Second
	atOnceMax      = 4               // programs, however many streams want a signature
	waitDelay      = 2 * time.Second // for a program that was killed to end
	outputLenMax   = 4 << 10         // of what a program may write
)

// Command signs by a program: it gets the bytes to sign on its standard input, and answers the Ed25519 signature, 64
// bytes, on its standard output. It implements store.Signer.
type Command struct {
	line    string
	public  ed25519.PublicKey
	timeout time.Duration
	free    chan struct{} // a place for each program that may run
	run     func(*exec.Cmd) error
}

// NewCommand makes a signer of a line for /bin/sh. public is the key that checks what it signs; nil: that of the store.
// timeout 0 = 5 s.
func NewCommand(line string, public ed25519.PublicKey, timeout time.Duration) *Command {
	return &Command{
		line: line, public: public, timeout: cmp.Or(timeout, TimeoutDefault), free: make(chan struct{}, atOnceMax),
		run: (*exec.Cmd).Run,
	}
}

// OpenCommand is NewCommand with the public key of a PEM file; publicFile "": that of the store.
func OpenCommand(line, publicFile string) (*Command, error) {
	if publicFile == "" {
		return NewCommand(line, nil, 0), nil
	}
	raw, err := os.ReadFile(publicFile)
	if err != nil {
		return nil, err
	}
	public, err := store.ParsePublicKey(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", publicFile, err)
	}
	return NewCommand(line, public, 0), nil
}

// Public is the key that checks the signatures; nil: that of the store.
func (c *Command) Public() ed25519.PublicKey { return c.public }

// Sign runs the program. It returns within the timeout and waitDelay, whatever the program does. A program that cannot
// be killed, as one that waits for a device, keeps its place of atOnceMax until it ends.
func (c *Command) Sign(statement []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), c.timeout)
	limit := time.NewTimer(c.timeout + waitDelay)
	defer limit.Stop()
	if !c.takePlace(ctx) {
		cancel()
		return nil, fmt.Errorf("signing command %q: %d of it still run after %s", c.line, atOnceMax, c.timeout)
	}
	done := make(chan outcome, 1)
	go func() {
		defer cancel()
		defer func() { <-c.free }()
		done <- c.execute(ctx, bytes.Clone(statement))
	}()
	select {
	case o := <-done:
		return o.signature, o.err
	case <-limit.C:
		return nil, fmt.Errorf("signing command %q: no answer within %s, and it could not be killed: look for a "+
			"device or a file system that does not answer", c.line, c.timeout)
	}
}

// takePlace waits for a place. One that is free is taken, however late the caller is: select alone would choose.
func (c *Command) takePlace(ctx context.Context) bool {
	select {
	case c.free <- struct{}{}:
		return true
	default:
	}
	select {
	case c.free <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// outcome is what came of one program.
type outcome struct {
	signature []byte
	err       error
}

// execute runs the program, and waits until it has ended.
func (c *Command) execute(ctx context.Context, statement []byte) outcome {
	var answer, said limited
	command := exec.CommandContext(ctx, "/bin/sh", "-c", c.line)
	command.Stdin, command.Stdout, command.Stderr = bytes.NewReader(statement), &answer, &said
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	command.WaitDelay = waitDelay / 2
	err := c.run(command)
	switch {
	case ctx.Err() != nil:
		err = fmt.Errorf("signing command %q: no answer within %s%s", c.line, c.timeout, said.lastLine())
	case errors.Is(err, syscall.EPIPE) && len(answer.bytes) == ed25519.SignatureSize:
		err = nil // It has signed, and has not read its input; what it signed is checked.
	case err != nil:
		err = fmt.Errorf("signing command %q: %w%s", c.line, err, said.lastLine())
	case len(answer.bytes) != ed25519.SignatureSize:
		err = fmt.Errorf("signing command %q: it answered %d bytes, expected the %d of an Ed25519 signature%s",
			c.line, answer.length, ed25519.SignatureSize, said.lastLine())
	}
	return outcome{answer.bytes, err}
}

// limited keeps the first bytes that a program writes, and counts all.
type limited struct {
	bytes  []byte
	length int
}

func (l *limited) Write(p []byte) (int, error) {
	l.length += len(p)
	l.bytes = append(l.bytes, p[:min(len(p), outputLenMax-len(l.bytes))]...)
	return len(p), nil
}

// lastLine is what a program has said of its failure.
func (l *limited) lastLine() string {
	lines := strings.Split(strings.TrimSpace(string(l.bytes)), "\n")
	if last := lines[len(lines)-1]; last != "" {
		return fmt.Sprintf(": %q", last)
	}
	return ""
}
