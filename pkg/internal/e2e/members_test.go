package e2e

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/internal/testenv"
)

const (
	memberCount       = 3
	spareCount        = 2  // targets that may come later
	memberFaultsShort = 12 // in make test; FARLOG_MEMBER_FAULTS says otherwise
	// of an append, which one that waited for the member at fault would pass: it is at fault until appends went on
	memberDeadline = 10 * time.Second
	memberLoss     = 10
	memberPhase    = 100 // acknowledgements while a member is at fault, and after
)

// memberSite is a control plane, a drain and three targets, each on a host of its own as far as the roles can tell; the
// writer is on the other end of a cable.
type memberSite struct {
	*testing.T
	network *testenv.Network
	cluster *testenv.Cluster
	ports   [memberCount + spareCount]int
	targets [memberCount + spareCount]*testenv.Process
}

func newMemberSite(t *testing.T, args ...string) *memberSite {
	t.Helper()
	s := &memberSite{T: t, network: testenv.NewNetwork(t)}
	under := s.network.Under(s.network.Storage())
	s.cluster = testenv.PrepareRemoteCluster(t, testenv.MemoryDir(t), testenv.StorageAddress, under)
	s.cluster.StartControl()
	for i := range memberCount {
		s.startTarget(i)
	}
	s.cluster.StartDrain()
	testenv.MustRunUnder(t, under, "farlog", append([]string{
		"stream", "create", streamName, "--members", "3",
		"--needed", "2", "--level", "visible", "--wait", "20s",
		"--control", s.cluster.ControlAddress,
	}, args...)...)
	return s
}

func (s *memberSite) dir(i int) string { return filepath.Join(s.cluster.Dir, fmt.Sprint("target", i)) }

func (s *memberSite) startTarget(i int) {
	s.Helper()
	if err := os.MkdirAll(s.dir(i), 0o755); err != nil {
		s.Fatal(err)
	}
	if s.ports[i] == 0 {
		s.ports[i] = testenv.FreePort(s.T)
	}
	s.targets[i], _ = testenv.StartDaemonUnder(s.T, s.cluster.Under, s.dir(i), "target", "--data-dir", s.dir(i),
		"--control", s.cluster.ControlAddress, "--metrics-listen", "off",
		"--host-name", fmt.Sprint("storage", i), "--listen",
		"ofi:tcp://"+testenv.StorageAddress+":"+strconv.Itoa(s.ports[i]))
}

// rings are the URIs by which the test itself looks at them.
func (s *memberSite) rings() []string {
	s.Helper()
	var uris []string
	for i := range memberCount {
		found, err := filepath.Glob(filepath.Join(s.dir(i), "rings", "*.ring"))
		if err != nil || len(found) != 1 {
			s.Fatalf("rings of target %d: %q, %v", i, found, err)
		}
		uris = append(uris, "mem:"+found[0])
	}
	return uris
}

// memberWriter is lossyWriter of a stream with members.
type memberWriter struct {
	lossyWriter
	copies atomic.Int64 // of the last acknowledgement
	ring   string       // the URI of its grant
}

// open takes a grant and opens the stream with it.
func (w *memberWriter) open(s *memberSite) (*farlog.Writer, error) {
	path := filepath.Join(w.TempDir(), "grant")
	testenv.MustRunUnder(w.T, s.network.Under(s.network.Trading()), "farlog", "stream", "grant", streamName,
		"--token-file", path, "--control", s.cluster.ControlAddress)
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var grant struct {
		Ring    string
		Epoch   uint32
		Members []struct {
			RingUUID string `json:"ring_uuid"`
			Token    string
		}
	}
	if err := json.Unmarshal(raw, &grant); err != nil {
		return nil, err
	}
	options := farlog.WriterOptions{Level: w.level, Epoch: grant.Epoch, CountersDir: "none"}
	for _, one := range grant.Members {
		uuid, uuidErr := hex.DecodeString(one.RingUUID)
		token, tokenErr := hex.DecodeString(one.Token)
		if err := errors.Join(uuidErr, tokenErr); err != nil {
			return nil, err
		}
		options.Members = append(options.Members, farlog.Member{
			RingUUID: [16]byte(uuid),
			Token:    [farlog.TokenLen]byte(token),
		})
	}
	w.ring = grant.Ring
	return farlog.OpenWriter(grant.Ring, options)
}

// work appends until it is told to stop, and then finds out about what was unknown.
func (w *memberWriter) work(s *memberSite) {
	writer, err := w.open(s)
	if err != nil {
		w.fail("open: %v", err)
		return
	}
	for !w.isStopping.Load() && !w.failed.Load() {
		w.appendOne(writer)
		time.Sleep(time.Millisecond) // the shape of the traffic: nothing depends on it
	}
	for _, one := range w.pending {
		w.resolve(writer, one)
	}
	if err := writer.Close(); err != nil {
		w.fail("close: %v", err)
	}
}

func (w *memberWriter) appendOne(writer *farlog.Writer) {
	raw, hash := w.ledger.next()
	began := time.Now()
	position, err := writer.Append(farlog.Entry{Data: raw}, memberDeadline)
	took := time.Since(began)
	w.longest = max(w.longest, took)
	if took > memberDeadline+netLateMax {
		w.fail("an append with deadline %s returned after %s", memberDeadline, took)
	}
	w.returned.Add(1)
	switch {
	case err == nil:
		w.note(position, hash)
		w.copies.Store(int64(position.Copies))
		w.acknowledged.Add(1)
	case errors.Is(err, farlog.ErrUnknown):
		w.unknown++
		w.pending = append(w.pending, pendingRecord{position, hash})
	case errors.Is(err, farlog.ErrFull):
	default:
		w.fail("append: %v", err)
	}
}

