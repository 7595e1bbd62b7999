// Package hostile plays attacks against daemons of the super-user: by a local user without a right, by whoever reaches
// a port, and by a tenant who has a writer's key or the store's directory. Beside each of them a neighbour appends:
// none of its appends fails, and all that it was acknowledged is in the store.
package hostile

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/internal/testenv"
	"github.com/farlog/farlog/pkg/store"
)

const (
	nobody         = 65534
	neighbourName  = "desk8/orders"
	malloryName    = "mallory/own"
	appendDeadline = 30 * time.Second // it is never what a test measures
	appendsLeast   = 50               // of the neighbour during an attack
)

func TestMain(m *testing.M) {
	if attack := os.Getenv(attackVariable); attack != "" {
		os.Exit(play(attack, os.Args[1:]))
	}
	testenv.Main(m)
}

// world is a cluster whose target is reached over the network, a host agent, and the neighbour.
type world struct {
	*testing.T
	cluster   *testenv.Cluster
	agent     *testenv.Process
	addresses map[string]string // by role: where its metrics are
	socket    string
	binary    string // of these tests, where everybody may run it
	neighbour *neighbour
}

func newWorld(t *testing.T) *world {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs the super-user: daemons run as root, and attacks as nobody")
	}
	return newWorldIn(t, testenv.MemoryDir(t), "visible")
}

// newWorldIn is one whose rings are in a directory, and whose streams ask for a level.
func newWorldIn(t *testing.T, dir, level string, drainArgs ...string) *world {
	t.Helper()
	w := &world{T: t, socket: filepath.Join(dir, "agent"), binary: filepath.Join(dir, "hostile.test")}
	w.must(os.Chmod(dir, 0o755))
	w.must(copyProgram(w.binary))
	w.cluster = testenv.PrepareRemoteCluster(t, dir, "127.0.0.1", nil,
		append([]string{"--store-segment", "1MiB"}, drainArgs...)...)
	w.cluster.MetricsListen = "127.0.0.1:0"
	w.cluster.Start()
	var ready testenv.Ready
	w.agent, ready = testenv.StartDaemon(t, dir, "host", "--data-dir", filepath.Join(dir, "host"), "--control",
		w.cluster.ControlAddress, "--host-name", "trading1", "--metrics-listen", "127.0.0.1:0", "--host-socket",
		w.socket)
	w.cluster.Watch(w.agent)
	w.addresses = w.cluster.Metrics
	w.addresses["host"] = ready.Metrics
	for _, name := range []string{neighbourName, malloryName} {
		w.cluster.CreateStream(name, "--size", "8MiB", "--record-len-max", "64KiB", "--level", level)
	}
	w.neighbour = startNeighbour(w)
	return w
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) path(names ...string) string {
	return filepath.Join(append([]string{w.cluster.Dir}, names...)...)
}

// open opens a writer by the host agent, as a program that knows a stream's name does.
func (w *world) open(stream string) *farlog.Writer {
	w.Helper()
	writer, err := farlog.OpenWriter("farlog://"+stream+"?agent="+w.socket, farlog.WriterOptions{Name: "hostile"})
	w.must(err)
	return writer
}

// attack plays something, with the neighbour's appends watched. No daemon has ended afterwards.
func (w *world) attack(name string, play func(w *world)) {
	w.Helper()
	w.Run(name, func(t *testing.T) {
		inside := *w
		inside.T = t
		before := w.neighbour.look(t).appended
		w.neighbour.forgetSlowest()
		play(&inside)
		testenv.Until(t, "the neighbour has appended", func() (bool, error) {
			return w.neighbour.look(t).appended >= before+appendsLeast, nil
		})
		seen := w.neighbour.look(t)
		t.Logf("the neighbour appended %d records, the slowest in %s", seen.appended-before, seen.slowest)
		for _, one := range []*testenv.Process{w.cluster.Control, w.cluster.Target, w.cluster.Drain, w.agent} {
			if one.HasEnded() {
				t.Errorf("%s has ended: %s", one.Name, one.Log())
			}
		}
	})
}

