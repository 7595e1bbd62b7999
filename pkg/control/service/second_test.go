package service

import (
	"strings"
	"testing"
	"time"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/identity"
)

// Whoever has a copy of a target's certificate and comes as another agent of its host is told to the operator.
func TestGuard_SecondAgentOfAHostIsLogged(t *testing.T) {
	t.Parallel()
	g := startGuarded(t, "rules: []\n")
	client := api.NewTargetServiceClient(g.dial(g.keeper(identity.KindTarget, "storage1", time.Hour)))
	const second = "agent=storage1-0000bbbb agent_pid=8 beside=storage1-0000aaaa beside_pid=7 " +
		"by=spiffe://farlog/farlog/target/storage1"
	report := func(id string, pid uint32) {
		t.Helper()
		state := &api.TargetState{Agent: &api.Agent{Id: id, Host: "storage1", Pid: pid}}
		if _, err := client.ReportTarget(t.Context(), &api.ReportTargetRequest{State: state}); err != nil {
			t.Fatal(err)
		}
	}
	report("storage1-0000aaaa", 7)
	admin := api.NewControlServiceClient(g.dial(g.keeper(identity.KindAdmin, "ada", time.Hour)))
	for isKnown := false; !isKnown; {
		list, err := admin.ListAgents(t.Context(), &api.ListAgentsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		isKnown = len(list.TargetsAlive) == 1
	}
	if strings.Contains(g.log.String(), "a second agent") {
		t.Fatalf("the first one is told as a second: %s", g.log)
	}
	report("storage1-0000bbbb", 8)
	if !strings.Contains(g.log.String(), second) {
		t.Fatalf("log has no %q: %s", second, g.log)
	}
}
