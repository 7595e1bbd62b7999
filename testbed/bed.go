package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/farlog/farlog/testbed/vm"
)

// scenario is one thing that is proved.
type scenario struct {
	name   string
	what   string
	guests int // at a time, at most
	// run returns what it saw, in one line of figures, or the first claim that did not hold.
	run func(ctx context.Context, b *bed) (string, error)
}

const (
	nvdimmLen = 64<<20 + 128<<10 // and the label area
	barLen    = 64 << 20
	diskLen   = 16 << 20

	namespaceLen = 32 << 20
	mtu          = 4200 // gives RDMA a path MTU of 4096
	bootsMax     = 3

	guestsMost = 5 // of one scenario
	// hung is when a scenario is given up that does not come to its end. It takes a tenth of that, and the longest
	// a third, where it has the processors for itself.
	hung = 25 * time.Minute
	// lastMost is what QEMU takes to end when its guest has.
	lastMost = 30 * time.Second
)

// bed is what one scenario runs on: guests, the wire between them, and files that outlive a guest.
type bed struct {
	dir    string
	name   string // of the scenario
	began  time.Time
	image  vm.Image
	accel  vm.Accel
	random *rand.Rand
	wire   *vm.Wire
	rail   *vm.Wire // the second network of machines that are on two

	fail context.CancelCauseFunc // ends the run

	mu     sync.Mutex
	guests map[string]*vm.Guest // the latest of each name
	all    []*vm.Guest
	said   map[*vm.Guest]int // bytes of its console when it was up
	ports  map[string]*vm.Port
	notes  []note
	tokens [][]byte // that no program may say
}

// note is a text that is kept when the scenario fails.
type note struct {
	name string
	text func() string
}

// machine says what a guest has. Its name decides its address.
type machine struct {
	name       string
	cpus       int
	memoryMiB  int
	hasNVDIMM  bool
	hasBAR     bool
	hasDisk    bool // /dev/vdc
	namespaces int  // of an NVMe device
	isNewer    bool // of kernel: that of the backports
	isOnWire   bool
	isOnRail   bool // too, by a second device
	isCounting bool
}

// addresses of the guests that are on the wire.
var addresses = map[string]string{
	"host": "10.7.0.1", "target": "10.7.0.2", "central": "10.7.0.3", "second": "10.7.0.4",
	"third": "10.7.0.5",
}

func newBed(dir, name string, image vm.Image, accel vm.Accel, seed uint64) (*bed, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	// Each scenario draws from a seed of its own: run alone, it draws as it did among the others.
	own := fnv.New64a()
	fmt.Fprint(own, name)
	return &bed{
		dir: dir, name: name, began: time.Now(), image: image, accel: accel,
		random: rand.New(rand.NewPCG(seed, own.Sum64())), wire: vm.NewWire(dir, seed), rail: vm.NewWire(dir, seed),
		guests: map[string]*vm.Guest{}, said: map[*vm.Guest]int{}, ports: map[string]*vm.Port{},
	}, nil
}

// run ends all guests, whatever happens.
func (b *bed) run(ctx context.Context, s scenario) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, hung, fmt.Errorf("the scenario has not ended within %s", hung))
	defer cancel()
	ctx, b.fail = context.WithCancelCause(ctx)
	defer b.fail(nil)
	defer b.end()
	detail, err := s.run(ctx, b)
	if err == nil {
		err = b.keepsSecrets(ctx)
	}
	if errors.Is(err, vm.ErrEnded) { // its agent is gone; QEMU goes next
		select {
		case <-ctx.Done():
		case <-time.After(lastMost):
		}
	}
	if lost := b.lost(); err != nil && lost != nil {
		err = lost
	}
	return detail, err
}

// guestLost is a guest that ended and was not to.
type guestLost struct {
	name, words string
	isEmulators bool // the emulator's fault
}

func (l *guestLost) Error() string {
	return fmt.Sprintf("%s has ended by itself: %s", l.name, l.words)
}

// traps are what a kernel says before it falls over a breakpoint or a debug exception that nobody has set: QEMU's TCG
// on several threads now and then executes a breakpoint with which the kernel patches its own code when it is gone, and
// no program of ours can have the kernel take one. Nor a double fault, which is one in the handling of another.
var traps = []string{"Oops: int3", "exc_debug_kernel", "PANIC: double fault"}

