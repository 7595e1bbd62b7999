// Command agent runs inside a guest of the testbed and does what the runner asks over a virtio serial port: it starts
// commands, feeds them, signals them and sends back what they print. It is started by the guest's init and lives as
// long as the guest.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/farlog/farlog/testbed/talk"
)

const (
	chunkLen     = 32 << 10
	portTries    = 200
	portInterval = 50 * time.Millisecond

	standTries    = 10000
	standInterval = time.Millisecond
)

func main() {
	if err := serve(); err != nil {
		fmt.Fprintf(os.Stderr, "agent: %v\n", err)
		os.Exit(1)
	}
}

// openPort waits for the port: the device tells the names of its ports in its own time after it was found.
func openPort() (*os.File, error) {
	for tries := 0; ; tries++ {
		port, err := findPort()
		if err == nil || tries == portTries {
			return port, err
		}
		time.Sleep(portInterval)
	}
}

// findPort finds the port by its name; there is no udev here that would make a link for it.
func findPort() (*os.File, error) {
	names, err := filepath.Glob("/sys/class/virtio-ports/*/name")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		content, err := os.ReadFile(name)
		if err == nil && strings.TrimSpace(string(content)) == talk.PortName {
			return os.OpenFile(filepath.Join("/dev", filepath.Base(filepath.Dir(name))), os.O_RDWR, 0)
		}
	}
	return nil, fmt.Errorf("no virtio serial port is named %s; there are %d", talk.PortName, len(names))
}

type agent struct {
	mu       sync.Mutex // of encoder
	encoder  *json.Encoder
	commands map[int]*command // the loop's own
}

func serve() error {
	port, err := openPort()
	if err != nil {
		return err
	}
	a := &agent{encoder: json.NewEncoder(port), commands: map[int]*command{}}
	a.say(talk.Message{Op: talk.OpHello})
	decoder := json.NewDecoder(bufio.NewReaderSize(port, chunkLen))
	for {
		var m talk.Message
		if err := decoder.Decode(&m); err != nil {
			return fmt.Errorf("read from the runner: %w", err)
		}
		a.do(m)
	}
}

func (a *agent) say(m talk.Message) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.encoder.Encode(m); err != nil {
		fmt.Fprintf(os.Stderr, "agent: write to the runner: %v\n", err)
		os.Exit(1)
	}
}

func (a *agent) do(m talk.Message) {
	c := a.commands[m.ID]
	switch {
	case m.Op == talk.OpStart:
		a.start(m)
	case c == nil:
		// It could not be started, which the runner has been told.
	case m.Op == talk.OpInput:
		c.input.put(m.Data)
	case m.Op == talk.OpClose:
		c.input.close()
	case m.Op == talk.OpSignal:
		_ = syscall.Kill(-c.process.Pid, syscall.Signal(m.Code)) // fails when all of them have ended
		for tries := 0; syscall.Signal(m.Code) == syscall.SIGSTOP && !stands(c.process.Pid) &&
			tries < standTries; tries++ {
			time.Sleep(standInterval)
		}
		a.say(talk.Message{Op: talk.OpTaken, ID: m.ID})
	}
}

// stands reports whether no thread of a process runs any more: a signal that stops it is sent at once, and takes its
// time with each.
func stands(pid int) bool {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, file := range files {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // a thread that ended
		}
		// The state follows the name, which is in parentheses and may hold any byte.
		if rest := stat[bytes.LastIndexByte(stat, ')')+1:]; len(rest) < 2 || rest[1] != 'T' && rest[1] != 'Z' {
			return false
		}
	}
	return err == nil
}

type command struct {
	process *os.Process
	input   *queue
}

func (a *agent) start(m talk.Message) {
	cmd := exec.Command(m.Argv[0], m.Argv[1:]...)
	cmd.Env = append(os.Environ(), m.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Stdout = &output{agent: a, op: talk.OpOutput, id: m.ID}
	cmd.Stderr = &output{agent: a, op: talk.OpErrors, id: m.ID}
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		a.say(talk.Message{Op: talk.OpExit, ID: m.ID, Code: 127, Text: err.Error()})
		return
	}
	c := &command{process: cmd.Process, input: newQueue()}
	a.commands[m.ID] = c
	go c.input.copyTo(stdin)
	go func() {
		err := cmd.Wait()
		a.say(talk.Message{Op: talk.OpExit, ID: m.ID, Code: exitCode(cmd.ProcessState), Text: text(err)})
	}()
}

func exitCode(state *os.ProcessState) int {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return state.ExitCode()
}

// text keeps what Wait says beside the exit code.
func text(err error) string {
	var exit *exec.ExitError
	if err == nil || errors.As(err, &exit) {
		return ""
	}
	return err.Error()
}

type output struct {
	agent *agent
	op    string
	id    int
}

func (o *output) Write(data []byte) (int, error) {
	o.agent.say(talk.Message{Op: o.op, ID: o.id, Data: data})
	return len(data), nil
}

// queue is a command's standard input on its way. It has no bound: a command that is stopped must not stop the agent,
// and what the runner feeds at once is a file of its own.
type queue struct {
	mu       sync.Mutex
	changed  *sync.Cond
	chunks   [][]byte
	isClosed bool
}

func newQueue() *queue {
	q := &queue{}
	q.changed = sync.NewCond(&q.mu)
	return q
}

func (q *queue) put(data []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.chunks = append(q.chunks, data)
	q.changed.Signal()
}

func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.isClosed = true
	q.changed.Signal()
}

// next waits for a chunk; nil at the end.
func (q *queue) next() []byte {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.chunks) == 0 && !q.isClosed {
		q.changed.Wait()
	}
	if len(q.chunks) == 0 {
		return nil
	}
	chunk := q.chunks[0]
	q.chunks = q.chunks[1:]
	return chunk
}

func (q *queue) copyTo(stdin io.WriteCloser) {
	defer stdin.Close()
	for chunk := q.next(); chunk != nil; chunk = q.next() {
		if _, err := stdin.Write(chunk); err != nil {
			return // the command has closed it, or ended
		}
	}
}
