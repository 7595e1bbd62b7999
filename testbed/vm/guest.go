package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/farlog/farlog/testbed/talk"
)

// Image is what guests boot from. The disks are shared: each guest writes to a snapshot of its own, gone when it ends.
type Image struct {
	Kernel, Initrd string
	Root           string // ext4, /dev/vda
	Programs       string // ext4, read only, /dev/vdb at /mnt; its /init is process 1, its /bin is in PATH
}

// Newer is the image with the kernel of the distribution's backports.
func (i Image) Newer() Image {
	i.Kernel, i.Initrd = i.Kernel+"-backports", i.Initrd+"-backports"
	return i
}

// Memory is a file that a guest has as memory and that outlives it.
type Memory struct {
	Path      string
	SizeBytes int64 // the file is made when it is not there
}

// Options of a guest.
type Options struct {
	Name      string
	Image     Image
	Dir       string // of sockets and of the console log; a path of a socket has at most 107 bytes
	Accel     Accel
	CPUs      int    // 0 means 1
	MemoryMiB int    // 0 means 768
	Port      *Port  // its eth0; nil means no network
	MAC       string // of eth0
	Rail      *Port  // its eth1; nil means none
	RailMAC   string // of eth1
	MTU       int    // of both; 4200 gives RDMA a path MTU of 4096
	NVDIMM    Memory // /dev/pmem or /dev/dax after ndctl; Path "" means none
	BAR       Memory // BAR 2 of an ivshmem device; Path "" means none
	Disk      Memory // /dev/vdc, with a cache that has to be flushed; Path "" means none
	// Namespaces of one NVMe device of QEMU's with a cache that has to be flushed: /dev/nvme0n1 and on, once the driver
	// is loaded.
	Namespaces []Memory
	// IsCounting makes the guest's clock count instructions instead of time, on one processor: what took twice as long
	// there executed twice as many instructions, on however busy a machine.
	IsCounting bool
}

// Accel is how QEMU runs the guest's instructions.
type Accel string

// The two that are known here.
const (
	TCG Accel = "tcg"
	KVM Accel = "kvm"
)

const (
	memoryDefaultMiB = 768
	labelLen         = 128 << 10 // of an NVDIMM: where its namespaces are noted
	bootTimeout      = 10 * time.Minute
	stopTimeout      = 5 * time.Minute

	// Of /proc/PID/stat behind the name: times in hundredths of a second.
	statUserAt, statSystemAt = 11, 12
	statTick                 = 10 * time.Millisecond
)

// Guest is a running virtual machine.
type Guest struct {
	Name    string
	Console string // path of the log of its serial console

	cmd       *exec.Cmd
	exited    chan struct{}
	isAsked   atomic.Bool // to end
	errorsLog string
	monitor   string
	agent     *agent
	listener  net.Listener
}

// ErrEnded is returned when a guest has ended that was needed.
var ErrEnded = errors.New("the guest has ended")

// Boot starts a guest and waits until its agent has said hello. A guest with the same name may have run in dir before:
// its console log goes on.
func Boot(ctx context.Context, o Options) (*Guest, error) {
	g := &Guest{
		Name:      o.Name,
		Console:   filepath.Join(o.Dir, o.Name+".console"),
		errorsLog: filepath.Join(o.Dir, o.Name+".qemu"),
		monitor:   filepath.Join(o.Dir, o.Name+".qmp"),
		exited:    make(chan struct{}),
	}
	if err := o.makeFiles(); err != nil {
		return nil, err
	}
	agentPath := filepath.Join(o.Dir, o.Name+".agent")
	if err := removeAll(agentPath, g.monitor); err != nil {
		return nil, err
	}
	var err error
	if g.listener, err = net.Listen("unix", agentPath); err != nil {
		return nil, fmt.Errorf("listen for the agent: %w", err)
	}
	if err := g.launch(append(o.arguments(""), withAgent(g.Console, agentPath, g.monitor)...)); err != nil {
		g.listener.Close()
		return nil, err
	}
	bootCtx, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()
	if g.agent, err = g.waitAgent(bootCtx); err != nil {
		g.Kill()
		return nil, fmt.Errorf("boot %s: %w%s", o.Name, err, g.lastWords())
	}
	return g, nil
}