func hasTrap(console string) bool {
	return slices.ContainsFunc(traps, func(trap string) bool { return strings.Contains(console, trap) })
}

// guard ends the run when a guest is gone that was to stay: whoever waits for what it is to bring about would wait
// until the scenario is given up.
func (b *bed) guard(g *vm.Guest) {
	<-g.Ended() // at the latest when the bed ends
	if !g.WasAsked() {
		b.fail(b.lost())
	}
}

// lost is a guest that ended by itself; nil: there is none.
func (b *bed) lost() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, g := range b.all {
		if !g.HasEnded() || g.WasAsked() {
			continue
		}
		console, _ := os.ReadFile(g.Console) // without it the words say enough
		console = console[min(b.said[g], len(console)):]
		lost := &guestLost{name: g.Name, words: "see its console", isEmulators: hasTrap(string(console))}
		for _, line := range strings.Split(string(console), "\n") {
			if strings.Contains(line, "Kernel panic") {
				lost.words = strings.TrimSpace(line)
			}
		}
		return lost
	}
	return nil
}

// draw gives a number from 0 to below n. What is drawn by two goroutines at a time is drawn in the order in which they
// come.
func (b *bed) draw(n int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.random.IntN(n)
}

func (b *bed) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, g := range b.guests {
		g.Kill()
	}
	b.wire.Close()
	b.rail.Close()
}

// processorTime is what the guests have taken of this machine's processors.
func (b *bed) processorTime() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	var total time.Duration
	for _, g := range b.all {
		total += g.ProcessorTime()
	}
	return total
}

// say tells how the scenario goes on, and what it has taken so far.
func (b *bed) say(format string, args ...any) {
	took := fmt.Sprintf("  %s at %.0f s, %.0f of a processor: ", b.name, time.Since(b.began).Seconds(),
		b.processorTime().Seconds())
	say("%s", took+fmt.Sprintf(format, args...))
}

func (b *bed) remove() {
	os.RemoveAll(b.dir)
}

