package nvmehost

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/nvmet"
)

const (
	nqnOne = "nqn.2026-01.com.example:desk7"
	hostA  = "nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6"
	idA    = "f81d4fae-7dec-11d0-a765-00a0c91e6bf6"
)

func fine() Spec {
	return Spec{NQN: nqnOne, Transport: "tcp", Address: "10.0.0.7", HostNQN: hostA, HostID: idA, Times: TimesDefault}
}

func TestSpec_LineAndCommand(t *testing.T) {
	s := fine()
	s.PollQueues, s.KeyFile = 2, "/etc/farlog/it's.key"
	if got, want := strings.Join(s.fields(), ","),
		"nqn="+nqnOne+",transport=tcp,traddr=10.0.0.7,trsvcid=4420,hostnqn="+hostA+",hostid="+idA+
			",nr_poll_queues=2,ctrl_loss_tmo=0,reconnect_delay=1,fast_io_fail_tmo=0,keep_alive_tmo=2"; got != want {
		t.Errorf("line %s\nwant %s", got, want)
	}
	if got, want := s.Command(), "nvme connect -n "+nqnOne+" -t tcp -a 10.0.0.7 -s 4420 -q "+hostA+" -I "+idA+
		` --nr-poll-queues=2 --ctrl-loss-tmo=0 --reconnect-delay=1 --fast_io_fail_tmo=0 --keep-alive-tmo=2 `+
		`--dhchap-secret="$(cat '/etc/farlog/it'\''s.key')"`; got != want {
		t.Errorf("command %s\nwant %s", got, want)
	}
}

// Whatever a spec has goes into one line of words for the kernel, run as root.
func TestSpec_BadInputIsNamed(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Spec)
		want   string
	}{
		"NQN with another word": {func(s *Spec) { s.NQN += ",hostnqn=nqn.2026-01.com.example:x" }, "no comma"},
		"NQN malformed":         {func(s *Spec) { s.NQN = "desk7" }, `NQN "desk7"`},
		"host NQN with a line":  {func(s *Spec) { s.HostNQN += "\nx" }, "host NQN"},
		"transport": {
			func(s *Spec) { s.Transport = "fc" },
			`transport "fc": expected one of tcp, rdma, loop`,
		},
		"name for an address": {
			func(s *Spec) { s.Address = "storage1" },
			`address "storage1": expected the target's IP address`,
		},
		"address with a word":   {func(s *Spec) { s.Address = "fe80::1%eth0,duplicate_connect" }, "address"},
		"port":                  {func(s *Spec) { s.Port = 70000 }, "port 70000: expected 1 to 65535"},
		"loop with an address":  {func(s *Spec) { s.Transport = "loop" }, "expected no address"},
		"id":                    {func(s *Spec) { s.HostID = "7" }, `host id "7": expected a UUID`},
		"id without NQN":        {func(s *Spec) { s.HostNQN = "" }, "both or none"},
		"interface with a word": {func(s *Spec) { s.HostInterface = "eth0,tos=1" }, "host interface"},
		"half a key":            {func(s *Spec) { s.CtrlKeyFile = "x" }, "expected both"},
		"the kernel's 600 s": {
			func(s *Spec) { s.Times.CtrlLoss = 600 * time.Second },
			"ctrl-loss 10m0s: expected whole seconds from 0s to 1m0s",
		},
		"half a second": {func(s *Spec) { s.Times.KeepAlive = time.Second / 2 }, "keep-alive 500ms"},
		"no delay":      {func(s *Spec) { s.Times.ReconnectDelay = 0 }, "reconnect-delay 0s"},
		"fails after it is gone": {
			func(s *Spec) { s.Times.CtrlLoss, s.Times.FastIOFail = time.Second, 2*time.Second },
			"expected no more than ctrl-loss",
		},
		"queues": {func(s *Spec) { s.PollQueues = -1 }, "0 to 1024"},
	} {
		s := fine()
		tc.change(&s)
		if err := s.Check(); err == nil || !strings.Contains(err.Error(), tc.want) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v does not say %q on one line", name, err, tc.want)
		}
	}
}