func removeAll(paths ...string) error {
	for _, path := range paths {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (o *Options) makeFiles() error {
	for _, memory := range append([]Memory{o.NVDIMM, o.BAR, o.Disk}, o.Namespaces...) {
		if err := memory.make(); err != nil {
			return err
		}
	}
	return nil
}

func (m Memory) make() error {
	if m.Path == "" {
		return nil
	}
	file, err := os.OpenFile(m.Path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err == nil && info.Size() != m.SizeBytes {
		err = file.Truncate(m.SizeBytes)
	}
	return err
}

func (g *Guest) launch(arguments []string) error {
	log, err := os.Create(g.errorsLog)
	if err != nil {
		return err
	}
	defer log.Close() // QEMU has its own
	g.cmd = exec.Command("qemu-system-x86_64", arguments...)
	g.cmd.Stdout, g.cmd.Stderr = log, log
	// Ctrl-C reaches the runner alone; when the runner is gone, however it went, its guests go.
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := g.cmd.Start(); err != nil {
		return fmt.Errorf("start QEMU: %w", err)
	}
	go func() {
		_ = g.cmd.Wait() // how it ended is told by what it was asked to do
		close(g.exited)
	}()
	return nil
}

// Interactive is QEMU's command line for a guest whose console is this terminal and whose init gives a shell on it.
func (o *Options) Interactive() ([]string, error) {
	if err := o.makeFiles(); err != nil {
		return nil, err
	}
	return append(o.arguments("farlog.shell"), "-serial", "mon:stdio"), nil
}

// withAgent is what a guest needs that is talked to: a log for its console, a line for its agent, QEMU's monitor.
func withAgent(console, agentPath, monitor string) []string {
	return []string{
		"-chardev", "file,id=console,append=on,path=" + console, "-serial", "chardev:console",
		"-chardev", "socket,id=agent,path=" + agentPath,
		"-device", "virtio-serial-pci", "-device", "virtserialport,chardev=agent,name=" + talk.PortName,
		"-qmp", "unix:" + monitor + ",server=on,wait=off",
	}
}

// arguments is QEMU's command line but for the console. The kernel is given the further parameter.
func (o *Options) arguments(parameter string) []string {
	memory := o.MemoryMiB
	if memory == 0 {
		memory = memoryDefaultMiB
	}
	arguments := []string{
		"-nodefaults", "-no-reboot", "-display", "none", "-name", o.Name,
		"-kernel", o.Image.Kernel, "-initrd", o.Image.Initrd,
		"-append", "console=ttyS0 loglevel=5 panic=-1 " + o.kernelParameters() + " farlog.name=" + o.Name + " " +
			parameter,
		"-drive", "if=virtio,format=raw,snapshot=on,file=" + o.Image.Root,
		"-drive", "if=virtio,format=raw,readonly=on,file=" + o.Image.Programs,
		"-object", "rng-random,id=rng,filename=/dev/urandom", "-device", "virtio-rng-pci,rng=rng",
	}
	arguments = append(arguments, o.processor()...)
	if o.Disk.Path != "" {
		arguments = append(arguments, "-drive", "if=virtio,format=raw,cache=writeback,file="+o.Disk.Path)
	}
	arguments = append(arguments, o.nvme()...)
	if o.NVDIMM.Path != "" {
		arguments = append(arguments, "-machine", "pc,nvdimm=on,nvdimm-persistence=mem-ctrl",
			"-m", fmt.Sprintf("%dM,slots=2,maxmem=%dM", memory, int64(memory)+o.NVDIMM.SizeBytes>>20+1024),
			"-object", o.NVDIMM.backend("nvdimm"), "-device",
			fmt.Sprintf("nvdimm,memdev=nvdimm,label-size=%d", labelLen))
	} else {
		arguments = append(arguments, "-machine", "pc", "-m", strconv.Itoa(memory)+"M")
	}
	if o.BAR.Path != "" {
		arguments = append(arguments, "-object", o.BAR.backend("bar"), "-device", "ivshmem-plain,memdev=bar")
	}
	return append(append(arguments, o.network(0, o.Port, o.MAC)...), o.network(1, o.Rail, o.RailMAC)...)
}

// network is a network device, nothing where no port is given.
func (o *Options) network(number int, port *Port, mac string) []string {
	if port == nil {
		return nil
	}
	device := fmt.Sprintf("virtio-net-pci,netdev=n%d,id=eth%[1]d,mac=%s", number, mac)
	if o.MTU != 0 {
		device += ",host_mtu=" + strconv.Itoa(o.MTU)
	}
	return []string{
		"-netdev", fmt.Sprintf("stream,id=n%d,server=off,addr.type=unix,addr.path=%s", number, port.path),
		"-device", device,
	}
}

// kernelParameters: without no_timer_check a kernel whose emulator got no processor for a while takes its timer for
// broken, and dies. The others spare a fifth of what a boot takes: the kernel's tests of its own ciphers, moving itself
// to a random address, and what keeps processors from guessing that do not guess. Where instructions are counted there
// are those of any machine. With oops=panic a kernel that fell ends, at once and told, instead of going on without what
// it was about to do. Under TCG the time stamp counter is that of this machine, on all processors of a guest: its rate
// is told (tscKHz), and nothing that is late takes it for unstable, which would leave the guest with a clock that every
// look at takes an emulated device. It boots on one processor (maxcpus), and init brings up the others: what a boot
// does takes one, it patches its own code all the while, and the emulator's fault with that (bed.go, traps) needs two.
func (o *Options) kernelParameters() string {
	if o.IsCounting {
		return "no_timer_check"
	}
	parameters := "no_timer_check oops=panic cryptomgr.notests nokaslr mitigations=off"
	if o.Accel == TCG {
		parameters += fmt.Sprintf(" maxcpus=1 noreplace-smp tsc=reliable tsc_early_khz=%d", tscKHz())
	}
	return parameters
}

// nvmeDevice is what the monitor calls it.
const nvmeDevice = "nvme0"

func (o *Options) nvme() (arguments []string) {
	if len(o.Namespaces) == 0 {
		return nil
	}
	arguments = []string{"-device", "nvme,id=" + nvmeDevice + ",serial=" + o.Name}
	for i, one := range o.Namespaces {
		arguments = append(arguments, "-drive", fmt.Sprintf("if=none,id=namespace%d,format=raw,cache=writeback,file=%s",
			i+1, one.Path),
			"-device", fmt.Sprintf("nvme-ns,drive=namespace%d,bus=%s,nsid=%d", i+1, nvmeDevice, i+1))
	}
	return arguments
}

func (o *Options) processor() []string {
	switch {
	case o.IsCounting:
		return []string{"-accel", "tcg,thread=single", "-icount", "shift=1,sleep=off", "-cpu", "max", "-smp", "1"}
	case o.Accel == KVM:
		return []string{"-accel", "kvm", "-cpu", "host", "-smp", strconv.Itoa(max(o.CPUs, 1))}
	default:
		// cx16=off: a kernel that was interrupted behind a CMPXCHG16B came back with the word it compared in place of
		// its flags (QEMU 7.2), a double fault; nobody needs that instruction.
		return []string{"-accel", "tcg,thread=multi", "-cpu", "max,cx16=off", "-smp", strconv.Itoa(max(o.CPUs, 1))}
	}
}

func (m Memory) backend(id string) string {
	return fmt.Sprintf("memory-backend-file,id=%s,share=on,mem-path=%s,size=%d", id, m.Path, m.SizeBytes)
}

// waitAgent waits for QEMU to connect, and for the agent behind it to speak.
func (g *Guest) waitAgent(ctx context.Context) (*agent, error) {
	connected := make(chan net.Conn, 1)
	go func() {
		if conn, err := g.listener.Accept(); err == nil {
			connected <- conn
		}
		close(connected)
	}()
	select {
	case conn := <-connected:
		if conn == nil {
			return nil, errors.New("the socket of the agent was closed")
		}
		a := newAgent(conn)
		return a, a.waitHello(ctx, g.exited)
	case <-g.exited:
		return nil, ErrEnded
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// lastWords is what QEMU, or else the guest's console, said at the end: for the text of an error.
func (g *Guest) lastWords() string {
	for _, path := range []string{g.errorsLog, g.Console} {
		content, err := os.ReadFile(path)
		lines := strings.Split(strings.TrimSpace(string(content)), "\n")
		if err == nil && lines[0] != "" {
			return ": " + strings.TrimSpace(lines[len(lines)-1])
		}
	}
	return ""
}

// Kill ends the guest as a power cord that is pulled would: nothing in it runs on. What it stored to its NVDIMM or BAR
// stays, flushed or not: this is a crash of all software, not a loss of power.
func (g *Guest) Kill() {
	g.isAsked.Store(true)
	_ = g.cmd.Process.Kill() // fails only when it has ended already
	<-g.exited
	g.closeAgent()
}

func (g *Guest) closeAgent() {
	g.listener.Close()
	if g.agent != nil {
		g.agent.close()
	}
}

// PowerOff ends the guest in order.
func (g *Guest) PowerOff(ctx context.Context) error {
	g.isAsked.Store(true)
	defer g.Kill()
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	if _, err := g.Start("sync; echo o >/proc/sysrq-trigger"); err != nil {
		return err
	}
	select {
	case <-g.exited:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s did not power off: %w", g.Name, ctx.Err())
	}
}

// ProcessorTime is what a guest has taken of this machine's processors so far, its devices included.
func (g *Guest) ProcessorTime() time.Duration {
	if g.HasEnded() {
		return g.cmd.ProcessState.UserTime() + g.cmd.ProcessState.SystemTime()
	}
	// nothing where it ends meanwhile: it is only told
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", g.cmd.Process.Pid))
	_, behindName, _ := bytes.Cut(stat, []byte(") "))
	fields := strings.Fields(string(behindName))
	if len(fields) <= statSystemAt {
		return 0
	}
	user, _ := strconv.Atoi(fields[statUserAt])
	system, _ := strconv.Atoi(fields[statSystemAt])
	return time.Duration(user+system) * statTick
}

// Ended is closed when the guest is gone.
func (g *Guest) Ended() <-chan struct{} { return g.exited }

// WasAsked reports whether it was to end.
func (g *Guest) WasAsked() bool { return g.isAsked.Load() }

// HasEnded reports whether the guest is gone.
func (g *Guest) HasEnded() bool {
	select {
	case <-g.exited:
		return true
	default:
		return false
	}
}
