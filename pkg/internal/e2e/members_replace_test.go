package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/farlog/farlog/pkg/internal/testenv"
)

// farlog runs a command at the control plane's, and gives what it said and whether it went well: of status a state that
// is to be learned of is none.
func (s *memberSite) farlog(args ...string) (said string, isOK bool) {
	s.Helper()
	stdout, stderr, code := testenv.RunUnder(s.T, s.cluster.Under, "farlog",
		append(args, "--control", s.cluster.ControlAddress)...)
	return stdout + stderr, code == 0
}

// replace is farlog stream members replace; text is what it has to say.
func (s *memberSite) replace(isOK bool, text string, args ...string) {
	s.Helper()
	said, wentWell := s.farlog(append([]string{
		"stream", "members", "replace", streamName, "--reason",
		"its host is gone",
	}, args...)...)
	if wentWell != isOK || !strings.Contains(said, text) {
		s.Errorf("stream members replace %q: %q; expected %q", args, said, text)
	}
}

type memberStatus struct {
	LagBytes uint64 `json:"lag_bytes"`
	Members  []struct{ Target, State string }
}

func (s *memberSite) status() (memberStatus, error) {
	s.Helper()
	return s.statusOf(streamName)
}

func (s *memberSite) statusOf(stream string) (memberStatus, error) {
	s.Helper()
	stdout, _, _ := testenv.RunUnder(s.T, s.cluster.Under, "farlog", "status", "--output", "json", stream, "--control",
		s.cluster.ControlAddress)
	var said struct{ Streams []memberStatus }
	if err := json.Unmarshal([]byte(stdout), &said); err != nil || len(said.Streams) != 1 {
		return memberStatus{}, fmt.Errorf("status said %q: %w", stdout, err)
	}
	return said.Streams[0], nil
}

func (s *memberSite) untilState(target, state string) {
	s.Helper()
	testenv.Until(s.T, "target "+target+" is "+state, func() (bool, error) {
		status, err := s.status()
		return slices.ContainsFunc(status.Members, func(one struct{ Target, State string }) bool {
			return strings.HasPrefix(one.Target, target) && one.State == state
		}), err
	})
}

// lose ends a target for good.
func (s *memberSite) lose(i int) {
	s.Helper()
	s.targets[i].Kill()
	if err := os.RemoveAll(s.dir(i)); err != nil {
		s.Fatal(err)
	}
}

// Two of three targets are lost for good, one after the other, while nothing is drained: the writer goes on with the
// others. Each is replaced when it has died, and the next one brings the new ring what the others have, so that the
// second loss leaves all that was acknowledged to any of them.
func TestMembers_LostForGoodAndReplaced(t *testing.T) {
	t.Parallel()
	s := &succession{
		memberSite: newMemberSite(t, "--size", "8MiB", "--record-len-max", "64KiB"),
		ledger:     newLedger(t, "R"),
	}
	s.cluster.Drain.Kill()
	s.active = s.open(s.network.Trading())
	s.burst()
	s.startTarget(memberCount)
	s.lose(0)
	s.replace(false, "no member is on target", "--member", "storage3")
	s.replace(false, "shares a failure domain", "--member", "storage0", "--with", "storage1")
	s.burst()
	s.active.kill() // a living one asks every few seconds, and when it has taken the new ring in that counts
	s.replace(true, "by one of target storage3", "--member", "storage0")
	s.untilState("storage3", "new")
	s.replace(false, "one at a time", "--member", "storage1")
	s.succeed()
	s.untilState("storage3", "up")
	s.lose(1)
	s.burst()
	s.startTarget(memberCount + 1)
	testenv.Until(t, "target storage4 can take a ring", func() (bool, error) {
		_, isOK := s.farlog("stream", "members", "replace", streamName, "--member", "storage1", "--with", "storage4",
			"--reason", "test", "--dry-run")
		return isOK, nil
	})
	s.active.kill()
	s.replace(true, "by one of target storage4", "--member", "storage1", "--with", "storage4")
	s.untilState("storage4", "new")
	s.succeed()
	s.untilState("storage4", "up")
	s.cluster.StartDrain()
	s.active.end(t)
	testenv.Until(t, "all is drained", func() (bool, error) {
		status, err := s.status()
		return status.LagBytes == 0, err
	})
	s.cluster.Drain.Stop()
	checkStore(t, s.cluster.StoreDir, s.ledger)
	s.checkTargets()
}

// burst has the writer append and be acknowledged.
func (s *succession) burst() {
	s.Helper()
	count := s.ledger.count()
	if err := s.active.feedBurst(takeoverRecords); err != nil {
		s.Fatal(err)
	}
	testenv.Until(s.T, "records are acknowledged", func() (bool, error) { return s.ledger.count() > count, nil })
}

// succeed kills the writer, and starts another one.
func (s *succession) succeed() {
	s.Helper()
	s.active.kill()
	count := s.ledger.count()
	s.active = s.open(s.network.Trading())
	testenv.Until(s.T, "the next writer's records are acknowledged",
		func() (bool, error) { return s.ledger.count() > count, nil })
}

// checkTargets looks where the members are in the end.
func (s *succession) checkTargets() {
	s.Helper()
	status, err := s.status()
	if err != nil {
		s.Fatal(err)
	}
	var targets []string
	for _, member := range status.Members {
		targets = append(targets, strings.Split(member.Target, "-")[0])
	}
	slices.Sort(targets)
	if text := strings.Join(targets, " "); text != "storage2 storage3 storage4" {
		s.Errorf("the members are on %s", text)
	}
}
