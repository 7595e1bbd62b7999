package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/auditlog"
	"github.com/farlog/farlog/pkg/identity"
	"github.com/farlog/farlog/pkg/internal/testenv"
)

// What this proves, and how. Operators and others do things to a control plane, one of which is refused, while its
// target is away and while it is killed: in the end the store has a record of each in the audit stream, with who, what,
// when, revision and outcome, and a chain that verifies.
func TestAudit_EveryActIsRecorded(t *testing.T) {
	t.Parallel()
	cluster := testenv.PrepareCluster(t, testenv.MemoryDir(t))
	cluster.AuditLevel = "visible"
	began := time.Now()
	cluster.Start()
	ring := cluster.CreateStream(streamName, "--size", "1MiB", "--level", "visible")
	fabric := filepath.Join(t.TempDir(), "fabric.yaml")
	if err := os.WriteFile(fabric, []byte("streams:\n- {name: desk7/orders, size: 1MiB, level: visible, policy: "+
		"reject}\n- {name: desk7/fills, size: 1MiB, level: visible}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, code := testenv.Run(t, "farlog", "apply", "--dry-run", "-f", fabric, "--control",
		cluster.ControlAddress); code != 1 {
		t.Errorf("a fabric that differs: exit code %d", code)
	}
	testenv.MustRun(t, "farlog", "apply", "-f", fabric, "--control", cluster.ControlAddress)
	host := as(t, cluster, identity.KindHost)
	_, err := host.CreateStream(t.Context(), &api.CreateStreamRequest{Spec: &api.StreamSpec{Name: "desk9/mine"}})
	if status.Code(err) != codes.PermissionDenied {
		t.Fatalf("a trading host made a stream: %v", err)
	}
	grant, err := host.AcquireWriter(t.Context(), &api.AcquireWriterRequest{
		Stream: streamName,
		Holder: &api.Holder{Host: "trading1", Name: "test"},
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = as(t, cluster, identity.KindAdmin).CreateStream(t.Context(),
		&api.CreateStreamRequest{Spec: &api.StreamSpec{Name: "farlog/forged"}})
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("a stream of the control plane's own was made by somebody else: %v", err)
	}
	cluster.Target.Kill() // audit events are pending in etcd
	testenv.MustRun(t, "farlog", "control", "backup", filepath.Join(t.TempDir(), "backup"), "--control",
		cluster.ControlAddress)
	cluster.Control.Kill()
	cluster.StartControl()
	cluster.StartTarget()

	wanted := wantedEvents(grant.Grant.Epoch)
	checkEvents(t, waitEvents(t, cluster.StoreDir, len(wanted)+2), wanted, began)
	waitDrained(t, ring)
	restartWithNothingToRecord(t, cluster)
	cluster.Drain.Stop()
	testenv.MustRun(t, "farlog", "verify", cluster.StoreDir)
	if text := testenv.MustRun(t, "farlog", "export", "--control", cluster.ControlAddress); strings.Contains(text,
		"farlog/audit") {
		t.Errorf("the audit stream is declared: %s", text)
	}
}

// wantedEvents are what each event of the test says, by call and stream.
func wantedEvents(epoch uint32) map[string]func(auditlog.Event) bool {
	return map[string]func(auditlog.Event) bool{
		"CreateStream desk7/orders": func(a auditlog.Event) bool {
			return a.Outcome == "OK" && a.Revision > 0 && strings.HasPrefix(a.Who, "spiffe://farlog/farlog/admin/")
		},
		"ApplyFabric ": func(a auditlog.Event) bool {
			text := strings.Join(a.Changes, ", ")
			return a.Outcome == "OK" && a.Revision > 0 &&
				strings.Contains(text, "stream desk7/orders policy: block -> reject") &&
				strings.Contains(text, "new stream desk7/fills")
		},
		"CreateStream desk9/mine": func(a auditlog.Event) bool {
			return a.Outcome == "PERMISSIONDENIED" && strings.Contains(a.Error, "has not the role admin") &&
				strings.HasPrefix(a.Who, "spiffe://farlog/farlog/host/")
		},
		"CreateStream farlog/forged": func(a auditlog.Event) bool { return a.Outcome == "INVALIDARGUMENT" },
		"AcquireWriter desk7/orders": func(a auditlog.Event) bool {
			return a.Outcome == "OK" && a.Epoch == epoch && strings.Contains(string(a.Request), "trading1")
		},
		"Backup ": func(a auditlog.Event) bool { return a.Outcome == "OK" || a.Outcome == "UNRECORDED" },
		"ReadAuthority ": func(a auditlog.Event) bool {
			return a.Outcome == "OK" && a.Who == "control" && strings.Contains(string(a.Request), "/ca.crt")
		},
		"ReadRevocationList ": func(a auditlog.Event) bool {
			return a.Outcome == "OK" && strings.Contains(string(a.Request), "/crl.pem")
		},
	}
}

// restartWithNothingToRecord -- the leader that comes holds the audit stream nevertheless.
func restartWithNothingToRecord(t *testing.T, cluster *testenv.Cluster) {
	t.Helper()
	cluster.Control.Kill()
	cluster.StartControl()
	admin := as(t, cluster, identity.KindAdmin)
	testenv.Until(t, "the audit stream has a writer again", func() (bool, error) {
		got, err := admin.GetStream(t.Context(), &api.GetStreamRequest{Name: "farlog/audit"})
		return err == nil && got.Stream.Condition == api.Condition_CONDITION_OK, nil
	})
}

// checkEvents finds each event that is wanted once; those of files twice, as the control plane was started twice.
func checkEvents(t *testing.T, events map[string]auditlog.Event, wanted map[string]func(auditlog.Event) bool,
	began time.Time,
) {
	t.Helper()
	isReadAgain := map[string]bool{} // the files, at the second start of the control plane
	for id, event := range events {
		isAsWanted := wanted[event.What+" "+event.Stream]
		if isAsWanted == nil || !isAsWanted(event) || event.Time.Before(began) || event.Time.After(time.Now()) ||
			event.Instance == "" {
			t.Errorf("%s: %+v", id, event)
		}
		if what := event.What + " " + event.Stream; !strings.HasPrefix(what, "Read") || isReadAgain[what] {
			delete(wanted, what)
		} else {
			isReadAgain[what] = true
		}
	}
	for what := range wanted {
		t.Errorf("no record of %s", what)
	}
}

// waitEvents waits until the store has so many events, each once.
func waitEvents(t *testing.T, store string, count int) map[string]auditlog.Event {
	t.Helper()
	events := map[string]auditlog.Event{}
	testenv.Until(t, "all audit events are in the store", func() (bool, error) {
		stdout, _, code := testenv.Run(t, "farlog", "replay", store, "--stream", "farlog/audit", "--speed", "max")
		if code != 0 {
			return false, nil // no store yet
		}
		for line := range strings.Lines(stdout) {
			var event auditlog.Event
			if err := json.Unmarshal([]byte(line), &event); err != nil {
				return false, err
			}
			if event.What != "ReportAnchor" { // a drain reports some when it is time, which nobody here does
				events[event.ID] = event
			}
		}
		time.Sleep(50 * time.Millisecond)
		return len(events) >= count, nil
	})
	return events
}

// as is a client with one of the certificates of the tests.
func as(t *testing.T, cluster *testenv.Cluster, kind identity.Kind) api.ControlServiceClient {
	t.Helper()
	choice := identity.Choice{Dir: testenv.TLSDir(t), Kinds: []identity.Kind{kind}}
	connection, err := api.Dial(cluster.ControlAddress, identity.NewClientCredentials(choice.Finder()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	return api.NewControlServiceClient(connection)
}
