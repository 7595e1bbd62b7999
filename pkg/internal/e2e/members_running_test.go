package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/internal/testenv"
)

const (
	namedStream = "desk7/named"
	legStream   = "desk7/leg"       // of a route that its writer has grants for
	namedLeg    = "desk7/named-leg" // of one that it knows by name
)

// running is a stream whose one writer outlives two of its three rings.
type running struct {
	stream string
	*ledger
	writer *writer
}

// startHostAgent is one on the writers' host.
func (s *memberSite) startHostAgent() (socket string) {
	s.Helper()
	dir, err := os.MkdirTemp("", "farlog-host-") // a socket's path is short, and that of a test's own directory is not
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { os.RemoveAll(dir) })
	socket = filepath.Join(dir, "agent")
	testenv.StartDaemonUnder(s.T, s.network.Under(s.network.Trading()), dir, "host", "--data-dir", dir, "--control",
		s.cluster.ControlAddress,
		"--host-name", "trading1", "--metrics-listen", "off", "--host-socket", socket)
	return socket
}

// load has the writers append until something has come about, and be acknowledged once more then: none of them ended.
func (s *memberSite) load(what string, all []*running, until func() (bool, error)) {
	s.Helper()
	testenv.Until(s.T, what, func() (bool, error) {
		for _, one := range all {
			if err := one.writer.feedBurst(takeoverRecords); err != nil {
				return false, err
			}
		}
		return until()
	})
	for _, one := range all {
		count := one.count()
		if err := one.writer.feedBurst(1); err != nil {
			s.Fatal(err)
		}
		testenv.Until(s.T, "records of "+one.stream+" are acknowledged after "+what,
			func() (bool, error) { return one.count() > count, nil })
	}
}

// awaitUp waits until each ring of these streams has been told its writer's epoch: it is not replaced without.
func (s *memberSite) awaitUp(all []*running) {
	for _, one := range all {
		s.load("all rings of "+one.stream+" know the epoch", all, func() (bool, error) {
			status, err := s.statusOf(one.stream)
			upCount := 0
			for _, member := range status.Members {
				if member.State == "up" {
					upCount++
				}
			}
			return upCount == memberCount, err
		})
	}
}

// A ring is lost for good and replaced while the stream's writer runs: it brings the new one all that is not stored,
// and goes on with that when a second ring is lost. One writer was granted the stream by the control plane, another one
// knows its name alone; two more are routes, each with a leg of either kind. No append takes longer than its deadline,
// and what was acknowledged is in the store.
func TestMembers_ReplacedWhileTheWriterRuns(t *testing.T) {
	testenv.SkipWhenShort(t)
	t.Parallel()
	s := newMemberSite(t, "--size", "8MiB", "--record-len-max", "64KiB")
	for _, stream := range []string{namedStream, legStream, namedLeg} {
		testenv.MustRunUnder(t, s.cluster.Under, "farlog", "stream", "create", stream, "--members", "3", "--needed",
			"2", "--level", "visible", "--wait", "20s",
			"--control", s.cluster.ControlAddress, "--size", "8MiB", "--record-len-max", "64KiB")
		if stream != namedStream {
			testenv.MustRunUnder(t, s.cluster.Under, "farlog", "route", "create", "route-of/"+stream, "--leg", stream,
				"--control", s.cluster.ControlAddress)
		}
	}
	under, deadline := s.network.Under(s.network.Trading()), strconv.Itoa(int(memberDeadline.Seconds()))+"s"
	all := []*running{
		{stream: streamName, ledger: newLedger(t, "R")},
		{stream: namedStream, ledger: newLedger(t, "N")},
		{stream: legStream, ledger: newLedger(t, "L")},
		{stream: namedLeg, ledger: newLedger(t, "M")},
	}
	socket := s.startHostAgent()
	all[0].writer = openWriterUnder(t, under, all[0].ledger, "--stream", streamName, "--control",
		s.cluster.ControlAddress, "--window", "64", "--deadline", deadline)
	all[1].writer = openWriterUnder(t, under, all[1].ledger, "--ring", "farlog://"+namedStream+"?agent="+socket,
		"--window", "64", "--deadline", deadline)
	all[2].writer = openWriterUnder(t, under, all[2].ledger, "--route", "route-of/"+legStream, "--control",
		s.cluster.ControlAddress, "--window", "64", "--deadline", deadline)
	all[3].writer = openWriterUnder(t, under, all[3].ledger, "--route", "farlog://route-of/"+namedLeg+"?agent="+socket,
		"--window", "64", "--deadline", deadline)
	s.startTarget(memberCount)
	s.load("all streams are written", all, func() (bool, error) {
		return !slices.ContainsFunc(all, func(one *running) bool { return one.count() == 0 }), nil
	})
	s.awaitUp(all)
	s.lose(0)
	for _, one := range all {
		if said, isOK := s.farlog("stream", "members", "replace", one.stream, "--member", "storage0", "--reason",
			"its host is gone"); !isOK || !strings.Contains(said, "by one of target storage3") {
			t.Fatalf("stream members replace %s: %q", one.stream, said)
		}
	}
	for _, one := range all {
		s.load("the new ring of "+one.stream+" counts", all, func() (bool, error) {
			status, err := s.statusOf(one.stream)
			return slices.ContainsFunc(status.Members, func(member struct{ Target, State string }) bool {
				return strings.HasPrefix(member.Target, "storage3") && member.State == "up"
			}), err
		})
	}
	s.lose(1)
	for _, one := range all {
		count := one.count()
		s.load("records of "+one.stream+" are acknowledged by the new ring", all,
			func() (bool, error) { return one.count() > count+takeoverRecords, nil })
	}
	for _, one := range all {
		one.writer.end(t)
		testenv.Until(t, one.stream+" is drained", func() (bool, error) {
			status, err := s.statusOf(one.stream)
			return err == nil && status.LagBytes == 0, err
		})
	}
	s.cluster.Drain.Stop()
	for _, one := range all {
		checkStoreOf(t, s.cluster.StoreDir, one.stream, one.ledger)
	}
}

