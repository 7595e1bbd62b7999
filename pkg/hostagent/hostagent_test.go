package hostagent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// shortDir is one in which a socket's path is short enough.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "hostagent-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func start(t *testing.T, acquire func(context.Context, Request) (Grant, error)) (*Server, string) {
	t.Helper()
	socket := filepath.Join(shortDir(t), "made", "s")
	server, err := Listen(Config{
		Socket: socket, Acquire: acquire, Questions: Questions{Extend: extending},
		Route: routing, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-done, server.Close()); err != nil {
			t.Error(err)
		}
	})
	return server, socket
}

func granting(_ context.Context, request Request) (Grant, error) {
	if request.Stream == "none" {
		return Grant{}, &Refused{Result: "NOT_FOUND", Err: errors.New("there is no stream none")}
	}
	if request.Stream == "broken" {
		return Grant{}, errors.New("two\nlines " + strings.Repeat("long ", 200))
	}
	return Grant{
		URI: "mem:/x", Epoch: request.EpochSeen + 1, RingUUIDs: [][16]byte{{0xab}}, Tokens: [][]byte{{1, 2}},
		Terms: Terms{Level: 3, Deadline: time.Second},
	}, nil
}

func extending(_ context.Context, request ExtendRequest) ([]Extension, Terms, error) {
	if request.Epoch != 8 || request.PID != int32(os.Getpid()) {
		return nil, Terms{}, &Refused{
			Result: "INVALID",
			Err:    fmt.Errorf("epoch %d was not granted to process %d", request.Epoch, request.PID),
		}
	}
	terms := Terms{Level: 2}
	if request.Running != nil {
		terms = *request.Running
	}
	if len(request.RingUUIDs) == 1 {
		return nil, terms, nil
	}
	return []Extension{{
		Member: 1, URI: "ofi:tcp://x:1/a", RingUUID: [16]byte{0xcd},
		Token: bytes.Repeat([]byte{9}, 16),
	}}, terms, nil
}

func routing(_ context.Context, name string) ([]RouteLeg, error) {
	leg := RouteLeg{Stream: "desk7/orders", Policy: "fail", Level: 3, Deadline: time.Second, CriticalityMin: 2}
	switch name {
	case "desk7/all":
		return []RouteLeg{leg, {
			Stream: "a", IsOptional: true, Policy: "spill", BufferBytes: 9,
			Classes: [][2]uint32{{1, 3}, {9, 9}},
		}}, nil
	case "long":
		leg.Classes = make([][2]uint32, 500)
		return []RouteLeg{leg}, nil
	case "wide":
		leg.Classes = make([][2]uint32, 200)
		return []RouteLeg{leg, leg, leg, leg, leg, leg}, nil
	}
	return nil, &Refused{Result: "NOT_FOUND", Err: errors.New("there is no route " + name)}
}

func ask(t *testing.T, socket, packet string) string {
	t.Helper()
	conn, err := net.Dial("unixpacket", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := conn.Write([]byte(packet)); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, packetLenMax+1)
	length, err := conn.Read(answer)
	if err != nil {
		t.Fatal(err)
	}
	return string(answer[:length])
}

const head = "farlog-agent 1 writer\n" // of a packet