func write(t *testing.T, root, path, text string) {
	t.Helper()
	path = filepath.Join(root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// addController is what Linux 7.2 shows of a connection, and of its namespace.
func addController(t *testing.T, root, number, nqn, host, loss string) {
	t.Helper()
	sys := "/sys/class/nvme/nvme" + number + "/"
	for name, value := range map[string]string{
		"subsysnqn": nqn, "transport": "tcp",
		"address": "traddr=10.0.0.7,trsvcid=4420", "state": "live", "hostnqn": host, "hostid": idA,
		"ctrl_loss_tmo": loss, "fast_io_fail_tmo": "off", "reconnect_delay": "10", "kato": "5",
	} {
		write(t, root, sys+name, value+"\n")
	}
	block := "/sys/block/nvme" + number + "n1/"
	write(t, root, block+"nsid", "1\n")
	if err := os.Symlink(filepath.Join(root, "/sys/class/nvme/nvme"+number),
		filepath.Join(root, block, "device")); err != nil {
		t.Fatal(err)
	}
}

func TestFind_WhatTheAdministratorConnectedAndWhatDoesNotSuit(t *testing.T) {
	k := Kernel{Root: t.TempDir()}
	addController(t, k.Root, "1", nqnOne, hostA, "600")
	write(t, k.Root, "/sys/block/nvme1c1n1/hidden", "1\n")
	write(t, k.Root, "/sys/class/nvme/nvme0/transport", "pcie\n")
	device, err := k.Find(nqnOne, 0)
	if err != nil || device.Path != "/dev/nvme1n1" || device.Namespace != 1 {
		t.Fatalf("%+v, %v", device, err)
	}
	said := strings.Join(device.Warnings, "\n")
	for _, want := range []string{
		"ctrl_loss_tmo is 600", "echo 0 >/sys/class/nvme/nvme1/ctrl_loss_tmo",
		"fast_io_fail_tmo is off",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("warnings %q do not say %q", said, want)
		}
	}
	if len(device.Warnings) != 2 {
		t.Errorf("%d warnings: %q", len(device.Warnings), said)
	}
	if _, err := k.Find(nqnOne, 2); err == nil || !strings.Contains(err.Error(), "namespace 2") {
		t.Error(err)
	}
	addController(t, k.Root, "2", nqnOne, "nqn.2026-01.com.example:other", "0")
	if _, err := k.Find(nqnOne, 1); err == nil || !strings.Contains(err.Error(), "/dev/nvme1n1 and /dev/nvme2n1 fit") {
		t.Error(err)
	}
}

// Nothing is written to the kernel where the connection is there.
func TestConnect_KeepsWhatIsThere(t *testing.T) {
	k := Kernel{Root: t.TempDir()}
	addController(t, k.Root, "1", nqnOne, hostA, "0")
	device, err := k.Connect(context.Background(), fine(), 1)
	if err != nil || device.IsNew || device.Path != "/dev/nvme1n1" || len(device.Warnings) != 0 {
		t.Fatalf("%+v, %v", device, err)
	}
}

func TestConnect_RefusesASecondPath(t *testing.T) {
	k := Kernel{Root: t.TempDir()}
	addController(t, k.Root, "1", nqnOne, "nqn.2026-01.com.example:other", "0")
	write(t, k.Root, "/sys/module/nvme_core/parameters/multipath", "Y\n")
	if _, err := k.Connect(context.Background(), fine(), 0); !errors.Is(err, ErrMultipath) ||
		!strings.Contains(err.Error(), "nvme_core.multipath=N") {
		t.Fatal(err)
	}
}

func TestConnect_NoModule(t *testing.T) {
	if _, err := (Kernel{Root: t.TempDir()}).Connect(context.Background(), fine(), 0); !errors.Is(err, ErrMissing) ||
		!strings.Contains(err.Error(), "modprobe nvme-tcp") {
		t.Fatal(err)
	}
}

// Lines as Linux 6.12 and 7.2 wrote them.
func TestExplain_KernelsWords(t *testing.T) {
	for _, tc := range []struct {
		said string
		err  error
		why  error
		want string
	}{
		{
			"nvme nvme4: Connect for subsystem " + nqnOne + " is not allowed, hostnqn: " + hostA +
				"\nnvme nvme4: failed to connect queue: 0 ret=16772\n", syscall.EIO, ErrNotAllowed,
			"host NQN " + hostA + " is not allowed",
		},
		{
			"nvme nvme4: Connect Invalid Data Parameter, subsysnqn \"" + nqnOne +
				"\"\nnvme nvme4: failed to connect queue: 0 ret=16770\n", syscall.EIO, ErrNoSubsystem,
			"has no subsystem of this name",
		},
		{"nvme nvme4: failed to connect socket: -111\n", syscall.ECONNREFUSED, ErrUnreachable, "nothing listens there"},
		{"nvme nvme4: rdma_resolve_addr failed (-101).\n", syscall.EIO, ErrUnreachable, "no route to it"},
		{"nvme_fabrics: no handler found for transport rdma.\n", syscall.EINVAL, ErrMissing, "modprobe nvme-"},
		{
			"nvme_fabrics: unknown parameter or missing value 'dhchap_secret=DHHC-1:00:xyz' in ctrl creation request\n",
			syscall.EINVAL, ErrMissing, "CONFIG_NVME_HOST_AUTH",
		},
		{"nvme nvme1: qid 0: authentication failed\n", syscall.EIO, ErrKey, "does not accept the key"},
		{
			"nvme nvme1: I/O tag 0 (1000) type 4 opcode 0x7f (Fabrics Cmd) QID 0 timeout\nnvme nvme1: qid 0 " +
				"auth_send failed with error -4\nnvme nvme1: qid 0: authentication failed\n", syscall.EIO, ErrKey,
			"or did not answer while keys were compared",
		},
		{
			"nvme nvme1: I/O 3 QID 0 timeout\nnvme nvme1: qid 0: authentication failed\n", syscall.EIO, ErrKey,
			"or did not answer while keys were compared",
		},
		{
			"nvme nvme1: qid 0: authentication setup failed\n", syscall.ETIMEDOUT, ErrKey,
			"or did not answer while keys were compared",
		},
		{"nvme nvme1: Connect command failed: authentication required\n", syscall.EIO, ErrKey, "wants a key"},
		{"nvme nvme0: qid 0: no key\nnvme nvme0: qid 0: authentication setup failed\nnvme nvme0: failed to connect " +
			"queue: 0 ret=-126\n", syscall.ENOKEY, ErrKey, "wants a key"},
		{"", syscall.EPERM, ErrRights, "only root"},
		{"", syscall.EIO, ErrOther, "dmesg"},
	} {
		err := fine().explain(tc.err, tc.said)
		if !errors.Is(err, tc.why) || !strings.Contains(err.Error(), tc.want) ||
			!strings.Contains(err.Error(), nqnOne) || strings.Contains(err.Error(), "xyz") {
			t.Errorf("%q: %v", tc.said, err)
		}
	}
}

// The keys are in files of their owner alone: a line, or what farlog target nvmet key writes.
func TestReadKeys_NotForOthersAndNotDamaged(t *testing.T) {
	dir := t.TempDir()
	drawn, err := nvmet.NewKey("sha256")
	if err != nil {
		t.Fatal(err)
	}
	key, other := drawn.Reveal(), "A"
	if key[10] == 'A' {
		other = "B"
	}
	damaged := key[:10] + other + key[11:]
	both := func(host, key string) string {
		return `{"hostnqn":"` + host + `","dhchap_key":"` + key + `","dhchap_ctrl_key":"` + key + `"}`
	}
	for name, tc := range map[string]struct {
		text string
		mode os.FileMode
		want string
		ctrl string
	}{
		"line":         {key + "\n", 0o600, "", ""},
		"both":         {both(hostA, key), 0o600, "", key},
		"others":       {key, 0o640, "chmod 600", ""},
		"damaged":      {damaged, 0o600, "damaged", ""},
		"both damaged": {both(hostA, damaged), 0o600, "damaged", ""},
		"both of another": {
			both("nqn.2026-01.com.example:x", key), 0o600,
			"has the keys of host NQN nqn.2026-01.com.example:x", "",
		},
		"another's secret":  {"hunter2", 0o600, "no key of DH-HMAC-CHAP", ""},
		"JSON, but damaged": {"{hunter2", 0o600, "not what farlog target nvmet key wrote", ""},
	} {
		s := fine()
		s.KeyFile = filepath.Join(dir, name)
		if err := os.WriteFile(s.KeyFile, []byte(tc.text), tc.mode); err != nil {
			t.Fatal(err)
		}
		found, err := s.readKeys()
		if tc.want == "" && (err != nil || found.host != key || found.ctrl != tc.ctrl) {
			t.Errorf("%s: %v", name, err)
		}
		if tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want) ||
			strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), key[11:40])) {
			t.Errorf("%s: %v", name, err)
		}
		if command := s.Command(); strings.Contains(command, key[11:40]) ||
			!strings.Contains(command, "--dhchap-secret=") ||
			strings.Contains(command, "--dhchap-ctrl-secret=") != strings.HasPrefix(tc.text, "{") {
			t.Errorf("%s: %s", name, command)
		}
	}
}

