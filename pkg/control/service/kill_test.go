package service

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/internal/testenv"
)

// controlDirVariable makes the test binary a control plane, to be killed by its parent.
const controlDirVariable = "FARLOG_TEST_CONTROL_DIR"

func TestMain(m *testing.M) {
	testenv.ServeChild(controlDirVariable, serveUntilKilled)
	testenv.ServeMember()
	// An etcd that finds its directory damaged leaves these behind when it refuses to start.
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("go.etcd.io/etcd/server/v3/storage/backend.(*backend).run"),
		goleak.IgnoreAnyFunction("go.etcd.io/etcd/server/v3/storage/wal.(*filePipeline).run"))
}

// roundsMore is how often a test of kills that has not seen a single grant goes on.
const roundsMore = 10

func serveUntilKilled(dir string) error {
	etcd, err := etcd.Open(context.Background(), etcd.Options{Dir: dir})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := New(Config{
		Client: etcd.Client(), Logger: slog.New(slog.DiscardHandler), IsSole: true,
		Lease: 2 * time.Second,
	})
	return server.Run(context.Background(), listener, func() { fmt.Println(listener.Addr()) })
}

// startProcess runs a control plane in a process of its own and returns once it answers.
func startProcess(t *testing.T, dir string) (one *instance, kill func()) {
	t.Helper()
	output, kill := testenv.StartChild(t, controlDirVariable, dir)
	address, err := output.ReadString('\n')
	if err != nil {
		t.Fatalf("control did not start: %v", err)
	}
	return dialInstance(t, strings.TrimSpace(address)), kill
}

// TestKill_EpochsAndStreamsSurviveSIGKILL proves that whatever was answered was persisted before: a control plane is
// killed at random moments while epochs are granted and streams made; after each restart every stream answered is
// still there with its id and salt, and no epoch is ever given twice or lower than one before.
func TestKill_EpochsAndStreamsSurviveSIGKILL(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	streams := map[string]*api.Stream{}
	lastEpoch := uint32(0)
	count := killCount(t)
	// more of them, and longer ones, where the machine is too slow for any grant
	for round := 0; round < count || lastEpoch == 0 && round < count+roundsMore; round++ {
		one, kill := startProcess(t, dir)
		for name, stream := range streams {
			if got := one.status(name).Stream; got.StreamId != stream.StreamId || got.Salt != stream.Salt {
				t.Fatalf("stream %s changed over a kill: %v, was %v", name, got, stream)
			}
		}
		if round == 0 {
			streams["a"] = one.create("a")
			one.reportTarget("t1", ring("a", "t1"))
		}
		killed := make(chan struct{})
		time.AfterFunc(time.Duration(random.IntN(150)+20)*time.Millisecond+time.Duration(max(0,
			round-count+1))*time.Second, func() {
			kill()
			close(killed)
		})
		lastEpoch = grantUntilKilled(t, one, streams, lastEpoch, round)
		<-killed
		one.conn.Close()
	}
	if lastEpoch == 0 {
		t.Error("nothing was ever granted: the test proves nothing")
	}
	t.Logf("%d epochs, %d streams", lastEpoch, len(streams))
}

// killCount is FARLOG_KILLS, for longer runs by hand, or a few.
func killCount(t *testing.T) int {
	text := os.Getenv("FARLOG_KILLS")
	if text == "" {
		return 8
	}
	count, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("FARLOG_KILLS %q: expected a number", text)
	}
	return count
}

// grantUntilKilled works until the control plane is gone and checks that epochs only rise.
func grantUntilKilled(t *testing.T, one *instance, streams map[string]*api.Stream, last uint32, round int) uint32 {
	t.Helper()
	for n := 0; ; n++ {
		grant, err := one.acquireOnce("a")
		if err != nil {
			return last
		}
		if grant.Epoch <= last {
			t.Fatalf("epoch %d after %d", grant.Epoch, last)
		}
		last = grant.Epoch
		name := fmt.Sprintf("s%d-%d", round, n)
		made, err := one.control.CreateStream(one.context(),
			&api.CreateStreamRequest{Spec: &api.StreamSpec{Name: name}})
		if err != nil {
			return last
		}
		streams[name] = made.Stream
	}
}