// boot starts a machine, or starts it again with the memory that it had.
func (b *bed) boot(ctx context.Context, m machine) (*vm.Guest, error) {
	o := vm.Options{
		Name: m.name, Image: b.image, Dir: b.dir, Accel: b.accel, CPUs: m.cpus, MemoryMiB: m.memoryMiB,
		IsCounting: m.isCounting,
	}
	if m.hasNVDIMM {
		o.NVDIMM = vm.Memory{Path: filepath.Join(b.dir, m.name+".nvdimm"), SizeBytes: nvdimmLen}
	}
	if m.hasBAR {
		o.BAR = vm.Memory{Path: filepath.Join(b.dir, m.name+".bar"), SizeBytes: barLen}
	}
	if m.hasDisk {
		o.Disk = vm.Memory{Path: filepath.Join(b.dir, m.name+".disk"), SizeBytes: diskLen}
	}
	for i := range m.namespaces {
		o.Namespaces = append(o.Namespaces, vm.Memory{Path: b.namespace(m.name, i+1), SizeBytes: namespaceLen})
	}
	if m.isNewer {
		o.Image = b.image.Newer()
	}
	if m.isOnWire {
		port, err := b.port(m.name)
		if err != nil {
			return nil, err
		}
		o.Port, o.MTU, o.MAC = port, mtu, macOf(addresses[m.name])
	}
	rail := ""
	if m.isOnRail {
		port, err := b.railPort(m.name)
		if err != nil {
			return nil, err
		}
		rail = railAddress(m.name)
		o.Rail, o.RailMAC = port, macOf(rail)
		rail += "/24"
	}
	began := time.Now()
	g, err := b.bootPatiently(ctx, o)
	if err != nil {
		return nil, err
	}
	console, _ := os.ReadFile(g.Console) // of this boot, and those before
	b.mu.Lock()
	b.said[g] = len(console)
	b.guests[m.name] = g
	b.all = append(b.all, g)
	b.mu.Unlock()
	b.say("%s is up after %.0f s", m.name, time.Since(began).Seconds())
	go b.guard(g)
	if m.isOnWire {
		if _, err := g.Run(ctx, fmt.Sprintf("rxe-up %s/24 %d %s", addresses[m.name], mtu, rail)); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// namespace is the file below a namespace of a machine's NVMe device.
func (b *bed) namespace(machine string, number int) string {
	return filepath.Join(b.dir, fmt.Sprintf("%s.namespace%d", machine, number))
}

// bootPatiently starts a machine again whose kernel fell over a trap of the emulator's before anything of ours ran in
// it. Any other end of a boot is a failure.
func (b *bed) bootPatiently(ctx context.Context, o vm.Options) (*vm.Guest, error) {
	for attempt := 1; ; attempt++ {
		before, _ := os.Stat(filepath.Join(b.dir, o.Name+".console")) // of boots before this one
		g, err := vm.Boot(ctx, o)
		if err == nil || attempt == bootsMax || ctx.Err() != nil {
			return g, err
		}
		console, readErr := os.ReadFile(filepath.Join(b.dir, o.Name+".console"))
		if readErr != nil {
			return nil, errors.Join(err, readErr)
		}
		if before != nil {
			console = console[min(int(before.Size()), len(console)):]
		}
		if !hasTrap(string(console)) {
			return nil, err
		}
		b.say("%s: its kernel fell over a breakpoint of its own while it booted; once more", o.Name)
	}
}

// macOf makes a hardware address of an IPv4 address, in the range of locally administered ones.
func macOf(address string) string {
	var a, b, c, d int
	fmt.Sscanf(address, "%d.%d.%d.%d", &a, &b, &c, &d)
	return fmt.Sprintf("52:54:%02x:%02x:%02x:%02x", a, b, c, d)
}

// railAddress is that of a machine's second device.
func railAddress(name string) string { return strings.Replace(addresses[name], "10.7.", "10.8.", 1) }

func (b *bed) port(name string) (*vm.Port, error) { return b.plug(b.wire, name) }

// hasRail reports whether a machine was booted with a second device.
func (b *bed) hasRail(name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ports[name+".rail"] != nil
}

func (b *bed) railPort(name string) (*vm.Port, error) { return b.plug(b.rail, name+".rail") }

func (b *bed) plug(wire *vm.Wire, name string) (*vm.Port, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ports[name] == nil {
		port, err := wire.Plug(name)
		if err != nil {
			return nil, err
		}
		b.ports[name] = port
	}
	return b.ports[name], nil
}

// bootAll starts machines side by side.
func (b *bed) bootAll(ctx context.Context, machines ...machine) (map[string]*vm.Guest, error) {
	var waiting sync.WaitGroup
	errs := make([]error, len(machines))
	for i, m := range machines {
		waiting.Add(1)
		go func() {
			defer waiting.Done()
			_, errs[i] = b.boot(ctx, m)
		}()
	}
	waiting.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	guests := map[string]*vm.Guest{}
	for _, m := range machines {
		guests[m.name] = b.guests[m.name]
	}
	return guests, nil
}

// start runs a command in a guest and keeps what it says, should the scenario fail.
func (b *bed) start(g *vm.Guest, name, script string) (*vm.Process, error) {
	p, err := g.Start(script)
	if err != nil {
		return nil, err
	}
	b.noteOutput(g.Name+"."+name, p)
	return p, nil
}

func (b *bed) noteOutput(name string, p *vm.Process) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.notes = append(b.notes, note{name + ".stdout", p.Stdout}, note{name + ".stderr", p.Stderr})
}

// keep copies consoles, QEMU's messages and the noted outputs to a folder, and returns its path.
func (b *bed) keep(to string) (string, error) {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return "", err
	}
	for _, pattern := range []string{"*.console", "*.qemu"} {
		paths, err := filepath.Glob(filepath.Join(b.dir, pattern))
		if err != nil {
			return "", err
		}
		for _, path := range paths {
			content, err := os.ReadFile(path)
			if err != nil {
				return "", err
			}
			if err := os.WriteFile(filepath.Join(to, filepath.Base(path)), content, 0o644); err != nil {
				return "", err
			}
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, n := range b.notes {
		if err := os.WriteFile(filepath.Join(to, fmt.Sprintf("%02d-%s", i, n.name)), []byte(n.text()),
			0o644); err != nil {
			return "", err
		}
	}
	return to, nil
}