func TestWithHost_IsTheSameEachTime(t *testing.T) {
	k := Kernel{Root: t.TempDir()}
	s := fine()
	s.HostNQN, s.HostID = "", ""
	if _, err := k.WithHost(s); err == nil {
		t.Fatal("a host of nothing")
	}
	write(t, k.Root, "/etc/machine-id", "0123456789abcdef0123456789abcdef\n")
	first, err := k.WithHost(s)
	second, _ := k.WithHost(s)
	if err != nil || first != second || !isUUID(first.HostID) || !strings.HasSuffix(first.HostNQN, first.HostID) {
		t.Fatalf("%+v, %v", first, err)
	}
	write(t, k.Root, "/etc/nvme/hostnqn", hostA+"\n")
	if _, err := k.WithHost(s); err == nil || !strings.Contains(err.Error(), "only one is there") {
		t.Fatal(err)
	}
	write(t, k.Root, "/etc/nvme/hostid", idA+"\n")
	if third, err := k.WithHost(s); err != nil || third.HostID != idA {
		t.Fatalf("%+v, %v", third, err)
	}
}

// A device that goes is told once, as is the one that comes after it.
func TestKeep_TellsWhatHasChanged(t *testing.T) {
	k := Kernel{Root: t.TempDir()}
	addController(t, k.Root, "1", nqnOne, hostA, "0")
	ctx, stop := context.WithCancel(context.Background())
	events, done := make(chan Event, 10), make(chan struct{})
	go func() {
		defer close(done)
		k.Keep(ctx, []Spec{fine()}, 0, func(event Event) { events <- event })
	}()
	if event := <-events; event.Err != nil || event.Device.Path != "/dev/nvme1n1" {
		t.Fatalf("%+v", event)
	}
	for _, path := range []string{"/sys/class/nvme/nvme1", "/sys/block/nvme1n1"} {
		if err := os.RemoveAll(filepath.Join(k.Root, path)); err != nil {
			t.Fatal(err)
		}
	}
	if event := <-events; !event.IsLost || !errors.Is(event.Err, ErrMissing) {
		t.Fatalf("%+v", event)
	}
	addController(t, k.Root, "3", nqnOne, hostA, "0")
	if event := <-events; event.Err != nil || event.Device.Path != "/dev/nvme3n1" {
		t.Fatalf("%+v", event)
	}
	stop()
	<-done
	if len(events) != 0 {
		t.Fatalf("%d more were told: %+v", len(events), <-events)
	}
}

