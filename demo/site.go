package main

import (
	"bytes"
	"context"
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

	apiv1 "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/identity"
)

// child is one process of the demo. It is ended by its handle, never by a name.
type child struct {
	name   string
	cmd    *exec.Cmd
	exited chan struct{}
	err    error // of Wait, once exited is closed
}

func startChild(name string, cmd *exec.Cmd) (*child, error) {
	// Ctrl-C reaches the demo alone, which then ends them in order
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	c := &child{name: name, cmd: cmd, exited: make(chan struct{})}
	go func() {
		c.err = cmd.Wait()
		close(c.exited)
	}()
	return c, nil
}

func (c *child) kill() {
	_ = c.cmd.Process.Kill() // fails only when it has ended already
	<-c.exited
}

func (c *child) hasEnded() bool {
	select {
	case <-c.exited:
		return true
	default:
		return false
	}
}

// stop asks it to end in order, and says so when it does not.
func (c *child) stop() error {
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-c.exited:
		return nil
	case <-time.After(stopTimeout):
		c.kill()
		return fmt.Errorf("%s did not end within %s of SIGTERM", c.name, stopTimeout)
	}
}

// site is the daemons of the demo and where they are.
type site struct {
	options options
	control string // address
	metrics map[string]string
	ringURI string

	mu    sync.Mutex
	parts map[string]*child
}

type readyFile struct {
	Control string `json:"control"`
	Metrics string `json:"metrics"`
}

const (
	partControl = "control"
	partDrain   = "drain"
	partWriter  = "writer"

	reportWaitSteps = 60 // of a tick each
)

func newSite(o options) *site {
	return &site{options: o, metrics: map[string]string{}, parts: map[string]*child{}}
}

func (s *site) dir(parts ...string) string {
	return filepath.Join(append([]string{s.options.dataDir}, parts...)...)
}
func (s *site) storeDir() string { return s.dir("store") }

func (s *site) start(ctx context.Context) error {
	ready, err := s.daemon(ctx, partControl, "dev", "--roles", "control,target", "--data-dir", s.dir("dev"), "--listen",
		"127.0.0.1:0")
	if err != nil {
		return err
	}
	s.control = ready.Control
	if err := s.startDrain(ctx); err != nil {
		return err
	}
	create := s.farlog(ctx, "stream", "create", streamName, "--size", ringSize, "--level", s.options.level)
	if output, err := create.CombinedOutput(); err != nil {
		return fmt.Errorf("create stream %s: %w: %s", streamName, err, bytes.TrimSpace(output))
	}
	ring, err := s.ring(ctx)
	if err != nil {
		return err
	}
	s.ringURI = ring.GetUri()
	say("control plane and target at %s, drain beside them, ring %s", s.control, s.ringURI)
	say("look from another terminal: %s status --watch --control %s", filepath.Join(s.options.binDir, "farlog"),
		s.control)
	for _, part := range []string{partControl, partDrain} {
		say("metrics of %s: http://%s/metrics", part, s.metrics[part])
	}
	return nil
}

func (s *site) startDrain(ctx context.Context) error {
	_, err := s.daemon(ctx, partDrain, "drain", "--data-dir", s.dir("drain"), "--store-dir", s.storeDir(), "--control",
		s.control)
	return err
}

// daemon starts farlogd and waits until it says that it is ready. A restart asks for the same metrics port again.
func (s *site) daemon(ctx context.Context, part string, args ...string) (readyFile, error) {
	listen := s.metrics[part]
	if listen == "" {
		listen = "127.0.0.1:0"
	}
	path := s.dir(part + ".ready")
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return readyFile{}, err
	}
	log, err := os.OpenFile(s.dir(part+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return readyFile{}, err
	}
	defer log.Close() // the child has its own
	cmd := exec.Command(filepath.Join(s.options.binDir, "farlogd"),
		append(args, "--ready-file", path, "--metrics-listen", listen)...)
	cmd.Stdout, cmd.Stderr = log, log
	started, err := startChild(part, cmd)
	if err != nil {
		return readyFile{}, err
	}
	s.keep(part, started)
	ready, err := waitReady(ctx, started, path)
	if err != nil {
		return ready, fmt.Errorf("%w; its log is %s", err, log.Name())
	}
	s.metrics[part] = ready.Metrics
	return ready, nil
}

