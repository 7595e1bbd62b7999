package testenv

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Timeout bounds every wait. It is never what a test measures.
const Timeout = 30 * time.Second

// Process is a program that runs. Its output is kept and shown when the test fails.
type Process struct {
	Name string

	tb     testing.TB
	cmd    *exec.Cmd
	log    *logBuffer
	exited chan struct{}
	err    error
}

// logBuffer keeps the last part of what a process says.
type logBuffer struct {
	mu   sync.Mutex
	text []byte
}

const logLenMax = 64 << 10

func (l *logBuffer) Write(raw []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, raw...)
	if len(l.text) > logLenMax {
		l.text = bytes.Clone(l.text[len(l.text)-logLenMax/2:])
	}
	return len(raw), nil
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}

// Start runs a program of the tree. stdin and stdout may be nil; without stdout what it prints goes into the log. When
// the test ends it is killed.
func Start(tb testing.TB, stdin io.Reader, stdout io.Writer, program string, args ...string) *Process {
	tb.Helper()
	return StartUnder(tb, nil, stdin, stdout, program, args...)
}

// StartUnder is Start by way of a command that becomes the program, such as ip netns exec NAME.
func StartUnder(tb testing.TB, under []string, stdin io.Reader, stdout io.Writer, program string, args ...string,
) *Process {
	tb.Helper()
	line := append(append(slices.Clone(under), Program(tb, program)), args...)
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Stdin, cmd.Stdout = stdin, stdout
	p := startCommand(tb, cmd)
	p.Name = program
	return p
}

// StartForeign runs a program that is none of the tree's two, by its path, with these variables added to its
// environment.
func StartForeign(tb testing.TB, stdout io.Writer, environ []string, path string, args ...string) *Process {
	tb.Helper()
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Env = stdout, append(os.Environ(), environ...)
	return startCommand(tb, cmd)
}

// startCommand starts a program whose output, as far as nobody else takes it, is kept.
func startCommand(tb testing.TB, cmd *exec.Cmd) *Process {
	tb.Helper()
	p := &Process{Name: filepath.Base(cmd.Path), tb: tb, cmd: cmd, log: &logBuffer{}, exited: make(chan struct{})}
	cmd.Stderr = p.log
	if cmd.Stdout == nil {
		cmd.Stdout = p.log
	}
	if err := cmd.Start(); err != nil {
		tb.Fatalf("start %s: %v", cmd.Path, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.exited)
	}()
	tb.Cleanup(func() {
		p.Kill()
		if tb.Failed() {
			tb.Logf("%s said:\n%s", cmd, p.log)
		}
	})
	return p
}

// Kill sends SIGKILL to this process and waits for its end. Killing one that has ended does nothing.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// Stop sends SIGTERM and expects an orderly end.
func (p *Process) Stop() {
	p.tb.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	if err := p.Wait(); err != nil {
		p.tb.Errorf("%s after SIGTERM: %v", p.Name, err)
	}
}

// Wait waits for the end of the process and gives its failure.
func (p *Process) Wait() error {
	select {
	case <-p.exited:
		return p.err
	case <-time.After(Timeout):
		p.Kill()
		return fmt.Errorf("%s did not end within %s", p.Name, Timeout)
	}
}

// IsKilled reports whether a signal ended the process.
func (p *Process) IsKilled() bool {
	<-p.exited
	return p.cmd.ProcessState.ExitCode() == -1
}

// Signal sends a signal to this process.
func (p *Process) Signal(signal syscall.Signal) {
	p.tb.Helper()
	if err := p.cmd.Process.Signal(signal); err != nil {
		p.tb.Errorf("signal %s to %s: %v", signal, p.Name, err)
	}
}

// Pause stops this process (SIGSTOP) and returns when it does stand: the signal's sender goes on while threads still
// run.
func (p *Process) Pause() {
	p.tb.Helper()
	p.Signal(syscall.SIGSTOP)
	Until(p.tb, p.Name+" stands", func() (bool, error) {
		files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.PID()))
		for _, file := range files {
			stat, err := os.ReadFile(file)
			if err != nil {
				continue // a thread that ended
			}
			// The state follows the name, which is in parentheses and may hold any byte.
			if rest := stat[bytes.LastIndexByte(stat, ')')+1:]; len(rest) < 2 || rest[1] != 'T' {
				return false, nil
			}
		}
		return len(files) > 0, err
	})
}

// HasEnded reports whether the process is gone.
func (p *Process) HasEnded() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// PID is the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Log is what the process said.
func (p *Process) Log() string { return p.log.String() }

// Ready is what a daemon writes when it is ready.
type Ready struct {
	Control string `json:"control"`
	Metrics string `json:"metrics"`
}

// StartDaemon runs farlogd and waits for its ready file, which lies in dir.
func StartDaemon(tb testing.TB, dir, role string, args ...string) (*Process, Ready) {
	tb.Helper()
	return StartDaemonUnder(tb, nil, dir, role, args...)
}

// StartDaemonUnder is StartDaemon by way of a command that becomes farlogd.
func StartDaemonUnder(tb testing.TB, under []string, dir, role string, args ...string) (*Process, Ready) {
	tb.Helper()
	path := filepath.Join(dir, role+".ready")
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		tb.Fatal(err)
	}
	args = append([]string{role, "--ready-file", path}, args...)
	p := StartUnder(tb, under, nil, nil, "farlogd", args...)
	var ready Ready
	Until(tb, role+" is ready", func() (bool, error) {
		if p.HasEnded() {
			return false, fmt.Errorf("it ended: %v\n%s", p.err, p.Log())
		}
		raw, err := os.ReadFile(path)
		return err == nil && json.Unmarshal(raw, &ready) == nil, nil
	})
	return p, ready
}

// Run runs a program to its end and gives its output and exit code.
func Run(tb testing.TB, program string, args ...string) (stdout, stderr string, code int) {
	tb.Helper()
	return RunUnder(tb, nil, program, args...)
}

// RunUnder is Run by way of a command that becomes the program.
func RunUnder(tb testing.TB, under []string, program string, args ...string) (stdout, stderr string, code int) {
	tb.Helper()
	var out, talk bytes.Buffer
	line := append(append(slices.Clone(under), Program(tb, program)), args...)
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Stdout, cmd.Stderr = &out, &talk
	if err := cmd.Run(); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			tb.Fatalf("run %s: %v", program, err)
		}
	}
	return out.String(), talk.String(), cmd.ProcessState.ExitCode()
}

// MustRun is Run that expects exit code 0.
func MustRun(tb testing.TB, program string, args ...string) string {
	tb.Helper()
	return MustRunUnder(tb, nil, program, args...)
}

// MustRunUnder is MustRun by way of a command that becomes the program.
func MustRunUnder(tb testing.TB, under []string, program string, args ...string) string {
	tb.Helper()
	stdout, stderr, code := RunUnder(tb, under, program, args...)
	if code != 0 {
		tb.Fatalf("%s %v: exit code %d: %s", program, args, code, stderr)
	}
	return stdout
}

// Until polls until the condition holds. The test fails at its error or after Timeout.
func Until(tb testing.TB, what string, condition func() (bool, error)) {
	tb.Helper()
	for deadline := time.Now().Add(Timeout); ; time.Sleep(5 * time.Millisecond) {
		isMet, err := condition()
		if err != nil {
			tb.Fatalf("wait until %s: %v", what, err)
		}
		if isMet {
			return
		}
		if time.Now().After(deadline) {
			tb.Fatalf("waited %s until %s", Timeout, what)
		}
	}
}