// A stream has three members, and an acknowledgement needs two. Each target in turn is killed and started again,
// stopped for a while, cut off from the writer, and made to lose packets, while records are appended: those go on by
// the other two, the member joins again, and whatever was acknowledged is in the store.
func TestMembers_EachTargetAtFaultInTurn(t *testing.T) {
	testenv.SkipWhenShort(t)
	t.Parallel()
	faults := memberFaultsShort
	if text := os.Getenv("FARLOG_MEMBER_FAULTS"); text != "" {
		var err error
		if faults, err = strconv.Atoi(text); err != nil {
			t.Fatalf("FARLOG_MEMBER_FAULTS %q: expected a number", text)
		}
	}
	random := rand.New(rand.NewPCG(seedOf(t), 17))
	s := newMemberSite(t, "--size", "8MiB")
	w := &memberWriter{lossyWriter: lossyWriter{T: t, level: farlog.LevelVisible, ledger: newLedger(t, "M")}}
	done := make(chan struct{})
	s.network.Go(s.network.Trading(), func() {
		defer close(done)
		w.work(s)
	})
	w.until("all members acknowledge", func() bool { return w.copies.Load() == memberCount })
	counts := map[string]int{}
	for n := range faults {
		i, fault := n%memberCount, memberFaults[n%len(memberFaults)]
		count := w.acknowledged.Load()
		heal := fault.begin(s, i)
		w.until("appends go on while target "+fmt.Sprint(i)+" is "+fault.name,
			func() bool { return w.acknowledged.Load() >= count+memberPhase })
		time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond) // when it ends is random, nothing depends on it
		heal()
		w.until("the member joins again after it was "+fault.name,
			func() bool { return w.copies.Load() == memberCount })
		counts[fault.name]++
		if t.Failed() {
			break
		}
	}
	s.cluster.Drain.Pause()
	count := w.acknowledged.Load()
	w.until("records are appended that nobody drains",
		func() bool { return w.acknowledged.Load() >= count+memberPhase })
	w.isStopping.Store(true)
	<-done
	s.checkFar(w.ring)
	s.cluster.Drain.Signal(syscall.SIGCONT)
	for _, uri := range s.rings() {
		waitDrained(t, uri)
	}
	s.cluster.Drain.Stop()
	t.Logf("faults: %v; %d appends, the longest %s; %d outcomes were unknown at first, %d of these records are there",
		counts, w.returned.Load(), w.longest, w.unknown,
		w.resolved)
	if w.unknown > 0 {
		t.Errorf("%d appends did not know their outcome within %s, though two members were whole all the time",
			w.unknown, memberDeadline)
	}
	checkStore(t, s.cluster.StoreDir, w.ledger)
}

// checkFar compares what verify and dump say of the rings from across the network with what they say of the rings'
// files.
func (s *memberSite) checkFar(ring string) {
	s.Helper()
	near := farlog.MembersURI(2, s.rings()...)
	far := func(command string, args ...string) string {
		args = append([]string{
			command, ring, "--stream", streamName, "--control", s.cluster.ControlAddress, "--output",
			"json",
		}, args...)
		return testenv.MustRunUnder(s.T, s.network.Under(s.network.Trading()), "farlog", args...)
	}
	var report struct {
		OK      bool
		Members struct {
			HeadLSN uint64 `json:"head_lsn"`
			TailLSN uint64 `json:"tail_lsn"`
			Members []struct{ State, Text string }
		}
	}
	if err := json.Unmarshal([]byte(far("verify")), &report); err != nil {
		s.Fatal(err)
	}
	if !report.OK || report.Members.TailLSN == report.Members.HeadLSN || len(report.Members.Members) != memberCount {
		s.Errorf("verify of %s: %+v, expected three members that agree, and records", ring, report)
	}
	for i, member := range report.Members.Members {
		if member.State != "agrees" {
			s.Errorf("member %d %s: %s", i+1, member.State, member.Text)
		}
	}
	if there, here := far("dump"), testenv.MustRunUnder(s.T, nil, "farlog", "dump", near, "--output",
		"json"); there != here || here == "" {
		s.Errorf("dump across the network has %d bytes, of the files %d: expected the same", len(there), len(here))
	}
}

// memberFaults are what happens to one target; begin gives what ends it.
var memberFaults = []struct {
	name  string
	begin func(s *memberSite, i int) (heal func())
}{
	{"killed", func(s *memberSite, i int) func() {
		s.targets[i].Kill()
		return func() { s.startTarget(i) }
	}},
	{"stopped", func(s *memberSite, i int) func() {
		s.targets[i].Pause()
		return func() { s.targets[i].Signal(syscall.SIGCONT) }
	}},
	{"cut off", func(s *memberSite, i int) func() {
		s.network.LosePort(100, s.ports[i])
		return func() { s.network.LosePort(0, s.ports[i]) }
	}},
	{"lossy", func(s *memberSite, i int) func() {
		s.network.LosePort(memberLoss, s.ports[i])
		return func() { s.network.LosePort(0, s.ports[i]) }
	}},
}