func waitReady(ctx context.Context, c *child, path string) (ready readyFile, err error) {
	deadline := time.After(startTimeout)
	for {
		raw, err := os.ReadFile(path)
		if err == nil && json.Unmarshal(raw, &ready) == nil {
			return ready, nil
		}
		select {
		case <-ctx.Done():
			return ready, ctx.Err()
		case <-c.exited:
			return ready, fmt.Errorf("%s ended while it started: %v", c.name, c.err)
		case <-deadline:
			return ready, fmt.Errorf("%s was not ready within %s", c.name, startTimeout)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (s *site) keep(part string, c *child) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parts[part] = c
}

func (s *site) part(part string) *child {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.parts[part]
}

func (s *site) killAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.parts {
		c.kill()
	}
}

func (s *site) stopAll() error {
	return errors.Join(s.part(partDrain).stop(), s.part(partControl).stop())
}

func (s *site) farlog(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, filepath.Join(s.options.binDir, "farlog"), append(args, "--control", s.control)...)
}

// show runs a farlog command and shows it with what it prints.
func (s *site) show(ctx context.Context, args ...string) error {
	say("$ farlog %s", strings.Join(args, " "))
	cmd := s.farlog(ctx, args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stdout
	return cmd.Run()
}

// printStatus shows the streams as an operator sees them, once the target has reported the empty ring, which it does
// each second. The exit code of status speaks of the writer, which has just ended.
func (s *site) printStatus(ctx context.Context) {
	for range reportWaitSteps {
		ring, err := s.ring(ctx)
		if err != nil || ring.GetLagBytes() == 0 {
			break
		}
		time.Sleep(tick)
	}
	_ = s.show(ctx, "status")
}

// ring asks the control plane what it knows of the stream's ring.
func (s *site) ring(ctx context.Context) (*apiv1.RingState, error) {
	choice := identity.Choice{Control: s.control, Kinds: []identity.Kind{identity.KindAdmin}}
	connection, err := apiv1.Dial(s.control, identity.NewClientCredentials(choice.Finder()))
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	response, err := apiv1.NewControlServiceClient(connection).GetStream(ctx, &apiv1.GetStreamRequest{Name: streamName})
	if err != nil {
		return nil, fmt.Errorf("ask for stream %s: %w", streamName, err)
	}
	for _, ring := range response.GetStream().GetRings() {
		if ring.GetUri() != "" {
			return ring, nil
		}
	}
	return nil, fmt.Errorf("stream %s has no ring: %s", streamName, response.GetStream().GetReason())
}

// writer starts farlog append and gives both ends of it.
func (s *site) writer(window int) (c *child, stdin io.WriteCloser, stdout io.ReadCloser, err error) {
	cmd := s.farlog(context.Background(), "append", "--stream", streamName, "--format", "length-prefixed", "--fix",
		"--ack", "text",
		"--window", fmt.Sprint(window))
	log, err := os.OpenFile(s.dir("writer.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, nil, nil, err
	}
	defer log.Close()
	cmd.Stderr = log
	if stdin, err = cmd.StdinPipe(); err != nil {
		return nil, nil, nil, err
	}
	// Not StdoutPipe: its Wait would close the pipe before the last acknowledgements are read.
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, nil, nil, err
	}
	defer writer.Close()
	cmd.Stdout = writer
	if c, err = startChild("farlog append", cmd); err != nil {
		reader.Close()
		return nil, nil, nil, err
	}
	s.keep(partWriter, c)
	return c, stdin, reader, nil
}