// answers are packets and how the answer to each begins.
var answers = []struct{ packet, want string }{
	{
		head + "stream desk7/orders\nepoch-seen 7\nname a b\n",
		"ok\nuri mem:/x\nepoch 8\nuuid ab000000000000000000000000000000\ntoken " +
			"01020000000000000000000000000000\nlevel 3\npolicy 0\ndeadline-ns 1000000000\n",
	},
	{
		"farlog-agent 1 reader\nstream desk7/orders\n",
		"ok\nuri mem:/x\nuuid ab000000000000000000000000000000\ntoken 01020000000000000000000000000000\n",
	},
	{
		"farlog-agent 1 reader\nstream a\nepoch-seen 7\n",
		"error INVALID\ntext line \"epoch-seen 7\" of a request for a reader",
	},
	{head + "stream none\n", "error NOT_FOUND\ntext there is no stream none\n"},
	{head + "stream broken\n", "error IO\ntext two; lines long "},
	{head, "error INVALID\ntext line \"\" of a request"},
	{head + "name x\n", "error INVALID\ntext request for a writer without stream"},
	{head + "stream a\nstream b\n", "error INVALID\ntext line \"stream b\""},
	{head + "stream a\nmode x\n", "error INVALID\ntext line \"mode x\""},
	{head + "stream a\nepoch-seen -1\n", "error INVALID\ntext epoch-seen \"-1\": expected a number"},
	{head + "stream " + strings.Repeat("a", 2000) + "\n", "error INVALID\ntext line \"stream aaa"},
	{head + strings.Repeat("a", packetLenMax), "error INVALID\ntext request of more than 4096 bytes"},
	{
		"farlog-agent 1 members\nstream a\nepoch 8\nrings " + strings.Repeat("ab", 16) + "\n",
		"ok\nlevel 2\npolicy 0\ndeadline-ns 0\n",
	},
	{"farlog-agent 1 members\nstream a\nepoch 8\nlevel 3\npolicy 1\ndeadline-ns 5000000000\nrings " +
		strings.Repeat("ab", 16) + "\n", "ok\nlevel 3\npolicy 1\ndeadline-ns 5000000000\n"},
	{
		"farlog-agent 1 members\nstream a\nepoch 8\nlevel 3\npolicy 1\ndeadline-ns 9223372036854775808\nrings " +
			strings.Repeat("ab", 16) + "\n",
		"error INVALID\ntext deadline-ns \"9223372036854775808\": expected a number up to 9223372036854775807",
	},
	{
		"farlog-agent 1 members\nstream a\nepoch 8\nrings " + strings.Repeat("ab", 32) + "\n",
		"ok\nuri-1 ofi:tcp://x:1/a\nuuid-1 cd000000000000000000000000000000\ntoken-1 " +
			"09090909090909090909090909090909\n",
	},
	{
		"farlog-agent 1 members\nstream a\nepoch 7\nrings " + strings.Repeat("ab", 32) + "\n",
		"error INVALID\ntext epoch 7 was not granted",
	},
	{"farlog-agent 1 members\nstream a\nepoch 8\nrings abc\n", "error INVALID\ntext rings \"abc\""},
	{"farlog-agent 1 members\nstream a\nepoch 8\n", "error INVALID\ntext request for a members without rings"},
	{
		"farlog-agent 1 route\nroute desk7/all\n",
		"ok\nleg-0 desk7/orders required fail 3 1000000000 0 2 all\nleg-1 a optional spill 0 0 9 0 1-3,9-9\n",
	},
	{"farlog-agent 1 route\nroute none\n", "error NOT_FOUND\ntext there is no route none\n"},
	{
		"farlog-agent 1 route\nroute long\n",
		"error INVALID\ntext route \"long\": stream \"desk7/orders\": classes of ",
	},
	{"farlog-agent 1 route\nroute wide\n", "error INVALID\ntext route \"wide\": rules of "},
	{"farlog-agent 2 writer\nstream a\n", "error UNSUPPORTED\ntext protocol version \"2\": this agent speaks 1"},
	{"farlog-agent 1 steal\nstream a\n", "error UNSUPPORTED\ntext verb \"steal\""},
	{"GET / HTTP/1.1\r\n", "error INVALID\ntext \"GET / HTTP/1.1\\r\" is no request"},
}

func TestServer_Answers(t *testing.T) {
	server, socket := start(t, granting)
	for _, test := range answers {
		got := ask(t, socket, test.packet)
		if !strings.HasPrefix(got, test.want) || strings.Count(got,
			"\n") != strings.Count(strings.TrimSuffix(got, "\n"), "\n")+1 || len(got) > 1000 {
			t.Errorf("%.60q: got %q, expected %q", test.packet, got, test.want)
		}
	}
	if counts := server.Counts(); counts.Granted != 3 || counts.Failed != 1 || counts.Refused != 19 {
		t.Errorf("counted %+v", counts)
	}
}

// A user who asks for everything at once has userMax of it under way, and the agent goes on when he is done.
func TestServer_OneUserDoesNotTakeAll(t *testing.T) {
	release := make(chan struct{})
	var slow atomic.Int32
	goOn := sync.OnceFunc(func() { close(release) })
	_, socket := start(t, func(ctx context.Context, request Request) (Grant, error) {
		if request.Stream == "slow" {
			slow.Add(1)
			<-release
		}
		return granting(ctx, request)
	})
	t.Cleanup(goOn)
	answers := make(chan string, userMax)
	for range userMax {
		go func() { answers <- ask(t, socket, "farlog-agent 1 writer\nstream slow\n") }()
	}
	deadline := time.Now().Add(30 * time.Second)
	for slow.Load() < userMax {
		if time.Sleep(time.Millisecond); time.Now().After(deadline) {
			t.Fatalf("%d of %d requests of a user are under way", slow.Load(), userMax)
		}
	}
	if got := ask(t, socket, "farlog-agent 1 writer\nstream quick\n"); !strings.HasPrefix(got, "error IO\ntext user ") {
		t.Errorf("one more: %q", got)
	}
	goOn()
	for range userMax {
		if got := <-answers; !strings.HasPrefix(got, "ok\n") {
			t.Errorf("got %q", got)
		}
	}
	for !strings.HasPrefix(ask(t, socket, "farlog-agent 1 writer\nstream quick\n"), "ok\n") {
		if time.Now().After(deadline) {
			t.Fatal("the user stays locked out")
		}
	}
}

