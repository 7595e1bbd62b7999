package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// brief is a control plane that breaks so many connections in the middle of a call before it answers one.
type brief struct {
	api.UnimplementedControlServiceServer
	net.Listener
	breaks int
	mutex  sync.Mutex
	conns  []net.Conn
	asked  []string
}

func (b *brief) Accept() (net.Conn, error) {
	conn, err := b.Listener.Accept()
	if err == nil {
		b.mutex.Lock()
		defer b.mutex.Unlock()
		b.conns = append(b.conns, conn)
	}
	return conn, err
}

func (b *brief) receive(method string) error {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if b.asked = append(b.asked, method); len(b.asked) > b.breaks {
		return nil
	}
	for _, conn := range b.conns {
		conn.Close()
	}
	b.conns = nil
	return status.Error(codes.Internal, "nobody reads this")
}

func (b *brief) ListStreams(context.Context, *api.ListStreamsRequest) (*api.ListStreamsResponse, error) {
	return &api.ListStreamsResponse{}, b.receive("list")
}

func (b *brief) DeleteStream(context.Context, *api.DeleteStreamRequest) (*api.DeleteStreamResponse, error) {
	return &api.DeleteStreamResponse{Deletion: &api.Deletion{StreamId: 7}}, b.receive("delete")
}

// hearing is an error stream that says when somebody waits.
type hearing struct {
	bytes.Buffer
	waits chan struct{}
}

func (h *hearing) Write(text []byte) (int, error) {
	if bytes.HasPrefix(text, []byte("waiting: ")) {
		close(h.waits) // twice would be a panic: it is one line
	}
	return h.Buffer.Write(text)
}

// bind takes an address where nobody listens yet, and nobody else can.
func bind(t *testing.T) (address string, listen func() net.Listener) {
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(socket), "control")
	t.Cleanup(func() { file.Close() })
	if err := syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	bound, err := syscall.Getsockname(socket)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", bound.(*syscall.SockaddrInet4).Port), func() net.Listener {
		if err := syscall.Listen(socket, 100); err != nil {
			t.Fatal(err)
		}
		listener, err := net.FileListener(file)
		if err != nil {
			t.Fatal(err)
		}
		return listener
	}
}

// A command waits for a control plane that refuses the connection. What was sent is sent again only if it changes
// nothing.
func TestCommand_WaitsForTheControlPlane(t *testing.T) {
	for _, one := range []struct {
		command string
		breaks  int
		code    int
		asked   string
	}{
		{"stream list", 0, exitOK, "list"},
		{"stream delete a --wait 0", 0, exitOK, "delete"},
		{"stream list", 1, exitOK, "list list"},
		{"stream delete a --wait 0", 1, exitFailure, "delete"},
	} {
		t.Run(fmt.Sprintf("%s, %d broken", one.command, one.breaks), func(t *testing.T) {
			t.Setenv("FARLOG_CONFIG", "")
			address, listen := bind(t)
			var stdout bytes.Buffer
			stderr, ended := &hearing{waits: make(chan struct{})}, make(chan int, 1)
			go func() {
				args := append(strings.Fields(one.command), "--control", address, "--insecure", "--timeout", "1h")
				ended <- run(t.Context(), args, nil, &stdout, stderr)
			}()
			select {
			case code := <-ended:
				t.Fatalf("nobody listens, and it ends with %d: %s", code, stderr)
			case <-stderr.waits:
			}
			control := &brief{Listener: listen(), breaks: one.breaks}
			server := grpc.NewServer()
			defer server.Stop()
			api.RegisterControlServiceServer(server, control)
			go server.Serve(control)
			if code := <-ended; code != one.code {
				t.Errorf("exit code %d, want %d: %s", code, one.code, stderr)
			}
			control.mutex.Lock()
			defer control.mutex.Unlock()
			if got := strings.Join(control.asked, " "); got != one.asked {
				t.Errorf("asked for %q, want %q", got, one.asked)
			}
		})
	}
}

// A control plane on this host listens before it has announced its certificates: that is waited for, and said when the
// time is over.
func TestCommand_WaitsForTheCertificatesOfThisHost(t *testing.T) {
	t.Setenv("FARLOG_CONFIG", "")
	t.Setenv("TMPDIR", t.TempDir())
	t.Setenv("XDG_RUNTIME_DIR", "")
	address, listen := bind(t)
	defer listen().Close()
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), []string{"stream", "list", "--control", address, "--timeout", "300ms"}, nil, &stdout,
		&stderr)
	said := stderr.String()
	if code != exitFailure || !strings.HasPrefix(said, "waiting: ") ||
		!strings.Contains(said, "no certificates for control plane") {
		t.Errorf("exit code %d, said %q; expected 1, that it waits, and what was missing", code, said)
	}
}
