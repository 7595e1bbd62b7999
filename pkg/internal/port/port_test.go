package port

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

const variable = "FARLOG_TEST_PORTS"

// What one process has, another does not get, though nobody listens there yet.
func TestReserve_IsOfOneProcess(t *testing.T) {
	const count = 200
	seen := map[int]bool{}
	if os.Getenv(variable) != "" {
		for range count {
			port, err := Reserve()
			if err != nil {
				t.Fatal(err)
			}
			fmt.Println("port", port)
		}
		return
	}
	for range count {
		port, err := Reserve()
		if err != nil {
			t.Fatal(err)
		}
		if seen[port] || port < first || port > last {
			t.Errorf("port %d: given before, or not of the range", port)
		}
		seen[port] = true
	}
	other := exec.Command(os.Args[0], "-test.run=^TestReserve_IsOfOneProcess$")
	other.Env = append(os.Environ(), variable+"=1")
	said, err := other.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	lines := 0
	for line := range strings.Lines(string(said)) {
		number, isPort := strings.CutPrefix(strings.TrimSpace(line), "port ")
		if !isPort {
			continue
		}
		lines++
		if port, _ := strconv.Atoi(number); seen[port] {
			t.Errorf("port %d was given to two processes", port)
		}
	}
	if lines != count {
		t.Errorf("the other process got %d ports, expected %d", lines, count)
	}
}

// Who has a port can listen there.
func TestReserve_IsFree(t *testing.T) {
	port, err := Reserve()
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatalf("a reserved port cannot be listened at: %v", err)
	}
	listener.Close()
}
