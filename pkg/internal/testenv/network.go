package testenv

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// Addresses of the two hosts of a Network.
const (
	StorageAddress = "10.83.0.1"
	TradingAddress = "10.83.0.2"
)

// Network is two network namespaces, joined by a cable that can lose packets. It needs root.
type Network struct {
	tb     testing.TB
	prefix string
}

// networkCount tells the networks of tests that run at the same time apart.
var networkCount atomic.Int32

// NewNetwork lays the cable. It skips where namespaces cannot be made: without root, or in a container that keeps them
// to itself.
func NewNetwork(tb testing.TB) *Network {
	tb.Helper()
	if os.Geteuid() != 0 {
		tb.Skip("network namespaces need root, this is another user")
	}
	n := &Network{tb: tb, prefix: fmt.Sprintf("farlog-%d-%d", os.Getpid(), networkCount.Add(1))}
	if output, err := exec.Command("ip", "netns", "add", n.Storage()).CombinedOutput(); err != nil {
		if strings.Contains(string(output), "Operation not permitted") {
			tb.Skipf("network namespaces cannot be made here: %s", output)
		}
		tb.Fatalf("ip netns add: %v: %s (scripts/setup.sh net installs what is missing)", err, output)
	}
	tb.Cleanup(func() { n.run("ip", "netns", "delete", n.Storage()) })
	n.run("ip", "netns", "add", n.Trading())
	tb.Cleanup(func() { n.run("ip", "netns", "delete", n.Trading()) })
	n.run("ip", "link", "add", "cable0", "netns", n.Storage(), "type", "veth", "peer", "name", "cable0", "netns",
		n.Trading())
	for name, address := range map[string]string{n.Storage(): StorageAddress, n.Trading(): TradingAddress} {
		n.run("ip", "-n", name, "address", "add", address+"/24", "dev", "cable0")
		n.run("ip", "-n", name, "link", "set", "cable0", "up")
		n.run("ip", "-n", name, "link", "set", "lo", "up")
	}
	return n
}

// Storage and Trading are the names of the namespaces.
func (n *Network) Storage() string { return n.prefix + "-storage" }

// Trading is the other one.
func (n *Network) Trading() string { return n.prefix + "-trading" }

// Under is the command that becomes a program in a namespace.
func (n *Network) Under(name string) []string { return []string{"ip", "netns", "exec", name} }

// Lose lets so many of a hundred packets get lost, each way; 100 cuts the cable in silence.
func (n *Network) Lose(percent int) {
	n.tb.Helper()
	n.lose(percent, "")
}

// LosePort is Lose for what goes to and from one port of the storage host, also on that host itself.
func (n *Network) LosePort(percent, port int) {
	n.tb.Helper()
	n.lose(percent, fmt.Sprintf("tcp dport %d ", port), fmt.Sprintf("tcp sport %d ", port))
}

// lose drops what comes in and matches; of several rules, each.
func (n *Network) lose(percent int, matches ...string) {
	n.tb.Helper()
	rules := ""
	for _, match := range matches {
		if match == "" {
			match = `iifname "cable0" `
		}
		if percent >= 100 {
			rules += match + "drop\n"
		} else if percent > 0 {
			rules += fmt.Sprintf("%snumgen random mod 100 < %d drop\n", match, percent)
		}
	}
	rules = "table inet farlog\nflush table inet farlog\ntable inet farlog {\nchain in {\ntype filter hook input " +
		"priority 0\n" + rules + "}\n}\n"
	for _, name := range []string{n.Storage(), n.Trading()} {
		cmd := exec.Command("ip", "netns", "exec", name, "nft", "-f", "-")
		cmd.Stdin = strings.NewReader(rules)
		if output, err := cmd.CombinedOutput(); err != nil {
			n.tb.Fatalf("nft: %v: %s (scripts/setup.sh net installs what is missing)", err, output)
		}
	}
}

// Go runs a function on a thread of its own in a namespace, as all threads are that C code starts from there. The
// thread ends with it.
func (n *Network) Go(name string, work func()) {
	n.tb.Helper()
	namespace, err := os.Open("/run/netns/" + name)
	if err != nil {
		n.tb.Fatal(err)
	}
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: no other goroutine gets the thread
		defer namespace.Close()
		err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET)
		failed <- err
		if err == nil {
			work()
		}
	}()
	if err := <-failed; err != nil {
		n.tb.Fatalf("enter network namespace %s: %v", name, err)
	}
}

func (n *Network) run(name string, args ...string) {
	n.tb.Helper()
	if output, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		n.tb.Errorf("%s %v: %v: %s", name, args, err, output)
	}
}
