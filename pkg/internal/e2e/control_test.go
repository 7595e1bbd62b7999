package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/doctor"
	"github.com/farlog/farlog/pkg/identity"
	"github.com/farlog/farlog/pkg/internal/testenv"
)

const (
	// from the death of a control plane to an answer of another, and to the next ring
	takeoverMax = 5 * time.Second
	// and so many times as long as a ring takes on this machine, now, with nobody dead
	takeoverSlowness = 10
	callMax          = 5 * time.Second
	callPause        = 5 * time.Millisecond
)

// What this proves, and how. Two control planes share an etcd of three processes, while records are appended and the
// API is called. The one that leads gets SIGKILL: the other answers, and places a new ring, in time. A member of etcd
// gets it: all goes on. Then control planes, etcd and the host agent, by which the writer opened its stream, are gone
// altogether: appends are acknowledged and drained on, second after second. In the end nothing is lost.
func TestControl_LeaderAndEtcdDieUnderLoad(t *testing.T) {
	testenv.SkipWhenShort(t)
	dir := testenv.MemoryDir(t)
	endpoints, kills := testenv.StartEtcd(t, identity.In(testenv.TLSDir(t), identity.KindControl))
	cluster := testenv.PrepareCluster(t, dir)
	cluster.EtcdEndpoints = endpoints
	cluster.Start()
	uri := cluster.CreateStream(streamName, "--size", "16MiB", "--record-len-max", "64KiB", "--level", "visible")
	l := newLedger(t, "C")
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	host := newHostBenchOn(t, cluster, "--host-name", name)
	w := startWriter(t, l, 1, "--ring", host.uri(streamName), "--window", "16")
	a := &arena{T: t, cluster: cluster, ledger: l, uri: uri, writer: w}
	a.waitAcknowledged(100)
	leader := leaderOf(t, cluster)
	c := startCallers(t, cluster, []int{leader, 1 - leader}, 4)

	c.waitAnswers(20)
	began := time.Now()
	cluster.CreateStream("desk7/before", "--size", "1MiB", "--level", "visible")
	limit := takeoverMax + takeoverSlowness*time.Since(began)
	killed := time.Now()
	cluster.Controllers[leader].Kill()
	answered := c.waitSince(killed).Sub(killed)
	cluster.CreateStream("desk7/after", "--size", "1MiB", "--level", "visible")
	placed := time.Since(killed)
	t.Logf("after the death of the leader: an answer in %s, a ring in %s", answered, placed)
	if answered > limit || placed > limit {
		t.Errorf("expected the answer and the ring within %s", limit)
	}
	a.waitAcknowledged(100)

	askDoctor(t, endpoints, "", "3 of 3 members are healthy")
	kills[0]()
	killed = time.Now()
	c.waitSince(killed)
	// It may have been etcd's leader, and then the reconciler's session ends with it: how long that takes is etcd's to
	// say.
	testenv.Run(t, "farlog", "stream", "create", "desk7/later", "--size", "1MiB", "--level", "visible", "--control",
		cluster.ControlAddress)
	operator := as(t, cluster, identity.KindAdmin)
	testenv.Until(t, "a ring is placed with two of three members", func() (bool, error) {
		later, err := operator.GetStream(t.Context(), &api.GetStreamRequest{Name: "desk7/later"})
		return err == nil && len(later.Stream.Rings) > 0 && later.Stream.Rings[0].Uri != "", nil
	})
	t.Logf("after the death of a member of etcd: a ring in %s", time.Since(killed))
	a.waitAcknowledged(100)
	c.stop()

	cluster.Controllers[1-leader].Kill()
	askDoctor(t, endpoints, "does not answer", "2 of 3 members are healthy")
	kills[1]()
	askDoctor(t, endpoints, "does not answer", "of 3 members are healthy: no majority")
	kills[2]()
	host.agent.Kill()
	a.goesOnFor(3 * time.Second)
	w.finish(t)
	a.waitDrained()
	cluster.Drain.Stop()
	checkStore(t, cluster.StoreDir, l)
}