// neighbour appends numbers, one behind the other, until it is stopped.
type neighbour struct {
	writer *farlog.Writer
	stop   chan struct{}
	done   sync.WaitGroup

	mutex sync.Mutex
	seen  seen
}

type seen struct {
	appended uint64
	slowest  time.Duration // since forgetSlowest
	err      error
}

func startNeighbour(w *world) *neighbour {
	n := &neighbour{writer: w.open(neighbourName), stop: make(chan struct{})}
	n.done.Go(n.run)
	return n
}

func (n *neighbour) run() {
	for number := uint64(0); ; number++ {
		select {
		case <-n.stop:
			return
		case <-time.After(time.Millisecond): // it is an honest one, and leaves the processor to others
		}
		began := time.Now()
		_, err := n.writer.Append(farlog.Entry{Data: binary.LittleEndian.AppendUint64(nil, number)}, appendDeadline)
		n.mutex.Lock()
		n.seen.slowest = max(n.seen.slowest, time.Since(began))
		if n.seen.err = err; err == nil {
			n.seen.appended++
		}
		n.mutex.Unlock()
		if err != nil {
			return
		}
	}
}

// look fails the test when an append has failed.
func (n *neighbour) look(t *testing.T) seen {
	t.Helper()
	n.mutex.Lock()
	defer n.mutex.Unlock()
	if n.seen.err != nil {
		t.Fatalf("append %d of the neighbour: %v", n.seen.appended, n.seen.err)
	}
	return n.seen
}

func (n *neighbour) forgetSlowest() {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	n.seen.slowest = 0
}

// finish checks that all that the neighbour was acknowledged is in the store, once and in order.
func (w *world) finish() {
	w.Helper()
	n := w.neighbour
	close(n.stop)
	n.done.Wait()
	acknowledged := n.look(w.T).appended
	n.writer.Close()
	w.waitStored(neighbourName, int(acknowledged), func(item store.Item, i int) bool {
		return len(item.Payload) == 8 && binary.LittleEndian.Uint64(item.Payload) == uint64(i)
	})
	w.Logf("all %d records of the neighbour are in the store", acknowledged)
}

// waitStored waits until a stream has as many records in the store, each of which must be as it is expected.
func (w *world) waitStored(stream string, count int, isExpected func(item store.Item, i int) bool) {
	w.Helper()
	found := 0
	testenv.Until(w.T, "the store has "+strconv.Itoa(count)+" records of "+stream, func() (bool, error) {
		found = 0
		opened, err := store.Open(w.cluster.StoreDir, store.Options{})
		if err != nil {
			return false, err
		}
		reader, err := opened.OpenReader(stream, store.ReaderOptions{})
		if errors.Is(err, store.ErrNotFound) {
			return false, nil
		} else if err != nil {
			return false, err
		}
		defer reader.Close()
		for item, err := reader.Next(); !errors.Is(err, io.EOF); item, err = reader.Next() {
			if err != nil {
				return false, err
			}
			if !isExpected(item, found) {
				return false, errors.New("record " + strconv.Itoa(found) + " is another one than was appended")
			}
			found++
		}
		return found >= count, nil
	})
	if found != count {
		w.Fatalf("the store has %d records of %s, expected %d", found, stream, count)
	}
}

func copyProgram(to string) error {
	raw, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(to, raw, 0o755), os.Chmod(to, 0o755))
}

// daemonFiles are all files below the cluster's directory that are not the tests' own.
func (w *world) daemonFiles() (files []string) {
	w.Helper()
	w.must(filepath.WalkDir(w.cluster.Dir, func(path string, entry os.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) {
			return nil // of a daemon that replaces it
		}
		if err == nil && entry.Type().IsRegular() && path != w.binary && !strings.HasSuffix(path, ".ready") {
			files = append(files, path)
		}
		return err
	}))
	slices.Sort(files)
	return files
}
