package vm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"

	"github.com/farlog/farlog/testbed/talk"
)

const inputChunkLen = 32 << 10

// agent is the runner's end of the line to a guest's agent.
type agent struct {
	conn    net.Conn
	hello   chan struct{}
	gone    chan struct{} // closed when the line is
	writing sync.Mutex    // of encoder

	mu        sync.Mutex
	processes map[int]*Process
	lastID    int
	encoder   *json.Encoder
}

func newAgent(conn net.Conn) *agent {
	a := &agent{
		conn: conn, hello: make(chan struct{}), gone: make(chan struct{}), processes: map[int]*Process{},
		encoder: json.NewEncoder(conn),
	}
	go a.listen()
	return a
}

func (a *agent) waitHello(ctx context.Context, exited <-chan struct{}) error {
	select {
	case <-a.hello:
		return nil
	case <-a.gone:
		return ErrEnded
	case <-exited:
		return ErrEnded
	case <-ctx.Done():
		return fmt.Errorf("no agent spoke: %w", ctx.Err())
	}
}

func (a *agent) close() {
	a.conn.Close()
	<-a.gone
}

func (a *agent) listen() {
	defer a.hangUp()
	decoder := json.NewDecoder(a.conn)
	for {
		var m talk.Message
		if decoder.Decode(&m) != nil {
			return // killed, powered off, or closed by us
		}
		if m.Op == talk.OpHello {
			close(a.hello)
			continue
		}
		a.mu.Lock()
		p := a.processes[m.ID]
		a.mu.Unlock()
		if p != nil {
			p.hear(m)
		}
	}
}

// hangUp tells everybody who waits for a command that it will never be heard of again.
func (a *agent) hangUp() {
	a.mu.Lock()
	defer a.mu.Unlock()
	close(a.gone)
	for _, p := range a.processes {
		p.end(-1, ErrEnded)
	}
}

func (a *agent) say(m talk.Message) error {
	a.writing.Lock()
	defer a.writing.Unlock()
	select {
	case <-a.gone:
		return ErrEnded
	default:
		return a.encoder.Encode(m)
	}
}

// Process is a command in a guest.
type Process struct {
	guest string
	what  string
	agent *agent
	id    int
	done  chan struct{}
	taken chan struct{} // a signal

	mu       sync.Mutex
	changed  chan struct{} // closed and made again at each output
	stdout   []byte
	readLen  int // of stdout, by ReadLine
	stderr   []byte
	code     int
	err      error
	hasEnded bool
}

// Start runs a shell script in the guest and returns at once.
func (g *Guest) Start(script string, env ...string) (*Process, error) {
	a := g.agent
	a.mu.Lock()
	a.lastID++
	p := &Process{
		guest: g.Name, what: script, agent: a, id: a.lastID, done: make(chan struct{}),
		taken: make(chan struct{}, 1), changed: make(chan struct{}),
	}
	a.processes[p.id] = p
	a.mu.Unlock()
	if err := a.say(talk.Message{
		Op: talk.OpStart, ID: p.id, Argv: []string{"/bin/sh", "-c", script},
		Env: env,
	}); err != nil {
		return nil, fmt.Errorf("%s: %s: %w", g.Name, script, err)
	}
	return p, nil
}

// Run runs a shell script in the guest to its end and gives its standard output. An exit code other than 0 is an error,
// with what it printed last.
func (g *Guest) Run(ctx context.Context, script string, env ...string) (string, error) {
	p, err := g.Start(script, env...)
	if err != nil {
		return "", err
	}
	if err := p.CloseInput(); err != nil {
		return "", err
	}
	err = p.Wait(ctx)
	return p.Stdout(), err
}

func (p *Process) hear(m talk.Message) {
	if m.Op == talk.OpTaken {
		p.taken <- struct{}{}
		return
	}
	p.mu.Lock()
	switch m.Op {
	case talk.OpOutput:
		p.stdout = append(p.stdout, m.Data...)
	case talk.OpErrors:
		p.stderr = append(p.stderr, m.Data...)
	}
	close(p.changed)
	p.changed = make(chan struct{})
	p.mu.Unlock()
	if m.Op == talk.OpExit {
		var err error
		if m.Text != "" {
			err = errors.New(m.Text)
		}
		p.end(m.Code, err)
	}
}

func (p *Process) end(code int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hasEnded {
		return
	}
	p.hasEnded, p.code, p.err = true, code, err
	close(p.done)
}

// ExitError is how a command ended that did not end well.
type ExitError struct {
	Guest, What string
	Code        int
	LastWords   string
}

func (e *ExitError) Error() string {
	return fmt.Sprintf("%s: %s: exit code %d: %s", e.Guest, firstLine(e.What), e.Code, e.LastWords)
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}