// tail is how far the ring goes that a target has or had, by its file.
func (s *memberSite) tail(i int) uint64 {
	s.Helper()
	paths, err := filepath.Glob(filepath.Join(s.dir(i), "rings", "*.ring"))
	if err != nil || len(paths) != 1 {
		s.Fatalf("rings of target %d: %q, %v", i, paths, err)
	}
	status, err := farlog.Inspect("mem:" + paths[0])
	if err != nil {
		s.Fatal(err)
	}
	return status.AppendedLSN
}

// A target is replaced while it still answers, as before its host is serviced, and a writer runs that knows the
// stream's name alone: no append takes longer than its deadline, the former ring gets nothing more, and with another
// target lost an acknowledgement needs the new one. What was acknowledged is in the store once.
func TestMembers_ReplacedWhileItStillAnswers(t *testing.T) {
	testenv.SkipWhenShort(t)
	t.Parallel()
	s := newMemberSite(t, "--size", "8MiB", "--record-len-max", "64KiB")
	one := &running{stream: streamName, ledger: newLedger(t, "R")}
	all := []*running{one}
	one.writer = openWriterUnder(t, s.network.Under(s.network.Trading()), one.ledger, "--ring",
		"farlog://"+streamName+"?agent="+s.startHostAgent(), "--window", "64",
		"--deadline", strconv.Itoa(int(memberDeadline.Seconds()))+"s")
	s.startTarget(memberCount)
	s.load("the stream is written", all, func() (bool, error) { return one.count() > 0, nil })
	s.load("a member is replaced", all, func() (bool, error) {
		said, isOK := s.farlog("stream", "members", "replace", streamName, "--member", "storage2", "--with", "storage3",
			"--reason", "its host is to be serviced")
		return isOK && strings.Contains(said, "by one of target storage3"), nil
	})
	s.load("the new ring counts", all, func() (bool, error) {
		status, err := s.status()
		return slices.ContainsFunc(status.Members, func(member struct{ Target, State string }) bool {
			return strings.HasPrefix(member.Target, "storage3") && member.State == "up"
		}), err
	})
	formerly := s.tail(2)
	s.lose(1)
	count := one.count()
	s.load("records are acknowledged by the new ring", all,
		func() (bool, error) { return one.count() > count+takeoverRecords, nil })
	if tail := s.tail(2); tail != formerly {
		t.Errorf("the former ring went on from %d to %d", formerly, tail)
	}
	s.targets[2].Stop() // it has answered all the time
	one.writer.end(t)
	testenv.Until(t, "all is drained", func() (bool, error) {
		status, err := s.status()
		return err == nil && status.LagBytes == 0, err
	})
	s.cluster.Drain.Stop()
	checkStore(t, s.cluster.StoreDir, one.ledger)
}