// askDoctor has farlog doctor ask each member of etcd. first: what it says of the first one, "" where that is well.
func askDoctor(t *testing.T, endpoints []string, first, whole string) {
	t.Helper()
	files := identity.In(testenv.TLSDir(t), identity.KindControl)
	findings := doctor.Etcd{
		Endpoints: endpoints, Authority: files.Authority, Cert: files.Cert,
		Key: files.Key,
	}.Examine(t.Context())
	if len(findings) != len(endpoints)+1 {
		t.Fatalf("of %d members the doctor says %+v", len(endpoints), findings)
	}
	one, all := findings[0], findings[len(endpoints)]
	if (one.State == doctor.OK) != (first == "") || !strings.Contains(one.Reason, first) ||
		!strings.Contains(all.Reason, whole) || (all.State == doctor.Fail) != strings.Contains(whole, "no majority") {
		t.Errorf("want %q and %q, the doctor says %+v", first, whole, findings)
	}
	if without := (doctor.Etcd{
		Endpoints: endpoints,
		Authority: files.Authority,
	}).Examine(t.Context()); without[len(endpoints)].State != doctor.Fail {
		t.Errorf("without a certificate the doctor says %+v", without)
	}
}

// leaderOf asks the metrics who leads.
func leaderOf(t *testing.T, cluster *testenv.Cluster) int {
	t.Helper()
	leader := -1
	testenv.Until(t, "a control plane leads", func() (bool, error) {
		for i, one := range cluster.Controllers {
			response, err := http.Get("http://" + one.Metrics + "/metrics")
			if err != nil {
				return false, err
			}
			raw, err := io.ReadAll(response.Body)
			response.Body.Close()
			if err != nil {
				return false, err
			}
			if strings.Contains(string(raw), "\nfarlog_control_leader 1\n") {
				leader = i
			}
		}
		return leader >= 0, nil
	})
	return leader
}

// callers ask the control plane for this and that, each on a connection of its own that knows all control planes, and
// keep when they were answered.
type callers struct {
	*testing.T
	cancel context.CancelFunc
	done   sync.WaitGroup
	mutex  sync.Mutex
	at     [][]time.Time // of each
}

// startCallers starts some that know the control planes in this order.
func startCallers(t *testing.T, cluster *testenv.Cluster, order []int, count int) *callers {
	ctx, cancel := context.WithCancel(context.Background())
	c := &callers{T: t, cancel: cancel, at: make([][]time.Time, count)}
	var addresses []string
	for _, i := range order {
		addresses = append(addresses, cluster.Controllers[i].Control)
	}
	t.Cleanup(c.stop)
	for i := range count {
		connection := cluster.Dial(strings.Join(addresses, ","))
		client := api.NewControlServiceClient(connection)
		c.done.Go(func() {
			defer connection.Close()
			for n := 0; ctx.Err() == nil; n++ {
				call, cancel := context.WithTimeout(ctx, callMax)
				if c.call(call, client, fmt.Sprintf("load/%d-%d", i, n%20)) == nil {
					c.mutex.Lock()
					c.at[i] = append(c.at[i], time.Now())
					c.mutex.Unlock()
				}
				cancel()
				time.Sleep(callPause)
			}
		})
	}
	return c
}

// call makes a stream, which has to be written to etcd, and lists some.
func (c *callers) call(ctx context.Context, client api.ControlServiceClient, name string) error {
	spec := &api.StreamSpec{Name: name, RingSizeBytes: 1 << 20, Level: api.Level_LEVEL_VISIBLE}
	if _, err := client.CreateStream(ctx, &api.CreateStreamRequest{Spec: spec}); err != nil {
		return err
	}
	_, err := client.ListStreams(ctx, &api.ListStreamsRequest{Name: "load/*"})
	return err
}

func (c *callers) stop() {
	c.cancel()
	c.done.Wait()
}

// firstSince is when the last of them was first answered after a moment; zero while one was not.
func (c *callers) firstSince(since time.Time) (last time.Time) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for _, mine := range c.at {
		first := slices.IndexFunc(mine, since.Before)
		if first < 0 {
			return time.Time{}
		}
		if mine[first].After(last) {
			last = mine[first]
		}
	}
	return last
}

// waitSince waits until each was answered after a moment.
func (c *callers) waitSince(since time.Time) (last time.Time) {
	c.Helper()
	testenv.Until(c, "a control plane answers all callers", func() (bool, error) {
		last = c.firstSince(since)
		return !last.IsZero(), nil
	})
	return last
}

// waitAnswers waits until each was answered so often.
func (c *callers) waitAnswers(count int) {
	c.Helper()
	testenv.Until(c, "callers are answered", func() (bool, error) {
		c.mutex.Lock()
		defer c.mutex.Unlock()
		return !slices.ContainsFunc(c.at, func(mine []time.Time) bool { return len(mine) < count }), nil
	})
}