// Wait waits for the command's end.
func (p *Process) Wait(ctx context.Context) error {
	select {
	case <-p.done:
	case <-ctx.Done():
		return fmt.Errorf("%s: %s: has not ended: %w: %s", p.guest, firstLine(p.what), context.Cause(ctx),
			p.lastWords())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.err != nil:
		return fmt.Errorf("%s: %s: %w", p.guest, firstLine(p.what), p.err)
	case p.code != 0:
		return &ExitError{p.guest, p.what, p.code, p.lastWordsLocked()}
	default:
		return nil
	}
}

func (p *Process) lastWords() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lastWordsLocked()
}

// lastWordsLocked is the last line of standard error, or else of standard output.
func (p *Process) lastWordsLocked() string {
	for _, output := range [][]byte{p.stderr, p.stdout} {
		lines := bytes.Split(bytes.TrimSpace(output), []byte("\n"))
		if last := bytes.TrimSpace(lines[len(lines)-1]); len(last) > 0 {
			return string(last)
		}
	}
	return "it printed nothing"
}

// Ended is closed when the command has ended.
func (p *Process) Ended() <-chan struct{} { return p.done }

// HasEnded reports whether the command has ended.
func (p *Process) HasEnded() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Stdout is what it printed so far.
func (p *Process) Stdout() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return string(p.stdout)
}

// Stderr is what it printed there so far.
func (p *Process) Stderr() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return string(p.stderr)
}

// WaitOutput waits until what it has printed on standard output, or else on standard error, satisfies is.
func (p *Process) WaitOutput(ctx context.Context, what string, is func(stdout, stderr string) bool) error {
	for {
		p.mu.Lock()
		stdout, stderr, changed := string(p.stdout), string(p.stderr), p.changed
		p.mu.Unlock()
		if is(stdout, stderr) {
			return nil
		}
		select {
		case <-changed:
		case <-p.done:
			// Its last output came before its end.
			if is(p.Stdout(), p.Stderr()) {
				return nil
			}
			return fmt.Errorf("%s: %s: ended before %s: %s", p.guest, firstLine(p.what), what, p.lastWords())
		case <-ctx.Done():
			return fmt.Errorf("%s: %s: waiting for %s: %w: %s", p.guest, firstLine(p.what), what, context.Cause(ctx),
				p.lastWords())
		}
	}
}

// ReadLine gives the next line of standard output that was not read yet, without its newline. After the last: io.EOF.
// One reader.
func (p *Process) ReadLine(ctx context.Context) (string, error) {
	for {
		p.mu.Lock()
		changed, hasEnded := p.changed, p.hasEnded
		if length := bytes.IndexByte(p.stdout[p.readLen:], '\n'); length >= 0 {
			line := string(p.stdout[p.readLen : p.readLen+length])
			p.readLen += length + 1
			p.mu.Unlock()
			return line, nil
		}
		p.mu.Unlock()
		if hasEnded {
			return "", io.EOF
		}
		select {
		case <-changed:
		case <-p.done:
		case <-ctx.Done():
			return "", fmt.Errorf("%s: %s: waiting for its output: %w: %s", p.guest, firstLine(p.what),
				context.Cause(ctx), p.lastWords())
		}
	}
}

// WaitText waits until it has printed text, on standard output or standard error.
func (p *Process) WaitText(ctx context.Context, text string) error {
	return p.WaitOutput(ctx, fmt.Sprintf("%q", text), func(stdout, stderr string) bool {
		return strings.Contains(stdout, text) || strings.Contains(stderr, text)
	})
}

// Write feeds its standard input. What it has not read yet is kept in the guest.
func (p *Process) Write(data []byte) (int, error) {
	for written := 0; written < len(data); {
		chunk := data[written:min(len(data), written+inputChunkLen)]
		if err := p.agent.say(talk.Message{Op: talk.OpInput, ID: p.id, Data: chunk}); err != nil {
			return written, err
		}
		written += len(chunk)
	}
	return len(data), nil
}

// CloseInput ends its standard input.
func (p *Process) CloseInput() error {
	return p.agent.say(talk.Message{Op: talk.OpClose, ID: p.id})
}

// Signal sends a signal to the command and to all that it has started, and returns when it has been sent. After SIGSTOP
// the command stands: nothing that happens in another guest from then on finds it at work.
func (p *Process) Signal(signal syscall.Signal) error {
	if err := p.agent.say(talk.Message{Op: talk.OpSignal, ID: p.id, Code: int(signal)}); err != nil {
		return err
	}
	select {
	case <-p.taken:
	case <-p.done:
	}
	return nil
}