// Each namespace that is wanted is connected by the first of its specs that succeeds, and kept; one that is wanted no
// more, or that cannot be, is left alone.
func TestConnections_KeepWhatIsWanted(t *testing.T) {
	k := Kernel{Root: t.TempDir()}
	addController(t, k.Root, "1", nqnOne, hostA, "0")
	refused := fine()
	refused.Address = "storage1"
	other := fine()
	other.NQN += "-other"
	events := make(chan Event, 10)
	c := NewConnections(k, func(_ Wanted, event Event) { events <- event })
	defer c.Close()
	one := Wanted{Target: "storage1", Name: "desk7", NQN: nqnOne, Specs: []Spec{refused, fine()}}
	bad := Wanted{Name: "bad", NQN: nqnOne + "-bad", Err: errors.New("another NQN")}
	c.Follow([]Wanted{bad, one})
	if event := <-events; event.Err == nil || event.Err.Error() != "another NQN" {
		t.Fatalf("%+v, want why the first cannot be connected", event)
	}
	if event := <-events; event.Err != nil || event.Device.Path != "/dev/nvme1n1" {
		t.Fatalf("%+v, want it connected by its second spec", event)
	}
	c.Follow([]Wanted{one, {Name: "other", NQN: other.NQN, Specs: []Spec{other}}})
	if event := <-events; !errors.Is(event.Err, ErrMissing) {
		t.Fatalf("%+v, want that the module is missing", event)
	}
	list := c.List()
	if len(list) != 2 || list[0].Device.Path != "/dev/nvme1n1" || list[0].Err != nil || list[1].Err == nil {
		t.Errorf("list is %+v, want desk7 connected and other not, and nothing else", list)
	}
	c.Follow(nil)
	if len(c.List()) != 0 || len(k.Controllers()) != 1 {
		t.Errorf("left are %+v and %d connections, want none and the one of before", c.List(), len(k.Controllers()))
	}
	if len(events) != 0 {
		t.Errorf("%d more were told, such as %+v", len(events), <-events)
	}
}