func TestListen_TakesTheSocketOfTheDeadAndOfNobodyElse(t *testing.T) {
	_, socket := start(t, granting)
	config := Config{Socket: socket, Acquire: granting, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}
	if _, err := Listen(config); err == nil || !strings.Contains(err.Error(), "another host agent answers there") {
		t.Errorf("beside a living one: %v", err)
	}
	dir := shortDir(t)
	config.Socket = filepath.Join(dir, "dead")
	dead, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: config.Socket, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	server, err := Listen(config)
	if err != nil {
		t.Fatalf("behind a dead one: %v", err)
	}
	server.Close()
	config.Socket = filepath.Join(dir, "file")
	if err := os.WriteFile(config.Socket, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(config); err == nil || !strings.Contains(err.Error(), "there is something else") {
		t.Errorf("in the place of a file: %v", err)
	}
	if raw, err := os.ReadFile(config.Socket); err != nil || string(raw) != "precious" {
		t.Errorf("the file: %q, %v", raw, err)
	}
	config.Socket = filepath.Join(dir, strings.Repeat("x", 200))
	if _, err := Listen(config); err == nil {
		t.Error("a path that is too long")
	}
}

func TestMay(t *testing.T) {
	rules, err := ParseRules([]string{"4242=desk7/*", "@4343=desk8/**", "root=none"})
	if err != nil {
		t.Fatal(err)
	}
	readers, err := ParseRules([]string{"4444=desk7/*"})
	if err != nil {
		t.Fatal(err)
	}
	server := &Server{config: Config{Rules: rules, Readers: readers}}
	for _, test := range []struct {
		uid, gid uint32
		stream   string
		want     bool
	}{
		{4242, 1, "desk7/orders", true},
		{4444, 1, "desk7/orders", false},
		{4242, 1, "desk8/orders", false},
		{4242, 4343, "desk8/a/b", true},
		{4343, 1, "desk8/a", false},
		{9999, 4242, "desk7/orders", false},
		{0, 0, "anything", true},
	} {
		if err := server.may(peer{uid: test.uid, gid: test.gid}, test.stream, false); (err == nil) != test.want {
			t.Errorf("%d:%d on %s: %v", test.uid, test.gid, test.stream, err)
		}
	}
	for uid, isAllowed := range map[uint32]bool{0: true, 4242: false, 4444: true} {
		if err := server.may(peer{uid: uid, gid: 1}, "desk7/orders", true); (err == nil) != isAllowed || err != nil &&
			!strings.Contains(err.Error(),
				"may not read stream \"desk7/orders\" by this agent: expected a --host-read") {
			t.Errorf("%d reads: %v", uid, err)
		}
	}
	if server.config.Readers, err = ParseRules([]string{"4444=*", "4444=**", "4545=farlog/*"}); err != nil {
		t.Fatal(err)
	}
	for uid, mayRead := range map[uint32]bool{0: true, 4242: false, 4444: false, 4545: true} {
		if err := server.may(peer{uid: uid, gid: 1}, "farlog/audit", true); (err == nil) != mayRead {
			t.Errorf("%d reads what the control plane writes: %v", uid, err)
		}
		if err := server.may(peer{uid: uid, gid: 1}, "farlog/audit", false); err == nil ||
			!strings.Contains(err.Error(), "written by the control plane alone") {
			t.Errorf("%d writes what the control plane writes: %v", uid, err)
		}
	}
	for _, bad := range []string{
		"", "desk7/*", "=desk7", "@=desk7", "4242=", "nobody-of-this-name=a",
		"@nobody-of-this-name=a", "4242=[", fmt.Sprint(1<<33, "=a"),
	} {
		if rules, err := ParseRules([]string{bad}); err == nil ||
			!strings.Contains(err.Error(), fmt.Sprintf("%q", bad)) {
			t.Errorf("%q: %v, %v", bad, rules, err)
		}
	}
}

func TestDevices(t *testing.T) {
	nowhere := func(name string) (string, error) {
		if name == "nqn.2026-01.com.example:desk7/1" {
			return "/dev/nvme3n1", nil
		}
		return "", errors.New(name + " is not connected")
	}
	rules, err := ParseDevices([]string{
		"/dev/loop7=4242", "nqn.2026-01.com.example:desk7/1=@4343",
		"nqn.2026-01.com.example:desk8/1=4242",
	}, nowhere)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		uid, gid uint32
		path     string
		want     bool
	}{
		{4242, 1, "/dev/loop7", true},
		{4242, 1, "/dev/loop8", false},
		{1, 4343, "/dev/nvme3n1", true},
		{4343, 1, "/dev/nvme3n1", false},
		{1, 4343, "/dev/loop7", false},
	} {
		if err := mayOpen(rules, peer{uid: test.uid, gid: test.gid}, test.path); (err == nil) != test.want {
			t.Errorf("%d:%d on %s: %v", test.uid, test.gid, test.path, err)
		}
	}
	if err := mayOpen(rules, peer{uid: 4242, gid: 1}, "/dev/nvme3n1"); err == nil ||
		!strings.Contains(err.Error(), "desk8/1 is not connected") {
		t.Errorf("a namespace that is gone: %v", err)
	}
	for _, bad := range []string{
		"", "/dev/loop7", "=4242", "/dev/loop7=", "/dev/../etc/shadow=4242",
		"/etc/shadow=4242", "desk7=4242", "nqn/=4242", "/dev/loop7=nobody-of-this-name",
	} {
		if _, err := ParseDevices([]string{bad}, nowhere); err == nil ||
			!strings.Contains(err.Error(), fmt.Sprintf("%q", bad)) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	_, socket := start(t, granting)
	for packet, want := range map[string]string{
		"path /dev/null\naccess write\n": "error INVALID\ntext /dev/null is no block device",
		"path /dev/none-of-this\naccess read\n": "error IO\ntext the host agent cannot open /dev/none-of-this: no " +
			"such file",
		"path /etc/passwd\naccess read\n": "error INVALID\ntext path \"/etc/passwd\": expected a device",
		"path /dev/null\naccess all\n":    "error INVALID\ntext access \"all\": expected read or write",
	} {
		if got := ask(t, socket, "farlog-agent 1 device\n"+packet); !strings.HasPrefix(got, want) {
			t.Errorf("%q: got %q", packet, got)
		}
	}
}

// A namespace is where its rule says when that is asked first, and no longer when its name has been opened: what was
// opened is not the user's.
func TestDevices_NamespaceMovesBeforeItsNameIsOpened(t *testing.T) {
	disks, _ := filepath.Glob("/sys/class/block/[!l]*") // others attach and detach loop devices
	for _, disk := range disks {
		path, asked := "/dev/"+filepath.Base(disk), 0
		rule := DeviceRule{
			Device: "nqn.2026-01.com.example:desk7/1", Rule: Rule{ID: 4242},
			Find: func() (string, error) { return path, nil },
		}
		server := &Server{config: Config{Logger: slog.New(slog.DiscardHandler), Devices: []DeviceRule{rule}}}
		open := func() (*reply, error) {
			return server.openDevice(peer{uid: 4242, gid: 1},
				request{values: map[string]string{"path": path, "access": "read"}})
		}
		made, err := open()
		if err != nil {
			continue // the kernel does not let us open this one
		}
		made.file.Close()
		server.config.Devices[0].Find = func() (string, error) {
			if asked++; asked > 1 {
				return "/dev/nvme1n2", nil
			}
			return path, nil
		}
		if made, err = open(); err == nil {
			made.file.Close()
			t.Errorf("%s was handed over although it is another namespace's by now", path)
		}
		return
	}
	t.Skip("no block device can be opened here")
}

func FuzzParseRequest(f *testing.F) {
	f.Add("farlog-agent 1 writer\nstream desk7/orders\nepoch-seen 7\n")
	f.Fuzz(func(t *testing.T, packet string) {
		asked, err := parseRequest(packet)
		if err == nil && asked.verb == verbWriter && (asked.values["stream"] == "" ||
			strings.ContainsAny(asked.values["stream"], "\n")) {
			t.Errorf("%q: %+v", packet, asked)
		}
		var refused *refusal
		if err != nil && (!errors.As(err, &refused) || strings.Count(refusalReply(refused), "\n") != 2) {
			t.Errorf("%q: %v", packet, err)
		}
	})
}