// A connection that was lost and made again between two looks is told: its device is another one, although it may have
// the same name.
func TestKeep_TellsOfANewDeviceOfTheSameName(t *testing.T) {
	k := Kernel{Root: t.TempDir()}
	fabrics := filepath.Join(k.Root, "dev/nvme-fabrics")
	write(t, k.Root, "/dev/nvme-fabrics", "")
	asked := func() {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			raw, err := os.ReadFile(fabrics)
			if err == nil && strings.HasPrefix(string(raw), "nqn="+nqnOne) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("the kernel was not asked to connect: %q, %v", raw, err)
			}
		}
		write(t, k.Root, "/dev/nvme-fabrics", "")
		addController(t, k.Root, "1", nqnOne, hostA, "0")
	}
	ctx, stop := context.WithCancel(context.Background())
	events, done := make(chan Event, 10), make(chan struct{})
	go func() {
		defer close(done)
		k.Keep(ctx, []Spec{fine()}, 0, func(event Event) { events <- event })
	}()
	for range 2 {
		asked()
		if event := <-events; event.Err != nil || event.Device.Path != "/dev/nvme1n1" || !event.Device.IsNew {
			t.Fatalf("%+v, want a new /dev/nvme1n1", event)
		}
		for _, path := range []string{"/sys/class/nvme/nvme1", "/sys/block/nvme1n1"} {
			if err := os.RemoveAll(filepath.Join(k.Root, path)); err != nil {
				t.Fatal(err)
			}
		}
	}
	stop()
	<-done
}

// hangingKernel keeps who connects in its write, as a kernel whose target does not answer, until the bytes that it is
// full of are read. connecting counts who is there.
func hangingKernel(t *testing.T, k Kernel) (kernel *os.File, full int, connecting func() int) {
	t.Helper()
	write(t, k.Root, "/dev/nvme-fabrics", "")
	fabrics := filepath.Join(k.Root, "dev/nvme-fabrics")
	err := errors.Join(os.Remove(fabrics), syscall.Mkfifo(fabrics, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	kernel, err = os.OpenFile(fabrics, os.O_RDWR|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kernel.Close() })
	if err := kernel.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		var n int
		n, err = kernel.Write(make([]byte, 4096))
		full += n
	}
	return kernel, full, func() (count int) {
		links, err := filepath.Glob("/proc/self/fd/*")
		if err != nil {
			t.Fatal(err)
		}
		for _, link := range links {
			if path, err := os.Readlink(link); err == nil && path == fabrics {
				count++
			}
		}
		return count - 1 // the test's own
	}
}

// A subsystem that is wanted otherwise while the kernel still connects it is connected once: who follows waits for who
// went before, also where it was not wanted for a while between.
func TestConnections_OneConnectsAtATime(t *testing.T) {
	k := Kernel{Root: t.TempDir()}
	kernel, full, connecting := hangingKernel(t, k)
	events := make(chan Event, 10)
	c := NewConnections(k, func(_ Wanted, event Event) { events <- event })
	defer c.Close()
	wanted := func(address string) []Wanted {
		spec := fine()
		spec.Address = address
		return []Wanted{{Name: "desk7", NQN: nqnOne, Specs: []Spec{spec}}}
	}
	c.Follow(wanted("10.0.0.7"))
	for deadline := time.Now().Add(time.Minute); connecting() != 1; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the kernel was not asked to connect")
		}
	}
	c.Follow(wanted("10.0.0.8"))
	c.Follow(nil)
	c.Follow(wanted("10.0.0.9"))
	for until := time.Now().Add(300 * time.Millisecond); time.Now().Before(until); time.Sleep(time.Millisecond) {
		if count := connecting(); count != 1 {
			t.Errorf("%d connect the subsystem at once", count)
			break
		}
	}
	addController(t, k.Root, "1", nqnOne, hostA, "0")
	asked := make([]byte, full+4096)
	for read := 0; ; {
		n, err := kernel.Read(asked[read:])
		if err != nil {
			t.Fatal(err)
		}
		if read += n; read > full {
			asked = asked[full:read]
			break
		}
	}
	if event := <-events; event.Err != nil || event.Device.Path != "/dev/nvme1n1" || event.Device.IsNew {
		t.Errorf("%+v, want the device that was there", event)
	}
	if text := string(asked); strings.Count(text, "nqn="+nqnOne) != 1 || !strings.Contains(text, "traddr=10.0.0.7,") {
		t.Errorf("the kernel was asked for %q, want one connection", text)
	}
}
